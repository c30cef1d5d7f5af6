// Package spare keeps a second copy of records that stand in a key-value bucket
// and nowhere else, such as those of pipelines, in a bucket of its own. If the
// first bucket is lost or damaged, its records are made again from here.
//
// The original always wins: a copy is made from it after it was written, and made
// again, until both are equal, by whoever calls Reconcile. So a copy may be older
// than its original by one write, and is never newer. A record that cannot be read
// is not copied: it would take the place of one that can. A copy goes when its
// original was deleted, which a bucket remembers; an original of which the bucket
// knows nothing was not deleted but lost.
//
// All methods may be called concurrently, by several processes too.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package spare

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/leases/bucket"
)

// Bucket is the name of the bucket of all copies.
const Bucket = "millrace_copies"

// keepTries bounds how often one copy is made anew while its original changes.
const keepTries = 10

// Source says what is copied.
type Source struct {
	// Bucket holds the originals, Prefix begins their keys.
	Bucket, Prefix string
	// Check returns an error if a record cannot be read.
	Check func(key string, record []byte) error
}

// Copies are the second copies of records.
type Copies struct {
	js       jetstream.JetStream
	replicas int
}

// New returns the copies in a NATS system. Their bucket is made with the first of
// them.
func New(js jetstream.JetStream, replicas int) *Copies {
	return &Copies{js: js, replicas: max(replicas, 1)}
}

// open returns the bucket and makes it if it is missing, which is no loss: it is
// filled again from the originals.
func (c *Copies) open(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := c.js.KeyValue(ctx, Bucket)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, err
	}
	kv, err = c.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: Bucket, Description: "Millrace: second copies of records", History: 5, Replicas: c.replicas,
	})
	if errors.Is(err, jetstream.ErrBucketExists) {
		return c.js.KeyValue(ctx, Bucket)
	}
	return kv, err
}

// Keep makes the copy of one record be as its original is now.
func (c *Copies) Keep(ctx context.Context, s Source, key string) error {
	copies, err := c.open(ctx)
	if err != nil {
		return fmt.Errorf("open bucket %s: %w", Bucket, err)
	}
	originals, err := c.js.KeyValue(ctx, s.Bucket)
	if err != nil {
		return fmt.Errorf("open bucket %s: %w", s.Bucket, err)
	}
	for range keepTries {
		again, err := keep(ctx, c.js, originals, copies, s, key)
		if err != nil {
			return fmt.Errorf("copy %s of bucket %s: %w", key, s.Bucket, err)
		}
		if !again {
			return nil
		}
	}
	return fmt.Errorf("copy %s of bucket %s: it changes too often; it is tried again", key, s.Bucket)
}

// keep makes one attempt; again says that another process was there meanwhile. The
// copy is read before its original: who wrote a copy in between had read an
// original that is as new or newer, and this write is then refused.
func keep(ctx context.Context, js jetstream.JetStream, originals, copies jetstream.KeyValue, s Source, key string) (again bool, err error) {
	last, err := bucket.Get(ctx, js, copies, key)
	there := err == nil
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, err
	}
	original, err := bucket.Get(ctx, js, originals, key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		deleted, err := wasDeleted(ctx, originals, key)
		if err != nil || !deleted || !there {
			return false, err
		}
		err = copies.Delete(ctx, key, jetstream.LastRevision(last.Revision()))
		return isMismatch(err), unlessMismatch(err)
	case err != nil:
		return false, err
	case there && string(last.Value()) == string(original.Value()):
		return false, nil
	}
	if err := s.Check(key, original.Value()); err != nil {
		return false, nil //nolint:nilerr // the copy is better than it; whoever opens the original says so
	}
	if there {
		_, err = copies.Update(ctx, key, original.Value(), last.Revision())
	} else {
		_, err = copies.Create(ctx, key, original.Value())
	}
	return isMismatch(err), unlessMismatch(err)
}

// wasDeleted says whether a bucket remembers that a key was deleted.
func wasDeleted(ctx context.Context, kv jetstream.KeyValue, key string) (bool, error) {
	history, err := kv.History(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil || len(history) == 0 {
		return false, err
	}
	return history[len(history)-1].Operation() != jetstream.KeyValuePut, nil
}

func isMismatch(err error) bool {
	return errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch)
}

func unlessMismatch(err error) error {
	if isMismatch(err) {
		return nil
	}
	return err
}

// Reconcile makes all copies of a source be as their originals are now.
func (c *Copies) Reconcile(ctx context.Context, s Source) error {
	keys, err := bucket.Keys(ctx, c.js, s.Bucket, s.Prefix+">")
	if err != nil {
		return err
	}
	// A key that the bucket does not know any more is not looked at: its copy is all
	// that is left of it.
	for _, key := range keys {
		if err := c.Keep(ctx, s, key); err != nil {
			return err
		}
	}
	return nil
}

// All returns the copies whose keys begin with prefix; none if there is no bucket.
func (c *Copies) All(ctx context.Context, prefix string) (map[string][]byte, error) {
	kv, err := c.js.KeyValue(ctx, Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", Bucket, err)
	}
	entries, err := bucket.Entries(ctx, c.js, kv, prefix+">")
	if err != nil {
		return nil, err
	}
	all := make(map[string][]byte, len(entries))
	for _, e := range entries {
		all[e.Key()] = e.Value()
	}
	return all, nil
}

// Lost returns the keys, without prefix, of which there are copies and of whose
// originals the bucket knows nothing, not even that they were deleted.
func (c *Copies) Lost(ctx context.Context, s Source) ([]string, error) {
	all, err := c.All(ctx, s.Prefix)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	known := map[string]bool{}
	keys, err := bucket.Keys(ctx, c.js, s.Bucket, s.Prefix+">")
	if err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, err
	}
	for _, key := range keys {
		known[key] = true
	}
	var lost []string
	for key := range all {
		if !known[key] {
			lost = append(lost, strings.TrimPrefix(key, s.Prefix))
		}
	}
	return lost, nil
}
