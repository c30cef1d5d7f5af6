package certificate

import (
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOpen_GoesOnWithTheOldPair opens a certificate that is due for renewal where nothing can be
// written: a directory has the place of the new file, which stops root too.
func TestOpen_GoesOnWithTheOldPair(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var logged strings.Builder
	cfg := Config{
		Section: "http", Dir: t.TempDir(), Hosts: []string{"localhost"}, Life: time.Hour,
		Now: func() time.Time { return now }, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	}
	first, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	blocked := filepath.Join(cfg.Dir, leafFile+".new")
	if err := os.MkdirAll(filepath.Join(blocked, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	now = now.Add(50 * time.Minute)
	second, err := Open(cfg)
	if err != nil {
		t.Fatalf("a certificate that is valid for ten minutes keeps the node from starting: %v", err)
	}
	if !second.pair.Load().Leaf.Equal(first.pair.Load().Leaf) || !strings.Contains(logged.String(), "the one before goes on") {
		t.Errorf("another certificate, or no word of it\n%s", logged.String())
	}
	if _, err := tls.LoadX509KeyPair(filepath.Join(cfg.Dir, leafFile), filepath.Join(cfg.Dir, leafKeyFile)); err != nil {
		t.Errorf("a renewal that failed took the old pair: %v", err)
	}
	// Where there is room again, it is renewed.
	if err := os.RemoveAll(blocked); err != nil {
		t.Fatal(err)
	}
	now = now.Add(renewAgain)
	if shown, err := second.get(nil); err != nil || shown.Leaf.Equal(first.pair.Load().Leaf) {
		t.Errorf("no renewal after the cause is gone: %v", err)
	}
	// One that is over is none to go on with.
	if err := os.MkdirAll(filepath.Join(blocked, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Hour)
	if _, err := Open(cfg); err == nil {
		t.Error("a certificate that is over is shown")
	}
}

// pairFor puts a new certificate for a host in place of the configured one. It returns it, and that
// of its authority.
func pairFor(t *testing.T, cfg *Config, now time.Time, life time.Duration) (cert, ca []byte) {
	t.Helper()
	a, err := newAuthority([]string{"localhost"}, now)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := a.makeLeaf([]string{"localhost"}, now, life)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, cfg.Cert, cert)
	replace(t, cfg.Key, key)
	return cert, a.pem
}

// replace puts another file in the place of one, as whoever renews certificates does.
func replace(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestConfigured_IsReadAgain replaces the files of a configured certificate, by good ones and by bad
// ones.
func TestConfigured_IsReadAgain(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var logged strings.Builder
	dir := t.TempDir()
	cfg := Config{
		Section: "http", Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"),
		Now: func() time.Time { return now }, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	}
	pairFor(t, &cfg, now, 24*time.Hour)
	c, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	shown := func() *tls.Certificate {
		t.Helper()
		now = now.Add(lookAgain)
		logged.Reset()
		pair, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	first := shown()
	if logged.Len() > 0 {
		t.Errorf("files that did not change are read again\n%s", logged.String())
	}
	cert, ca := pairFor(t, &cfg, now, 24*time.Hour)
	second := shown()
	if second.Leaf.Equal(first.Leaf) || !strings.Contains(logged.String(), "was read again") {
		t.Errorf("the certificate before goes on\n%s", logged.String())
	}
	replace(t, cfg.Cert, append(cert, ca...))
	if longer := shown(); len(longer.Certificate) != 2 || !strings.Contains(logged.String(), "was read again") {
		t.Errorf("the same leaf with a longer chain: the chain before goes on\n%s", logged.String())
	}
	good, err := os.ReadFile(cfg.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		name, says string
		change     func()
	}{
		{"a key of another", "does not match", func() { pairFor(t, &cfg, now, time.Hour); replace(t, cfg.Key, good) }},
		{"no file", "no such file", func() { _ = os.Remove(cfg.Cert) }},
		{"no PEM", "failed to find any PEM", func() { replace(t, cfg.Cert, []byte("none")) }},
		{"one that is over", "it is over since", func() { pairFor(t, &cfg, now.Add(-48*time.Hour), time.Hour) }},
		{"one of tomorrow", "it holds only from", func() { pairFor(t, &cfg, now.Add(48*time.Hour), time.Hour) }},
	} {
		bad.change()
		if got := shown(); !got.Leaf.Equal(second.Leaf) || !strings.Contains(logged.String(), bad.says) || !strings.Contains(logged.String(), "the one before goes on") {
			t.Errorf("%s: another certificate, or no word of it\n%s", bad.name, logged.String())
		}
		if shown(); logged.Len() > 0 {
			t.Errorf("%s: told at each look\n%s", bad.name, logged.String())
		}
	}
	// The one of tomorrow is taken when it holds, though its files do not change.
	now = now.Add(48 * time.Hour)
	if third := shown(); third.Leaf.Equal(second.Leaf) {
		t.Errorf("the certificate before goes on\n%s", logged.String())
	}
}
