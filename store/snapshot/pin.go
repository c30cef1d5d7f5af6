package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
)

// Pin keeps a snapshot for a holder until a time. The snapshot is not removed while one
// of its pins lasts, however many are newer.
type Pin struct {
	// Holder names who reads the snapshot; each has one pin of a partition at most.
	Holder string
	// ID is that of the snapshot, LSN the commit as of which it is.
	ID  string
	LSN feed.LSN
	// Items is how many items the snapshot holds.
	Items uint64
	Until time.Time
}

// Lasts tells whether the pin holds its snapshot at a time.
func (p *Pin) Lasts(now time.Time) bool { return now.Before(p.Until) }

// pinned is a Pin in a pointer.
type pinned struct {
	Holder   string    `json:"holder"`
	ID       string    `json:"id"`
	Manifest Sum       `json:"manifest"` // checksum of its bytes
	LSN      feed.LSN  `json:"lsn"`
	Items    uint64    `json:"items"`
	Until    time.Time `json:"until"`
}

func (p *pinned) pin() Pin { return Pin{p.Holder, p.ID, p.LSN, p.Items, p.Until} }

// pointerLocks let one goroutine of the process at a time change a pointer: the one that takes
// a snapshot, one that pins, one that releases. Each reads the pointer, changes it and writes
// it, in a store that may be far away, so the wait for the lock ends with ctx, which a mutex
// could not do. The lease keeps other processes away.
var pointerLocks sync.Map // pointerName to chan struct{}

