package merge

import (
	"os"

	"golang.org/x/sys/unix"
)

// beginWriteback has the system begin to write a file, and waits for nothing: the disk has work while the next table is
// built, and the sync at the end finds little left. What does not reach the disk the sync tells.
func beginWriteback(f *os.File) {
	_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE) // not all file systems can
}
