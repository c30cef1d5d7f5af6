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
	if !second.pair.Leaf.Equal(first.pair.Leaf) || !strings.Contains(logged.String(), "the one before goes on") {
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
	if shown, err := second.get(nil); err != nil || shown.Leaf.Equal(first.pair.Leaf) {
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
