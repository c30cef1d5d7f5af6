package pgsink_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/millrace/millrace/feed"
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
