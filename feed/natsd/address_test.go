package natsd_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/feed/natsd/ports"
)

// A server tells where it listens as long as it does, and one that does not listen leaves alone
// what another has told.
func TestAddress_IsToldWhileTheServerListens(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "0.0.0.0"} {
		dir := t.TempDir()
		credentials := filepath.Join(dir, "credentials")
		s := open(t, natsd.Config{Dir: dir, Host: host, Port: ports.Free(t)})
		want := strings.Replace(s.ClientURL(), "0.0.0.0", "localhost", 1)
		check := func() {
			t.Helper()
			if at, err := natsd.ReadAddress(credentials); err != nil || at != want {
				t.Errorf("it is told to be at %q, %v; want %q", at, err, want)
			}
		}
		check()
		if err := s.Reopen(t.Context()); err != nil {
			t.Fatal(err)
		}
		check()
		open(t, natsd.Config{Dir: t.TempDir(), Credentials: credentials, DontListen: true}).Close()
		check()
		s.Close()
		if at, err := natsd.ReadAddress(credentials); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("closed, it is told to be at %q, %v", at, err)
		}
	}
}
