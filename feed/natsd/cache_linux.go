package natsd

import (
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// dropCached makes the system forget what it holds in memory of the files below dir and
// takes for written. After a sync that failed that includes what never reached the
// disk: it would be read back as if it had, until the memory is needed, or the power
// fails. What is still to be written stays. It is done as far as it goes: where a file
// cannot be opened, the server says so itself.
func dropCached(dir string) {
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // the others are to be looked at all the same
		}
		f, err := os.Open(name)
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		return f.Close()
	})
}
