package natsd

import (
	"testing"
	"time"
)

// The durability that users get without asking: acknowledged means on disk.
func TestI2_EveryAppendIsSyncedByDefault(t *testing.T) {
	for _, c := range []struct {
		name     string
		interval time.Duration
		always   bool
	}{
		{"by default", 0, true},
		{"only if the operator says so not", time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Open(t.Context(), Config{Dir: t.TempDir(), DontListen: true, SyncInterval: c.interval})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			// What the running server says, not what it was told.
			if got := s.running.JetStreamConfig().SyncAlways; got != c.always {
				t.Errorf("sync always %v, want %v", got, c.always)
			}
		})
	}
}
