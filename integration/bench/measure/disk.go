//go:build linux

package measure

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
)

// DiskOf returns the bytes of the blocks that are allocated to the files below dir, as du
// counts them: a file with holes counts for less than its length, one with several names once.
// A file that is removed meanwhile does not count.
func DiskOf(dir string) (bytes int64, err error) {
	type file struct{ device, inode uint64 }
	seen := map[file]bool{}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil {
			var info fs.FileInfo
			if info, err = entry.Info(); err == nil {
				stat := info.Sys().(*syscall.Stat_t)
				if at := (file{stat.Dev, stat.Ino}); !seen[at] {
					seen[at] = true
					bytes += stat.Blocks * 512
				}
			}
		}
		if errors.Is(err, fs.ErrNotExist) && path != dir {
			return nil
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sum up the blocks below %s: %w", dir, err)
	}
	return bytes, nil
}
