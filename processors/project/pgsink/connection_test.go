package pgsink_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/postgres"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/pgsink"
)

// The password is in no error, whatever is wrong.
func TestPasswordIsNeverTold(t *testing.T) {
	t.Parallel()
	good := newDatabase(t)
	exec(t, good, `drop database if exists other`)
	exec(t, good, `create database other encoding 'SQL_ASCII' template template0`)
	const secret = "hush-Hush/%41:9"
	change := func(f func(*url.URL)) string {
		u, err := url.Parse(good)
		if err != nil {
			t.Fatal(err)
		}
		f(u)
		return u.String()
	}
	for name, dsn := range map[string]string{
		"no connection string": "",
		"wrong password":       change(func(u *url.URL) { u.User = url.UserPassword(postgres.User, secret) }),
		"no such server":       change(func(u *url.URL) { u.User, u.Host = url.UserPassword(postgres.User, secret), "127.0.0.1:1" }),
		"no such host": change(func(u *url.URL) {
			u.User, u.Host = url.UserPassword(postgres.User, secret), "no-such-host.invalid:5432"
		}),
		"no such database": change(func(u *url.URL) { u.Path = "/nothing" }),
		"no such user":     change(func(u *url.URL) { u.User = url.UserPassword("nobody", secret) }),
		"another encoding": change(func(u *url.URL) { u.Path = "/other" }),
		"a bad port":       "postgres://millrace:" + secret + "@127.0.0.1:port/x",
		"no URL":           "postgres://millrace:" + secret + "@[::1/x",
		"bad escapes":      "postgres://millrace:%zz" + secret + "@127.0.0.1/x",
		"keywords":         "host=127.0.0.1 port=1 user=millrace password='" + secret + "' dbname=x",
		"bad keywords":     "password=" + secret + " host",
		"a bad option":     change(func(u *url.URL) { u.User = url.UserPassword(postgres.User, secret); u.RawQuery = "sslmode=" + secret }),
	} {
		t.Run(name, func(t *testing.T) {
			setenv(t, dsn)
			s, schema := newSink(t), orders(t, 1)
			_, _, err := s.Open(t.Context(), schema, term(schema, 0, 1))
			failure := processors.FailureOf(t.Context(), err)
			if err == nil || failure != processors.Unavailable {
				t.Fatalf("got %v, failure %d", err, failure)
			}
			errs := []error{err, s.Swap(t.Context(), schema)}
			for _, err := range s.Rows(t.Context(), schema, 0) {
				errs = append(errs, err)
			}
			_, err = s.Positions(t.Context(), schema)
			for _, err := range append(errs, err) {
				for ; err != nil; err = errors.Unwrap(err) {
					for _, text := range []string{err.Error(), fmt.Sprintf("%+v %#v", err, err)} {
						for _, hidden := range []string{secret, postgres.Password, url.QueryEscape(postgres.Password), "ush"} {
							if strings.Contains(text, hidden) {
								t.Errorf("the error tells %s: %s", hidden, text)
							}
						}
					}
				}
			}
			t.Log(errs[0])
		})
	}
	setenv(t, good)
	if _, err := pgsink.New(pgsink.Config{DSNEnv: good}); err == nil || strings.Contains(err.Error(), "esame") {
		t.Errorf("a connection string in place of its variable: %v", err)
	}
}

func TestServerAwayIsUnreachable(t *testing.T) {
	t.Parallel()
	server := postgres.Start(t)
	setenv(t, server.Database(t))
	s, schema := newSink(t), orders(t, 1)
	w := open(t, s, schema, 0, 1)
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := &project.Batch{UpTo: at(1), Put: []project.Row{order("s", "a", "ann", 1)}}
	for range processors.AttemptsMax + 2 {
		_, err := w.Write(t.Context(), b)
		if failure := processors.FailureOf(t.Context(), err); err == nil || failure != processors.Unavailable {
			t.Fatalf("got %v, failure %d", err, failure)
		}
	}
	if err := server.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	write(t, w, *b)

	// Who is told to end ends.
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the lease has ended"))
	if _, err := w.Write(ctx, &project.Batch{After: at(1), UpTo: at(2)}); processors.FailureOf(ctx, err) != processors.Canceled {
		t.Fatalf("got %v", err)
	}
}

