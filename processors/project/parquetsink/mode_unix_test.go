//go:build unix

package parquetsink_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/millrace/millrace/processors/project/parquetsink"
)

// What the files hold is for the user and the group, whatever the process's umask
// would let others read.
func TestFilesAreNotForEverybody(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	dir := filepath.Join(t.TempDir(), "analytics")
	openWriter(t, open(t, parquetsink.NewDir(dir), quick()), 0, 1)
	files := 0
	if err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&os.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o640)
		if entry.IsDir() {
			want = 0o750
		} else {
			files++
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has %o, want %o", path, got, want)
		}
		return nil
	}); err != nil || files == 0 {
		t.Fatalf("%d files, %v", files, err)
	}
}
