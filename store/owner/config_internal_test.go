package owner

import (
	"testing"

	"github.com/millrace/millrace/store/engine"
)

// Writes are refused before the engine can run out of disk.
func TestDiskReserveIsEnoughForTheEngine(t *testing.T) {
	if need := (engine.Config{}).Headroom(); DiskReserveDefault < need {
		t.Errorf("the reserve is %d MiB, the engine may need %d MiB", DiskReserveDefault>>20, need>>20)
	}
}