// A worker that hangs in the middle of a transaction holds the lock of its position;
// the server ends it, and the next worker goes on.
func TestI5_HungWorkerDoesNotHoldUpItsSuccessor(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for 10s")
	}
	dsn := newDatabase(t)
	p, through := newProxy(t, dsn)
	schema := orders(t, 1)
	setenv(t, through)
	hung := newSink(t)
	w := open(t, hung, schema, 0, 1)
	stopped, ended := make(chan struct{}), make(chan struct{})
	p.plan(2, false, func() { // its rows are not sent any more, and its connection stays
		close(stopped)
		<-ended
	})
	result := make(chan error, 1)
	go func() {
		_, err := w.Write(context.Background(), &project.Batch{UpTo: at(1), Put: []project.Row{order("s", "a", "late", 1)}})
		result <- err
	}()
	<-stopped
	setenv(t, dsn)
	s := newSink(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	pauses := processors.NewPauses()
	for {
		_, _, err := s.Open(ctx, schema, term(schema, 0, 2))
		if err == nil {
			break
		}
		if processors.FailureOf(ctx, err) != processors.Unavailable || pauses.Wait(ctx, err) != nil {
			t.Fatal(err)
		}
	}
	close(ended)
	if err := <-result; err == nil {
		t.Fatal("the late write was done")
	}
	setenv(t, dsn)
	if _, err := w.Write(t.Context(), &project.Batch{UpTo: at(1)}); !errors.Is(err, processors.ErrFenced) {
		t.Fatalf("the late worker writes again: %v", err)
	}
	wantRows(t, s, schema)
}

// A server that answers writes from memory, by its configuration, is made to put
// them on disk: the pipeline's checkpoint rests on it.
func TestCommitsAreDurable(t *testing.T) {
	t.Parallel()
	server := postgres.Start(t, "fsync = off", "synchronous_commit = off", "wal_writer_delay = 10s")
	dsn := server.Database(t)
	setenv(t, dsn)
	s, schema := newSink(t), orders(t, 1)
	w := open(t, s, schema, 0, 1)
	row := order("s", "a", "ann", 1)
	write(t, w, project.Batch{UpTo: at(1), Put: []project.Row{row}})
	server.Restart(t)
	next := newSink(t)
	if _, p, err := next.Open(t.Context(), schema, term(schema, 0, 2)); err != nil || p != at(1) {
		t.Fatalf("at %v after a crash: %v", p, err)
	}
	wantRows(t, next, schema, row)
}

// Two values that the limits let through, and two that they do not, are taken and
// refused by the server.
func TestLimitsAreTheServers(t *testing.T) {
	t.Parallel()
	newDatabase(t)
	s, schema := newSink(t), orders(t, 1)
	schema.Tables[0].Columns = append(schema.Tables[0].Columns, column(t, "doc", "json"))
	w := open(t, s, schema, 0, 1)
	var position feed.Position
	noise := strings.Builder{} // that no compression makes shorter
	for i := range 2000 {
		fmt.Fprintf(&noise, "%x", uint32(i)*2654435761)
	}
	for _, c := range []struct{ id, doc string }{
		{"a", `1e131071`},
		{"b", `-1E-16383`},
		{"c", `{"a":"\\u0000 \ud834\udd1e"}`},
		{noise.String()[:2672], `1`},
		{"d", `1e131072`},
		{"e", `-1E-16384`},
		{"f", `{"\u0000":1}`},
		{noise.String()[:2800], `1`},
	} {
		r := order("s"+c.id[:1]+fmt.Sprint(len(c.id)), c.id, "ann", 1)
		r.Values = append(r.Values, project.JSONOf(c.doc))
		_, reason := s.CannotHold(schema, &r)
		next := feed.Position{LSN: position.LSN + 1}
		got := write(t, w, project.Batch{After: position, UpTo: next, Put: []project.Row{r}})
		position = next
		if (reason != "") != (len(got.Refused) == 1) {
			t.Errorf("%.20s %s: the limits say %q, the server %+v", c.id, c.doc, reason, got.Refused)
		}
	}
}
