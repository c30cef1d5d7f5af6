package leases

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/leases/bucket"
)

// Amend changes the checkpoint of a lease by whoever has something to add to it and does not hold it, such as what a holder
// before has done late. amend is called with the checkpoint as it is and returns what it is to be, or nil to leave it; perhaps
// several times, as others may write meanwhile. All else of the record stays, so that nobody takes or loses the lease by it.
//
// A holder that saves another checkpoint overwrites what was added: amend must leave checkpoints behind which more may come.
// Of a lease without a record, or without a checkpoint, nothing is changed. After an error the outcome is unknown, and Amend
// may be called again.
func (m *Manager) Amend(ctx context.Context, resource string, amend func(checkpoint []byte) []byte) error {
	if err := checkResource(resource); err != nil {
		return err
	}
	key := leaseKey(m.cfg.Group, resource)
	for try := 1; ; try++ {
		err := m.amend(ctx, key, amend)
		if !errors.Is(err, bucket.ErrMismatch) || try == amendTries {
			if err != nil {
				return fmt.Errorf("amend lease %s: %w", resource, err)
			}
			return nil
		}
	}
}

// amendTries is how often Amend looks again when another has written meanwhile. A holder writes once or twice a second.
const amendTries = 8

// amend tries once. The error is bucket.ErrMismatch if another has written since the record was read.
func (m *Manager) amend(ctx context.Context, key string, amend func([]byte) []byte) error {
	e, err := m.store.Get(ctx, key)
	switch {
	case errors.Is(err, bucket.ErrNotFound), err == nil && e.Deleted:
		return nil
	case err != nil:
		return err
	}
	rec, err := decodeLease(key, e.Value)
	if err != nil || len(rec.Checkpoint) == 0 {
		return err
	}
	checkpoint := amend(rec.Checkpoint)
	switch {
	case checkpoint == nil:
		return nil
	case len(checkpoint) > CheckpointBytesMax:
		return ErrCheckpointTooLarge
	}
	// The number of the write stays too: a holder that waits to learn what became of its last try takes the record for that
	// one, which it is but for the checkpoint, and goes on from there (writer.readBack).
	rec.Checkpoint = checkpoint
	_, err = m.store.Put(ctx, key, encode(rec), e.Revision)
	return err
}
