package memory

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// statm tells how much of mapped files is resident. Its file stays open: to open and close it
// is most of what a look costs, and there are twenty in a second.
type statm struct {
	file *os.File
	line [256]byte
}

// mapped returns how many bytes of mapped files are resident; 0 if that is not known.
func (s *statm) mapped() int64 {
	if s.file == nil {
		file, err := os.Open("/proc/self/statm")
		if err != nil {
			return 0
		}
		s.file = file
	}
	n, err := unix.Pread(int(s.file.Fd()), s.line[:], 0)
	if err != nil {
		return 0
	}
	// size resident shared text lib data dt, in pages
	fields := bytes.Fields(s.line[:n])
	if len(fields) < 3 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[2]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

func (s *statm) close() {
	if s.file != nil {
		_ = s.file.Close() // it was only read
		s.file = nil
	}
}
