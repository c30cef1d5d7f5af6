//go:build unix

package node

import "golang.org/x/sys/unix"

// freeBytes is what an unprivileged process may still use of a directory's disk;
// -1 if it cannot be told.
func freeBytes(dir string) int64 {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return -1
	}
	return int64(fs.Bavail) * int64(fs.Bsize) //nolint:unconvert // the types differ between systems
}
