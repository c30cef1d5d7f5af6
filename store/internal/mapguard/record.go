package mapguard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Faults are pages of mapped files that could not be had.
type Faults struct {
	Reads  uint64 // pages that were read; they read as zeros since
	Writes uint64 // pages that were written for the first time; the file lacks them
}

// The form of a Record: a byte each for faults that read and that wrote, '1' if there were any.
const (
	recordReads = iota
	recordWrites
	recordLen
)

// Record is a file that tells the next process of this one's faults. It is written when it is
// opened and has its place on the disk from then on, so it can be written when the disk is full.
type Record struct {
	f    *os.File
	slot *slot
}

// OpenRecord opens the Record of that name, and makes it if it is not there. What it tells of
// already stays. Call Close.
func OpenRecord(name string) (*Record, error) {
	// Written through: what rests on a page that was replaced may be on the disk an instant
	// later, and the Record must be there before it.
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_SYNC, 0o600)
	if err != nil {
		return nil, err
	}
	r := &Record{f: f}
	info, err := f.Stat()
	if err == nil && info.Size() == 0 {
		err = r.Clear()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if s, ok := watch(int(f.Fd())); ok {
		r.slot = s
	}
	return r, nil
}

// Tell writes faults to the Record, for those that it does not tell of by itself: where nothing
// is guarded, or more Records are open than have a place.
func (r *Record) Tell(m Faults) error {
	known, err := ReadRecord(r.f.Name())
	if err != nil {
		return err
	}
	known.Reads |= m.Reads
	known.Writes |= m.Writes
	return r.write(known)
}

// Clear makes the Record tell of nothing until the next fault. One that is met meanwhile may be
// lost: compare Count.
func (r *Record) Clear() error {
	if r.slot != nil {
		defer rewatch(r.slot)
	}
	return r.write(Faults{})
}

func (r *Record) write(m Faults) error {
	text := []byte("00")
	if m.Reads > 0 {
		text[recordReads] = '1'
	}
	if m.Writes > 0 {
		text[recordWrites] = '1'
	}
	_, err := r.f.WriteAt(text, 0)
	return err
}

// Close ends the writing of faults to the Record. It may be called twice.
func (r *Record) Close() error {
	if r.slot != nil {
		unwatch(r.slot)
		r.slot = nil
	}
	if err := r.f.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// ReadRecord returns what the Record of that name tells of: numbers are 1 or 0. One that is not
// there tells of nothing.
func ReadRecord(name string) (Faults, error) {
	text, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0: // it was never written
		return Faults{}, nil
	case err != nil:
		return Faults{}, err
	case len(text) != recordLen:
		return Faults{}, fmt.Errorf("mapguard: %s holds %q", name, text)
	}
	var m Faults
	if text[recordReads] != '0' {
		m.Reads = 1
	}
	if text[recordWrites] != '0' {
		m.Writes = 1
	}
	return m, nil
}
