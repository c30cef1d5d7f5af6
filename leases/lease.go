package leases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/leases/bucket"
)

// Lease is the state of one resource as the bucket has it, for operators and for [Balance].
type Lease struct {
	Group    string
	Resource string

	// Owner is the holder, "node/incarnation". It is empty when the lease is free. A dead
	// owner stays here until another takes the lease.
	Owner string

	// Last is the owner before the lease became free.
	Last string

	// User is the node that used the lease last, see [Held.User]; "" if that is not known.
	// Bound says that only this node can do something with it, see [Held.Bind].
	User  string
	Bound bool

	// Copied says that the group keeps copies of the resource's state, see [Manager.SetCopied]. Only [Balance] and
	// [Manager.Group] have it; it is not in the bucket.
	Copied bool

	// Host is where the owner runs.
	Host string

	// Epoch grows each time the lease is taken, and never goes back.
	Epoch uint64

	// Weight is the resource's cost as its last holder published it; an ordinary resource
	// has 1.
	Weight float64

	Checkpoint []byte

	// LastError is the last error that the work returned; Attempts counts the failures
	// in a row. [Held.Save] clears both, and so does the renewal after [Held.Works].
	LastError string
	Attempts  int

	// Acquired and Progress are the readings of the holder's wall clock when it took the
	// lease and when it last called [Held.Progress], as of the last renewal. They are for
	// people; no decision depends on them.
	Acquired, Progress time.Time

	// Revision is the bucket's revision of this state.
	Revision uint64

	// Removed says that the record was deleted. List leaves such leases out.
	Removed bool
}

func (r *leaseRecord) lease(group string, revision uint64) Lease {
	return Lease{
		Group: group, Resource: r.Resource, Owner: r.Owner, Last: r.Last, Host: r.Host,
		User: r.lastUse().Node, Bound: r.Bound, Epoch: r.Epoch, Weight: r.weight(), Checkpoint: r.Checkpoint,
		LastError: r.LastError, Attempts: r.Attempts,
		Acquired: unixMilli(r.Acquired), Progress: unixMilli(r.Progress), Revision: revision,
	}
}

// leaseOf decodes the entry of a lease's key.
func leaseOf(e *bucket.Entry) (Lease, error) {
	kind, group, name, ok := splitKey(e.Key)
	if !ok || kind != leasePrefix {
		return Lease{}, fmt.Errorf("leases: %s is not the key of a lease", e.Key)
	}
	if e.Deleted {
		return Lease{Group: group, Resource: unescape(name), Revision: e.Revision, Removed: true}, nil
	}
	record, err := decodeLease(e.Key, e.Value)
	if err != nil {
		return Lease{}, err
	}
	return record.lease(group, e.Revision), nil
}

func (r *leaseRecord) weight() float64 { return weightOrOne(r.Weight) }

func unixMilli(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// List returns the leases of all groups in the bucket, ordered by group and
// resource. A bucket that does not exist has none. Leases whose records cannot
// be read are left out and reported in the error beside the others.
func List(ctx context.Context, js jetstream.JetStream, name string) ([]Lease, error) {
	name = cmp.Or(name, DefaultBucket)
	b, err := bucket.Lookup(ctx, js, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := watched(ctx, b, leasePrefix+">")
	if _, refused := errors.AsType[*nats.APIError](err); refused {
		// A client that may only read gets no consumer that pushes. Each lease is read below.
		entries, err = map[string]bucket.Entry{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list leases in %s: %w", name, err)
	}
	// A watch lacks a key that is written while it begins, see package bucket. Keys has them all.
	keys, err := bucket.Keys(ctx, js, name, leasePrefix+">")
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if _, ok := entries[key]; ok {
			continue
		}
		e, err := b.Get(ctx, key)
		if errors.Is(err, bucket.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		entries[key] = e
	}
	var leases []Lease
	var errs []error
	for _, e := range entries {
		lease, err := leaseOf(&e)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !lease.Removed:
			leases = append(leases, lease)
		}
	}
	slices.SortFunc(leases, func(a, b Lease) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return leases, errors.Join(errs...)
}

// watched returns the entries, by key, that a watch delivers until it is ready. Of a key that
// changes meanwhile, and so comes twice, it returns the last entry.
func watched(ctx context.Context, b bucket.Store, pattern string) (map[string]bucket.Entry, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	updates, err := b.Watch(ctx, pattern)
	if err != nil {
		return nil, err
	}
	entries := map[string]bucket.Entry{}
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case u, ok := <-updates:
			switch {
			case !ok:
				return nil, errors.New("watch ended")
			case u.Ready:
				return entries, nil
			}
			entries[u.Key] = u.Entry
		}
	}
}

// Forget deletes the record of a resource, with its epoch and checkpoint. Call it only for
// a name that is never used again: the next lease of that name would begin at epoch 1,
// which fences refuse. It is no error if there is no record.
func Forget(ctx context.Context, js jetstream.JetStream, name, group, resource string) error {
	b, err := bucket.Lookup(ctx, js, cmp.Or(name, DefaultBucket))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return b.Delete(ctx, leaseKey(group, resource), 0)
}
