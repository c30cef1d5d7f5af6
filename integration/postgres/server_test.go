package postgres_test

import (
	"context"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/postgres"
)

// ask runs one statement by psql.
func ask(t *testing.T, dsn, statement string) (string, error) {
	t.Helper()
	psql, err := exec.LookPath("psql")
	if err != nil {
		t.Skip("psql is not installed")
	}
	out, err := exec.CommandContext(t.Context(), psql, "-XAtq", "-v", "ON_ERROR_STOP=1", dsn, "-c", statement).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func TestServerIsKilledAndComesBack(t *testing.T) {
	s := postgres.Start(t)
	dsn := s.Database(t)
	if out, err := ask(t, dsn, "create table t (a int); insert into t values (7)"); err != nil {
		t.Fatal(err, out)
	}
	s.Restart(t)
	if out, err := ask(t, dsn, "select a from t"); err != nil || out != "7" {
		t.Fatalf("%v: %q, want 7", err, out)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", u.Host); err == nil {
		_ = c.Close()
		t.Fatal("a stopped server is reached")
	}
	if err := s.Run(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if out, err := ask(t, dsn, "select a from t"); err != nil || out != "7" {
		t.Fatalf("%v: %q, want 7", err, out)
	}
}

func TestDatabasesAreApartAndAskForThePassword(t *testing.T) {
	s := postgres.Start(t)
	one, two := s.Database(t), s.Database(t)
	if out, err := ask(t, one, "create table t (a int)"); err != nil {
		t.Fatal(err, out)
	}
	if out, err := ask(t, two, "select * from t"); err == nil {
		t.Fatalf("a database sees the other's table: %s", out)
	}
	u, err := url.Parse(one)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(postgres.User, "wrong")
	if out, err := ask(t, u.String(), "select 1"); err == nil || !strings.Contains(out, "password authentication failed") {
		t.Fatalf("a wrong password is answered with %v: %s", err, out)
	}
}
