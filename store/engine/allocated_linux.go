package engine

import (
	"io/fs"
	"syscall"
)

// allocated returns how much disk a file takes. Logs of memtables are sparse.
func allocated(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}
