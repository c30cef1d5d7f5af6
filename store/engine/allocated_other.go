//go:build !linux

package engine

import "io/fs"

// allocated returns the size of a file, which for the logs of memtables is more
// than they take.
func allocated(info fs.FileInfo) int64 { return info.Size() }
