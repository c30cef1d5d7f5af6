package memory

import (
	"bytes"
	"os"
	"strconv"
)

// mapped returns how many bytes of mapped files are resident; 0 if that is not known.
func mapped() int64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	// size resident shared text lib data dt, in pages
	fields := bytes.Fields(statm)
	if len(fields) < 3 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[2]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
