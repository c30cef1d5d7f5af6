package parquetsink_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/processors/project/sinktest"
)

// quick commits at once, and logs nothing.
func quick() parquetsink.Config {
	return parquetsink.Config{CommitInterval: time.Nanosecond, Logger: slog.New(slog.DiscardHandler)}
}

// open opens a sink that is closed when the test ends.
func open(t testing.TB, store parquetsink.ObjectStore, cfg parquetsink.Config) *parquetsink.Sink {
	t.Helper()
	s, err := parquetsink.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func TestSink(t *testing.T) {
	t.Parallel()
	small := quick()
	small.FileRowsMax, small.BufferRowsMax, small.IndexBytesMax = 64, 300, 2000
	for name, cfg := range map[string]parquetsink.Config{"as configured by default": quick(), "small files": small} {
		t.Run(name, func(t *testing.T) {
			sinktest.Run(t, func(t testing.TB) sinktest.Open {
				t.Helper()
				dir := t.TempDir()
				return func(t testing.TB) sinktest.Sink {
					t.Helper()
					return open(t, parquetsink.NewDir(dir), cfg)
				}
			}, sinktest.Options{Quick: testing.Short() || cfg.FileRowsMax > 0})
		})
	}
}
