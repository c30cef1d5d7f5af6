package snapshot

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
)

// The versions of what this package writes: 1, but for a pointer with pins.
const (
	format     = 1
	formatPins = 2
)

// kept is how many snapshots of a partition are kept: a bad newest one must not cost what
// the one before it still holds.
const kept = 2

// Sum is an xxHash64, in JSON 16 hexadecimal digits.
type Sum uint64

// MarshalText returns the digits.
func (s Sum) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(s)), nil }

// UnmarshalText reads what MarshalText returns, and nothing else.
func (s *Sum) UnmarshalText(text []byte) error {
	var b [8]byte
	if n, err := hex.Decode(b[:], text[:min(len(text), 16)]); err != nil || n != 8 || len(text) != 16 {
		return fmt.Errorf("%.40q is no checksum of 16 hexadecimal digits", text)
	}
	*s = 0
	for _, c := range b {
		*s = *s<<8 | Sum(c)
	}
	return nil
}

// Manifest says what a snapshot is of, and of what it is made.
type Manifest struct {
	Format    int            `json:"format"`
	Layout    int            `json:"layout"`
	Partition feed.Partition `json:"-"`
	Of        string         `json:"partition"` // as Partition.String prints it
	Log       feed.LogID     `json:"log"`
	LSN       feed.LSN       `json:"lsn"`
	Checksum  Sum            `json:"checksum"` // of the commit at LSN
	Time      int64          `json:"time"`     // of that commit, unix ms
	Epoch     uint64         `json:"epoch"`
	Owner     string         `json:"owner"`
	Settings  []byte         `json:"settings"`
	// LogBytes is the size of the log's stream when the snapshot was taken.
	LogBytes uint64    `json:"logBytes"`
	Taken    time.Time `json:"taken"`
	Entries  uint64    `json:"entries"`
	Bytes    uint64    `json:"bytes"` // of the entries' keys and values
	Digest   Sum       `json:"digest"`
	Parts    []Part    `json:"parts"`

	id    string
	items uint64 // if it was written by this process, how many items it holds
}

// Part is an object with a part of the entries.
type Part struct {
	Bytes    uint64 `json:"bytes"`
	Checksum Sum    `json:"checksum"`
	Entries  uint64 `json:"entries"`
}

// ID names the snapshot among those of its partition.
func (m *Manifest) ID() string { return m.id }

// Items is how many items a snapshot holds that Write has returned. Of another it is not
// known before OpenItems has counted them.
func (m *Manifest) Items() uint64 { return m.items }

// Stored is the size of the parts, in bytes.
func (m *Manifest) Stored() (bytes uint64) {
	for i := range m.Parts {
		bytes += m.Parts[i].Bytes
	}
	return bytes
}

// State is the state of the engine that the snapshot was taken from.
func (m *Manifest) State() engine.State {
	return engine.State{
		Log: m.Log, Applied: m.LSN, Sum: feed.Checksum(m.Checksum), Time: m.Time, Epoch: m.Epoch, Owner: m.Owner, Settings: m.Settings,
	}
}

// manifestFile is the name of the manifest in the folder of its snapshot.
const manifestFile = "manifest.json"

func folder(p feed.Partition) string { return fmt.Sprintf("%s/%d/", p.Container, p.Number) }

func (m *Manifest) folder() string { return folder(m.Partition) + m.id + "/" }

func (m *Manifest) part(i int) string { return fmt.Sprintf("%s%06d", m.folder(), i+1) }

// lsnDigits is how many digits of its LSN begin the id of a snapshot, so that ids are in its
// order.
const lsnDigits = 20

// passed reports whether a folder that the pointer does not name will never be named: it is
// older than some snapshot that is named, and the pointer never goes back. A newer one may be
// what another process has read back and is about to name.
func (at *pointer) passed(id string) bool {
	if len(id) < lsnDigits || strings.Trim(id[:lsnDigits], "0123456789") != "" {
		return true // no snapshot's
	}
	return slices.ContainsFunc(at.Snapshots, func(n named) bool {
		return len(n.ID) >= lsnDigits && id[:lsnDigits] < n.ID[:lsnDigits]
	})
}

func newID(lsn feed.LSN) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%020d-%x", uint64(lsn), b)
}

// pointer names the newest snapshots of a partition, the newest first, and those that are
// pinned.
type pointer struct {
	Format    int      `json:"format"`
	Snapshots []named  `json:"snapshots"`
	Pins      []pinned `json:"pins,omitempty"`

	revision Revision // as it was read; what replaces it must be made of this one
}

type named struct {
	ID       string `json:"id"`
	Manifest Sum    `json:"manifest"` // checksum of its bytes
}

