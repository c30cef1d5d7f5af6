package owner

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/store/engine"
)

// Writes are refused before the engine can run out of disk.
func TestDiskReserveIsEnoughForTheEngine(t *testing.T) {
	if need := (engine.Config{}).Headroom(); DiskReserveDefault < need {
		t.Errorf("the reserve is %d MiB, the engine may need %d MiB", DiskReserveDefault>>20, need>>20)
	}
}

// What would leave many logs with little in each is refused, and what cannot be split at all.
func TestConfig_SplitBytes(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"never", Config{}, ""},
		{"the least", Config{SplitBytes: splitBytesMin}, ""},
		{"less than that", Config{SplitBytes: splitBytesMin - 1}, "at least 64 MiB"},
		{"negative", Config{SplitBytes: -1}, "store.splitBytes is -1"},
		{"without snapshots", Config{SplitBytes: 1 << 30, Snapshots: SnapshotConfig{Store: SnapshotsOff}}, "store.snapshots.store is off"},
	} {
		_, err := c.cfg.withDefaults()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestSizeLook_Due(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name string
		look sizeLook
		held uint64
		want bool
	}{
		{"never tried", sizeLook{}, 100, true},
		{"tried a moment ago", sizeLook{held: 100, next: now.Add(time.Minute)}, 149, false},
		{"grown by half since", sizeLook{held: 100, next: now.Add(time.Minute)}, 150, true},
		{"tried long ago", sizeLook{held: 100, next: now}, 100, true},
	} {
		if got := c.look.due(c.held, now); got != c.want {
			t.Errorf("%s: due %t", c.name, got)
		}
	}
}
