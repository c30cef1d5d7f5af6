package natsd_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd"
)

// A kill while a server tried whether it may write left an empty file among the accounts:
// the next server took it for one that it did not know, and was never healthy again.
func TestOpen_AfterAKillBesideAProbe(t *testing.T) {
	cfg := natsd.Config{Dir: t.TempDir(), DontListen: true}
	s, js := openStream(t, cfg)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LOG", Subjects: []string{"log"}}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	account := filepath.Join(cfg.Dir, "jetstream", "$G")
	probes := []string{filepath.Join(cfg.Dir, "jetstream", "_test_216941820"), filepath.Join(account, "streams", "LOG", "_test_4")}
	others := []string{filepath.Join(account, "streams", "LOG", "_test_case"), filepath.Join(account, "streams", "LOG", "_test_5")}
	for _, name := range append(probes, others...) {
		put(t, name, nil)
	}
	put(t, others[1], []byte("not empty"))
	s, js = openStream(t, cfg)
	defer s.Close()
	if err := s.Health(); err != nil {
		t.Error(err)
	}
	if _, err := js.Publish(t.Context(), "log", nil); err != nil {
		t.Error(err)
	}
	for _, name := range probes {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range others {
		if _, err := os.Lstat(name); err != nil {
			t.Error(err)
		}
	}
}