func (at *pointer) names(id string) bool {
	return slices.ContainsFunc(at.Snapshots, func(n named) bool { return n.ID == id }) ||
		slices.ContainsFunc(at.Pins, func(p pinned) bool { return p.ID == id && time.Now().Before(p.Until) })
}

func pointerName(p feed.Partition) string { return folder(p) + "newest.json" }

// DamagedError says that a snapshot, or the pointer to them, is not what was written.
type DamagedError struct {
	Partition feed.Partition
	Name      string // of the object, in the store
	Reason    string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("partition %s: snapshot: %s %s", e.Partition, e.Name, e.Reason)
}

// readPointer returns the pointer of a partition, an empty one if it has none. The error
// is *DamagedError, or that of the store; what is damaged has its revision.
func readPointer(ctx context.Context, s Store, p feed.Partition) (*pointer, error) {
	data, revision, err := s.Look(ctx, pointerName(p))
	if errors.Is(err, ErrNotFound) {
		return &pointer{Format: format}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("partition %s: snapshots: %w", p, err)
	}
	at := &pointer{revision: revision}
	// Before it is read strictly: to a later format belong members that this release does not know, and they
	// would count as damage. Whoever takes it for damaged writes it anew, without what they say.
	if json.Unmarshal(data, at) == nil && at.Format > formatPins {
		return nil, fmt.Errorf("partition %s: snapshots: %s has format %d and this program reads up to %d; use the program that wrote it",
			p, pointerName(p), at.Format, formatPins)
	}
	if err := DecodeJSON(data, at, true); err != nil {
		return &pointer{revision: revision}, &DamagedError{p, pointerName(p), "cannot be read: " + err.Error()}
	}
	if at.Format < format || at.Format == format && len(at.Pins) > 0 || len(at.Snapshots) > kept {
		return &pointer{revision: revision}, &DamagedError{p, pointerName(p), fmt.Sprintf("has format %d, %d snapshots and %d pins; formats %d and, with pins, %d are known, with at most %d snapshots",
			at.Format, len(at.Snapshots), len(at.Pins), format, formatPins, kept)}
	}
	return at, nil
}

// readManifest returns the manifest of a named snapshot. The error is *DamagedError, or
// that of the store.
func readManifest(ctx context.Context, s Store, p feed.Partition, n named) (*Manifest, error) {
	m := &Manifest{id: n.ID, Partition: p}
	name := m.folder() + manifestFile
	data, err := s.Get(ctx, name)
	if errors.Is(err, ErrNotFound) {
		return nil, &DamagedError{p, name, "is gone"}
	}
	if err != nil {
		return nil, fmt.Errorf("partition %s: snapshot %s: %w", p, n.ID, err)
	}
	if sum := Sum(xxhash.Sum64(data)); sum != n.Manifest {
		return nil, &DamagedError{p, name, fmt.Sprintf("has checksum %016x, the pointer says %016x", uint64(sum), uint64(n.Manifest))}
	}
	if err := m.decode(data); err != nil {
		return nil, &DamagedError{p, name, err.Error()}
	}
	return m, nil
}

// decode reads what Write has written of the partition of m.
func (m *Manifest) decode(data []byte) error {
	if err := DecodeJSON(data, m, true); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	if m.Format != format || m.Layout != engine.LayoutVersion || m.Of != m.Partition.String() {
		return fmt.Errorf("is of partition %s in format %d with keys of layout %d; this program reads format %d with layout %d",
			m.Of, m.Format, m.Layout, format, engine.LayoutVersion)
	}
	return nil
}

// DecodeJSON reads one JSON value. A strict one may have known members only: a later program
// that adds members raises the format.
func DecodeJSON(data []byte, into any, strict bool) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something stands behind it")
	}
	return nil
}

// Newest returns the manifests of a partition's snapshots, the newest first; none if
// there are none. damage tells of those that cannot be read, and err that the store
// cannot.
func Newest(ctx context.Context, s Store, p feed.Partition) (all []*Manifest, damage []error, err error) {
	at, err := readPointer(ctx, s, p)
	if _, damaged := errors.AsType[*DamagedError](err); damaged {
		return nil, []error{err}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, n := range at.Snapshots {
		m, err := readManifest(ctx, s, p, n)
		if _, damaged := errors.AsType[*DamagedError](err); damaged {
			damage = append(damage, err)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		all = append(all, m)
	}
	return all, damage, nil
}

// Remove removes all snapshots of a partition.
func Remove(ctx context.Context, s Store, p feed.Partition) error {
	// The pointer goes first: it must not name what is half removed.
	if err := s.Remove(ctx, pointerName(p)); err != nil {
		return fmt.Errorf("partition %s: remove its snapshots: %w", p, err)
	}
	if err := s.Remove(ctx, folder(p)); err != nil {
		return fmt.Errorf("partition %s: remove its snapshots: %w", p, err)
	}
	return nil
}
