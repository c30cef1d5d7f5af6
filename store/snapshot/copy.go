package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/millrace/millrace/feed"
)

// NewestOf returns the id and the manifest, as it lies in the store, of a partition's
// newest snapshot that is of a log, or of the one so many before it; "" if there is none.
func NewestOf(ctx context.Context, s Store, p feed.Partition, log feed.LogID, back int) (id string, manifest []byte, err error) {
	all, damage, err := Newest(ctx, s, p)
	if err != nil {
		return "", nil, err
	}
	for _, m := range all {
		if m.Log != log {
			continue
		}
		if back--; back < 0 {
			// As it was read: a manifest has one form, whoever writes it.
			manifest, err = json.Marshal(m)
			return m.id, manifest, err
		}
	}
	if len(all) == 0 {
		err = errors.Join(damage...)
	}
	return "", nil, err
}

// ReadPart returns a part, counted from 1, of a snapshot that the pointer names. The error
// is ErrNotFound if it does not name it any more, or has no such part.
func ReadPart(ctx context.Context, s Store, p feed.Partition, id string, part int) ([]byte, error) {
	at, err := readPointer(ctx, s, p)
	if err != nil {
		return nil, err
	}
	// The id comes from a client, and would become a part of a path. One that the pointer names
	// was made by newID and leads nowhere else.
	if !at.names(id) || part < 1 {
		return nil, fmt.Errorf("%w: snapshot %q", ErrNotFound, id)
	}
	m := Manifest{id: id, Partition: p}
	return s.Get(ctx, m.part(part-1))
}

// Decode reads a manifest that was copied. Its parts are asked of a Store under the names
// that they have in the one that it was copied from.
func Decode(p feed.Partition, id string, manifest []byte) (*Manifest, error) {
	m := &Manifest{id: id, Partition: p}
	if err := m.decode(manifest); err != nil {
		return nil, fmt.Errorf("partition %s: the manifest of snapshot %s %w", p, id, err)
	}
	return m, nil
}

// Check compares the bytes of the part with what the manifest says of it.
func (p *Part) Check(data []byte) error { return checkPart(p, data) }

// PartName is the name of a part, counted from 0, in the store that the snapshot lies in.
func (m *Manifest) PartName(i int) string { return m.part(i) }
