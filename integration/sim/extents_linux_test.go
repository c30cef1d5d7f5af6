package sim

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// extent returns where the next bytes of a file are, from at on, that are no hole; none are
// where both ends are the same. An engine's files are holes for the most part: a log of a
// memtable is mapped with 16 MiB, of which a run writes some thousand bytes.
func extent(f *os.File, at int64) (from, to int64, err error) {
	if from, err = f.Seek(at, unix.SEEK_DATA); errors.Is(err, syscall.ENXIO) {
		return at, at, nil
	}
	if err != nil {
		return 0, 0, err
	}
	to, err = f.Seek(from, unix.SEEK_HOLE)
	return from, to, err
}
