package engine

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// fileSystemOf tells what is to be known of the file system of dir.
func fileSystemOf(dir string) (fs fileSystem) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fs
	}
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC: // the first is of ext2 and ext3 too
		fs.inPlace = true
	case unix.TMPFS_MAGIC:
		fs.inPlace, fs.holesTakeRoom = true, true
	}
	return fs
}

// freeBytes is the space that an unprivileged process may still use.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}
