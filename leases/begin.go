package leases

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/leases/bucket"
)

// ErrHeld says that a lease is held by somebody who has saved no checkpoint.
var ErrHeld = errors.New("leases: somebody holds it")

// beginTries is how often Begin looks again when another has written meanwhile.
const beginTries = 4

// Begin gives a resource a record with a checkpoint, if it has none: whoever takes the lease goes on
// from there. A record that has a checkpoint stays as it is, whatever it says, so that several processes
// may begin one resource, and one of them may come late. It is called before the resource is among
// those that the group is to hold.
//
// The error is ErrHeld if the lease is held and nothing was saved yet. After any other error the outcome
// is unknown, and Begin may be called again.
func (m *Manager) Begin(ctx context.Context, resource string, checkpoint []byte) error {
	if err := checkResource(resource); err != nil {
		return err
	}
	if len(checkpoint) > CheckpointBytesMax {
		return ErrCheckpointTooLarge
	}
	key := leaseKey(m.cfg.Group, resource)
	for try := 1; ; try++ {
		err := m.begin(ctx, key, resource, checkpoint)
		if !errors.Is(err, bucket.ErrMismatch) || try == beginTries {
			if err != nil {
				return fmt.Errorf("begin lease %s: %w", resource, err)
			}
			return nil
		}
	}
}

// begin tries once. The error is bucket.ErrMismatch if another has written since the record was read.
func (m *Manager) begin(ctx context.Context, key, resource string, checkpoint []byte) error {
	rec, last := leaseRecord{Resource: resource}, uint64(0)
	e, err := m.store.Get(ctx, key)
	switch {
	case errors.Is(err, bucket.ErrNotFound), err == nil && e.Deleted:
	case err != nil:
		return err
	default:
		is, err := decodeLease(key, e.Value)
		if err != nil {
			return err
		}
		if len(is.Checkpoint) > 0 {
			return nil
		}
		if is.Owner != "" {
			return ErrHeld
		}
		rec, last = *is, e.Revision // its epoch must not go back
	}
	rec.Version, rec.Write, rec.Checkpoint = recordVersion, m.writes.Add(1), checkpoint
	_, err = m.store.Put(ctx, key, encode(&rec), last)
	return err
}
