package engine

import (
	"bytes"
	"os"
	"path/filepath"
)

const (
	// bootName is a file that is there while the DB is open. It names the life of the
	// machine in which the DB was opened.
	bootName = "BOOT"

	// bootSource is where Linux tells the life of the machine.
	bootSource = "/proc/sys/kernel/random/boot_id"
)

// noteBoot records in which life of the machine the DB in dir is open, and tells
// whether it was the same one when the DB was not closed last: then the process was
// killed, and the machine still had what had been written.
func noteBoot(dir string) (same bool) {
	now, err := os.ReadFile(bootSource)
	if err != nil {
		return false // another system; nothing is known of it
	}
	name := filepath.Join(dir, bootName)
	before, err := os.ReadFile(name)
	same = err == nil && bytes.Equal(before, now)
	if err := os.WriteFile(name, now, 0o600); err != nil {
		_ = os.Remove(name) // it must not tell of an earlier life
	}
	return same
}

// forgetBoot takes back what noteBoot recorded: what was written since the last good
// sync cannot be relied on.
func forgetBoot(dir string) { _ = os.Remove(filepath.Join(dir, bootName)) }

// Kept tells whether all that Found tells of is there though the partition was not
// closed in order: the process was killed and the machine went on, so what had been
// written is in its files or in its memory of them. After a loss of power, or a sync
// that failed, it is not known, and after Clear nothing of it is there.
func (p *Partition) Kept() bool { return p.d.kept && !p.cleared.Load() }
