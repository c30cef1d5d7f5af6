package pgsink_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/pgsink"
)

// Partitions that put, move and remove rows under the same keys at the same time
// take their locks in one order: PostgreSQL never has to end one of them.
func TestWritersNeverDeadlock(t *testing.T) {
	t.Parallel()
	for _, sc := range []struct {
		name                                      string
		keys, rows, dropPercent, batches, sources int
	}{
		{"few keys, all of them contested", 5, 6, 50, 60, 3},
		{"many keys, some of them contested", 200, 60, 20, 25, 40},
		{"what is put is removed by the next batch", 30, 20, 50, 40, 10},
	} {
		t.Run(sc.name, func(t *testing.T) {
			const partitions = 6
			dsn := newDatabase(t)
			s, schema := newSink(t), orders(t, 1)
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			claims := make([]map[string]project.Row, partitions)
			var wg sync.WaitGroup
			for p := range partitions {
				claims[p] = map[string]project.Row{}
				w := open(t, s, schema, p, 1)
				r := rand.New(rand.NewPCG(seed, uint64(p)))
				wg.Go(func() {
					var position feed.Position
					for range sc.batches {
						b := contested(r, p, sc.keys, sc.rows, sc.dropPercent, sc.sources, claims[p])
						b.After, b.UpTo = position, feed.Position{LSN: position.LSN + 1}
						if _, err := w.Write(t.Context(), &b); err != nil {
							t.Error(err)
							return
						}
						position = b.UpTo
					}
				})
			}
			wg.Wait()
			compareClaims(t, claims, rowsOf(t, s, schema, 0), rejectsOf(t, s, schema, 0))
			if n := deadlocks(t, s, dsn); n != "(0)" {
				t.Errorf("PostgreSQL ended %s deadlocks; want none", n)
			}
		})
	}
}

// contested is a batch that puts and removes rows of keys that other partitions have, too.
func contested(r *rand.Rand, partition, keys, rows, dropPercent, sources int, claims map[string]project.Row) project.Batch {
	var b project.Batch
	touched := map[string]bool{}
	for range 1 + r.IntN(rows) {
		source := fmt.Sprintf("c/[%d]/%d", partition, r.IntN(sources))
		row := order(source, fmt.Sprintf("k%03d", r.IntN(keys)), fmt.Sprint(r.IntN(100)), r.Int64N(1000))
		row.Element = row.Key[0].Text()
		name := rowName(&row)
		if touched[name] {
			continue
		}
		touched[name] = true
		if r.IntN(100) < dropPercent {
			b.Drop = append(b.Drop, gone(row))
			delete(claims, name)
		} else {
			b.Put = append(b.Put, row)
			claims[name] = row
		}
	}
	return b
}

// deadlocks returns how many deadlocks the server has ended in a database. A process
// of the server counts its own at the latest when it ends.
func deadlocks(t *testing.T, s *pgsink.Sink, dsn string) string {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for len(backends(t.Context(), t, dsn)) > 0 && !t.Failed() { // each look is a connection
	}
	return query(t, dsn, "select deadlocks from pg_stat_database where datname = current_database()")[0]
}

// Whoever drops a row gives its key to a row that became pending while it waited for a lock,
// whatever isolation the database's transactions have by default.
func TestRowThatBecamePendingMeanwhileIsPromoted(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	exec(t, dsn, `do $$ begin execute format('alter database %I set default_transaction_isolation = %L', current_database(), 'repeatable read'); end $$`)
	s, schema := newSink(t), orders(t, 1)
	first, second := open(t, s, schema, 0, 1), open(t, newSink(t), schema, 1, 1) // of two workers
	held, waiting := order("s", "a", "ann", 1), order("t", "a", "ben", 2)
	write(t, first, project.Batch{UpTo: at(1), Put: []project.Row{held}})

	lock := connect(t, dsn)
	defer func() { _ = lock.Close(context.Background()) }()
	tx, err := lock.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select from millrace_positions where producer like '%/0' for update`); err != nil {
		t.Fatal(err)
	}
	dropped := make(chan error, 1)
	go func() {
		_, err := first.Write(t.Context(), &project.Batch{After: at(1), UpTo: at(2), Drop: []project.Row{gone(held)}})
		dropped <- err
	}()
	poll.Until(t, func() error {
		waits := query(t, dsn, `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)
		return poll.Unless(len(waits) > 0, "the drop does not wait for the position")
	})
	write(t, second, project.Batch{UpTo: at(1), Put: []project.Row{waiting}})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-dropped; err != nil {
		t.Fatal(err)
	}
	wantRows(t, s, schema, waiting)
}
