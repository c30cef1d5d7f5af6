package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
)

// Start starts a server in a directory of its own for the test, which is skipped
// if PostgreSQL is not installed. Both go with the test.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	s, err := Open(tb.Context(), Config{Settings: settings})
	if errors.Is(err, ErrMissing) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// Database makes a new, empty database for the test and returns how to connect to
// it.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	dsn, err := s.CreateDatabase(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return dsn
}

// Restart kills the server and starts it again.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	if err := errors.Join(s.Kill(), s.Run(context.WithoutCancel(tb.Context()))); err != nil {
		tb.Fatal(err)
	}
}

// named counts the variables that Env made.
var named atomic.Int64

// Env puts a connection string into a variable of the environment that no other test
// has, so that tests can run beside each other, and returns its name.
func Env(tb testing.TB, dsn string) (name string) {
	tb.Helper()
	name = fmt.Sprintf("MILLRACE_TEST_%d_DSN", named.Add(1))
	if err := os.Setenv(name, dsn); err != nil { //nolint:usetesting // Setenv of a test refuses one that runs beside others
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.Unsetenv(name) })
	return name
}
