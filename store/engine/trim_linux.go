package engine

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// trimMapped takes the pages of mapped files out of the memory of the process. It
// is for shared mappings alone: what was written through them stays to be written.
func trimMapped(names map[string]bool) error {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range bytes.Lines(maps) {
		// 7f0c5ba00000-7f0c5ba02000 rw-s 00000000 08:01 4711          /data/engine/000007.sst
		at := bytes.IndexByte(line, '/')
		if at < 0 || !names[string(bytes.TrimSuffix(line[at:], []byte("\n")))] {
			continue
		}
		fields := bytes.Fields(line[:at])
		if len(fields) < 2 || len(fields[1]) != 4 || fields[1][3] != 's' {
			continue
		}
		from, to, _ := bytes.Cut(fields[0], []byte("-"))
		start, err := strconv.ParseUint(string(from), 16, 64)
		if err != nil {
			return fmt.Errorf("mapping %q: %w", line, err)
		}
		end, err := strconv.ParseUint(string(to), 16, 64)
		if err != nil {
			return fmt.Errorf("mapping %q: %w", line, err)
		}
		if _, _, failed := unix.Syscall(unix.SYS_MADVISE, uintptr(start), uintptr(end-start), unix.MADV_DONTNEED); failed != 0 {
			return fmt.Errorf("madvise %s: %w", line[at:], failed)
		}
	}
	return nil
}
