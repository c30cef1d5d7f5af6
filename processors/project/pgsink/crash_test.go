package pgsink_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/postgres"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/pgsink"
)

// recoverMax bounds how long a sink may take until it can write again. It is no measure of
// speed: on a busy machine PostgreSQL alone takes a part of it to start.
const recoverMax = 5 * time.Minute

// turn is one batch of one partition.
type turn struct {
	partition int
	batch     project.Batch
}

// script are batches that take every way through the sink: plain ones, claims, a
// claim that gets its key, rejects, and a row that the server refuses.
func script() []turn {
	a, b, c := `c/["1"]/a`, `c/["2"]/b`, `c/["3"]/c`
	order := func(source, id, customer string, cents int64) project.Row {
		r := order(source, id, customer, cents)
		r.Element = id
		return r
	}
	none := project.Reject{Source: a, Element: "1", Column: "total", Reason: "is no number", Row: []byte(`{"total":"x"}`)}
	return []turn{
		{0, project.Batch{Put: []project.Row{order(a, "x", "ann", 1), order(a, "y", "ann", 2)}}},
		{1, project.Batch{Put: []project.Row{order(b, "x", "bob", 3), order(b, "z", "bob", 4), order(c, "x", "cid", 5)}}},
		{0, project.Batch{Drop: []project.Row{gone(order(a, "x", "", 0))}, Reject: []project.Reject{none}, Put: []project.Row{order(a, "y", "ann again", 6)}}},
		{1, project.Batch{Put: []project.Row{order(b, "w", "bad", 7), order(b, "v", "good", 8)}}},
		{0, project.Batch{Accept: []project.Reject{none}, Drop: []project.Row{gone(order(a, "y", "", 0))}}},
		{1, project.Batch{Drop: []project.Row{gone(order(b, "x", "", 0))}}},
	}
}

// finished is what must be there when the script has been carried out once.
var finished = []string{
	`[v good 0.08] c/["2"]/bv`, `[x cid 0.05] c/["3"]/cx`, `[z bob 0.04] c/["2"]/bz`,
	`reject c/["2"]/bw`,
	`source:c7k2x4ab/0 at 3.0`, `source:c7k2x4ab/1 at 3.0`,
}

// contents reads all that a sink has of the first table.
func contents(t testing.TB, s *pgsink.Sink, schema *project.Schema) []string {
	t.Helper()
	all := show(rowsOf(t, s, schema, 0))
	for _, r := range rejectsOf(t, s, schema, 0) {
		all = append(all, "reject "+r.Source+r.Element)
	}
	positions, err := s.Positions(t.Context(), schema)
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range slices.Sorted(maps.Keys(positions)) {
		all = append(all, fmt.Sprintf("%s at %s", source, positions[source]))
	}
	return all
}

// play carries out the script as a worker does: what fails because the server
// cannot be reached is tried again, now and then by the next term.
func play(t testing.TB, s *pgsink.Sink, schema *project.Schema, turns []turn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), recoverMax)
	defer cancel()
	pauses := processors.NewPauses()
	try := func(what string, do func() error) {
		for {
			err := do()
			if err == nil {
				pauses.Reset()
				return
			}
			if processors.FailureOf(ctx, err) != processors.Unavailable {
				t.Fatalf("%s: %v, want an error that is tried again", what, err)
			}
			if strings.Contains(err.Error(), postgres.Password) {
				t.Fatalf("%s: the error tells the password: %v", what, err)
			}
			if pauses.Wait(ctx, err) != nil {
				t.Fatalf("%s: not over after %s: %v", what, recoverMax, err)
			}
		}
	}
	writers, positions := map[int]project.Writer{}, map[int]feed.Position{}
	for n, turn := range turns {
		p := turn.partition
		if writers[p] == nil || n%3 == 2 {
			try("open", func() (err error) {
				writers[p], _, err = s.Open(ctx, schema, term(schema, p, uint64(n+1)))
				return err
			})
		}
		b := turn.batch
		b.After, b.UpTo = positions[p], feed.Position{LSN: positions[p].LSN + 1}
		try(fmt.Sprint("write ", n), func() error {
			_, err := writers[p].Write(ctx, &b)
			return err
		})
		positions[p] = b.UpTo
	}
}

// each plays the script with harm at one message after the other, before and after
// it, until there are no more messages, and wants the same end every time. Of stride
// messages one is taken, another in each run; all are with MILLRACE_CRASH_ALL set.
func each(t *testing.T, dsn string, stride int, harm func()) {
	t.Helper()
	if os.Getenv("MILLRACE_CRASH_ALL") != "" {
		stride = 1
	}
	p, through := newProxy(t, dsn)
	setenv(t, through)
	schema := orders(t, 1)
	open(t, newSink(t), schema, 0, 1)
	exec(t, dsn, `alter table orders add check (customer <> 'bad')`)
	for _, after := range []bool{false, true} {
		for n := 1 + rand.IntN(stride); ; n += stride {
			exec(t, dsn, `truncate orders, orders_rejects, millrace_positions`)
			s := newSink(t)
			p.plan(n, after, harm)
			play(t, s, schema, script())
			harmed, messages := p.finish()
			if diff := cmp.Diff(finished, contents(t, s, schema)); diff != "" {
				t.Fatalf("harm at message %d of %d (after it: %t): the end differs (-want +got):\n%s", n, messages, after, diff)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if !harmed {
				t.Logf("%d messages, after: %t", messages, after)
				break
			}
		}
	}
}

func TestCrash_ConnectionLostAtEachStep(t *testing.T) {
	t.Parallel()
	each(t, newDatabase(t), 9, func() {}) // the proxy cuts it
}

func TestCrash_BackendTerminatedAtEachStep(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	admin := connect(t, dsn)
	each(t, dsn, 9, func() {
		if _, err := admin.Exec(t.Context(), `select pg_terminate_backend(pid, 5000) from pg_stat_activity
			where application_name = 'millrace' and datname = current_database()`); err != nil {
			t.Error(err)
		}
	})
}

// A backend that is killed makes the server end all others and recover.
func TestCrash_BackendKilledMidTransaction(t *testing.T) {
	t.Parallel()
	server := postgres.Start(t)
	dsn := server.Database(t)
	each(t, dsn, 20, func() {
		ctx, cancel := context.WithTimeout(context.Background(), recoverMax)
		defer cancel()
		for _, pid := range backends(ctx, t, dsn) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Error(err)
			}
		}
	})
}

func TestCrash_ServerKilledMidTransaction(t *testing.T) {
	t.Parallel()
	server := postgres.Start(t)
	dsn := server.Database(t)
	each(t, dsn, 20, func() {
		if err := errors.Join(server.Kill(), server.Run(context.Background())); err != nil {
			t.Error(err)
		}
	})
}
