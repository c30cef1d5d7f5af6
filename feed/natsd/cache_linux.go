package natsd

import (
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// dropCached makes the system drop the pages of files below dir that it holds in memory and
// takes for written. After a failed sync these include pages that never reached the disk:
// reading would return them as if they had, until their memory is needed or the power
// fails. Pages that are still to be written stay. Errors are passed over: a file that
// cannot be opened here cannot be opened by the server either, which reports it.
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