func lockPointer(ctx context.Context, p feed.Partition) (unlock func(), err error) {
	lock, _ := pointerLocks.LoadOrStore(pointerName(p), make(chan struct{}, 1))
	token := lock.(chan struct{})
	select {
	case token <- struct{}{}:
		return func() { <-token }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// writePointer replaces the pointer of a partition. Pins that have lapsed are left out.
func writePointer(ctx context.Context, s Store, p feed.Partition, at *pointer) error {
	at.Pins = slices.DeleteFunc(at.Pins, func(p pinned) bool { return !time.Now().Before(p.Until) })
	// A release that does not know pins must not remove what they keep; without pins it may
	// go on with the pointer.
	at.Format = format
	if len(at.Pins) > 0 {
		at.Format = formatPins
	}
	data, err := json.Marshal(at)
	if err != nil {
		return err
	}
	if err := s.Replace(ctx, pointerName(p), data, at.revision); err != nil {
		return fmt.Errorf("partition %s: snapshots: %w", p, err)
	}
	return nil
}

// Pins returns the pins of a partition that last.
func Pins(ctx context.Context, s Store, p feed.Partition) ([]Pin, error) {
	at, err := readPointer(ctx, s, p)
	if err != nil {
		return nil, err
	}
	var all []Pin
	for i := range at.Pins {
		if pin := at.Pins[i].pin(); pin.Lasts(time.Now()) {
			all = append(all, pin)
		}
	}
	return all, nil
}

// PinSnapshot keeps a snapshot that the pointer names for a holder, and returns the pin. One that
// the holder has and that lasts is kept, of another snapshot too, until then at least: another
// owner may have made it meanwhile, and the holder been told. items is what Items.Count said
// of m. The error is ErrNotFound if the pointer does not name m any more.
func PinSnapshot(ctx context.Context, s Store, m *Manifest, holder string, items uint64, until time.Time) (Pin, error) {
	unlock, err := lockPointer(ctx, m.Partition)
	if err != nil {
		return Pin{}, err
	}
	defer unlock()
	at, err := readPointer(ctx, s, m.Partition)
	if err != nil {
		return Pin{}, err
	}
	if n := at.lasting(holder); n >= 0 {
		return at.extend(ctx, s, m.Partition, n, until)
	}
	n := slices.IndexFunc(at.Snapshots, func(n named) bool { return n.ID == m.id })
	if n < 0 {
		return Pin{}, fmt.Errorf("%w: snapshot %s of partition %s", ErrNotFound, m.id, m.Partition)
	}
	pin := pinned{holder, m.id, at.Snapshots[n].Manifest, m.LSN, items, until.UTC().Truncate(time.Millisecond)}
	at.Pins = append(slices.DeleteFunc(at.Pins, func(p pinned) bool { return p.Holder == holder }), pin)
	return pin.pin(), writePointer(ctx, s, m.Partition, at)
}

// ExtendPin lets a pin last until a time at least. The error is ErrNotFound if the holder has
// none that lasts: what it kept may be gone.
func ExtendPin(ctx context.Context, s Store, p feed.Partition, holder string, until time.Time) (Pin, error) {
	unlock, err := lockPointer(ctx, p)
	if err != nil {
		return Pin{}, err
	}
	defer unlock()
	at, err := readPointer(ctx, s, p)
	if err != nil {
		return Pin{}, err
	}
	n := at.lasting(holder)
	if n < 0 {
		return Pin{}, fmt.Errorf("%w: pin of %s in partition %s", ErrNotFound, holder, p)
	}
	return at.extend(ctx, s, p, n, until)
}

// lasting returns the index of a holder's pin, -1 if it has none that lasts.
func (at *pointer) lasting(holder string) int {
	now := time.Now()
	return slices.IndexFunc(at.Pins, func(p pinned) bool { return p.Holder == holder && now.Before(p.Until) })
}

// extend lets the pin at index n last until a time at least.
func (at *pointer) extend(ctx context.Context, s Store, p feed.Partition, n int, until time.Time) (Pin, error) {
	if until = until.UTC().Truncate(time.Millisecond); !at.Pins[n].Until.Before(until) {
		return at.Pins[n].pin(), nil
	}
	at.Pins[n].Until = until
	return at.Pins[n].pin(), writePointer(ctx, s, p, at)
}

// ReleasePins ends the pins of some holders, and removes what they alone have kept. Those
// that have none are no error.
func ReleasePins(ctx context.Context, s Store, p feed.Partition, released func(holder string) bool) error {
	unlock, err := lockPointer(ctx, p)
	if err != nil {
		return err
	}
	defer unlock()
	at, err := readPointer(ctx, s, p)
	if err != nil {
		return err
	}
	var ended []string
	at.Pins = slices.DeleteFunc(at.Pins, func(p pinned) bool {
		if !released(p.Holder) {
			return false
		}
		ended = append(ended, p.ID)
		return true
	})
	if len(ended) == 0 {
		return nil
	}
	// The pointer first: it must not name what is gone. A folder that a crash leaves here is named by nobody,
	// and the sweep behind the next snapshot removes it.
	if err := writePointer(ctx, s, p, at); err != nil {
		return err
	}
	for _, id := range ended {
		// These alone: another one that nobody names may be one that is being written.
		if at.names(id) {
			continue
		}
		if err := s.Remove(ctx, folder(p)+id+"/"); err != nil {
			return fmt.Errorf("partition %s: snapshots: %w", p, err)
		}
	}
	return nil
}

// Pinned returns the manifest of the snapshot that a holder has pinned. The error is
// ErrNotFound if the holder has none that lasts, *DamagedError, or that of the store.
func Pinned(ctx context.Context, s Store, p feed.Partition, holder string) (*Manifest, Pin, error) {
	at, err := readPointer(ctx, s, p)
	if err != nil {
		return nil, Pin{}, err
	}
	n := slices.IndexFunc(at.Pins, func(p pinned) bool { return p.Holder == holder })
	if n < 0 || !time.Now().Before(at.Pins[n].Until) {
		return nil, Pin{}, fmt.Errorf("%w: pin of %s in partition %s", ErrNotFound, holder, p)
	}
	m, err := readManifest(ctx, s, p, named{at.Pins[n].ID, at.Pins[n].Manifest})
	if err == nil && m.LSN != at.Pins[n].LSN {
		err = &DamagedError{p, m.folder() + "manifest.json", fmt.Sprintf("is of LSN %d, the pin says %d", m.LSN, at.Pins[n].LSN)}
	}
	return m, at.Pins[n].pin(), err
}

// readPointerOrNone is readPointer for a caller that writes the pointer anew. A damaged pointer
// is as good as none, because nothing can be loaded by it. One of a later format is an error.
func readPointerOrNone(ctx context.Context, s Store, p feed.Partition) (*pointer, error) {
	at, err := readPointer(ctx, s, p)
	if _, damaged := errors.AsType[*DamagedError](err); damaged {
		return &pointer{Format: format, revision: at.revision}, nil
	}
	return at, err
}
