package leases

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/leases/bucket"
)

// Errors of a bucketStore that callers distinguish. After any other error of Put or Delete the
// outcome is unknown.
var (
	errMismatch = errors.New("leases: revision has changed")
	errNotFound = errors.New("leases: no such key")
)

// entry is one state of one key.
type entry struct {
	Key      string
	Value    []byte
	Revision uint64    // grows with every write to the bucket
	Created  time.Time // the server's clock
	Deleted  bool
}

// update is an entry; or, if Ready, the sign that all entries which were there have been
// delivered.
type update struct {
	entry
	Ready bool
}

// bucketStore is the key-value store that leases need. Tests have one that fails and lags.
type bucketStore interface {
	// Get returns the last acknowledged state of key, errNotFound if it never existed; a
	// deleted key may be returned as such. While the leader of the bucket changes, its
	// answer may be an earlier state.
	Get(ctx context.Context, key string) (entry, error)

	// Put writes value if key's revision is last; 0 means that it does not exist
	// or is deleted. It returns the new revision. The error is errMismatch if
	// nothing was written for that reason.
	Put(ctx context.Context, key string, value []byte, last uint64) (uint64, error)

	// Delete removes key if its revision is last; 0 means whatever it is.
	Delete(ctx context.Context, key string, last uint64) error

	// Watch delivers the state of each key under the patterns, then Ready, then
	// changes, until ctx ends or the watch breaks; then the channel is closed.
	Watch(ctx context.Context, patterns ...string) (<-chan update, error)
}

// lease decodes an update of a lease's key.
func (e *entry) lease() (Lease, error) {
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

// natsBucket is a bucketStore on a JetStream key-value bucket.
type natsBucket struct {
	js jetstream.JetStream
	kv jetstream.KeyValue
}

// markerTTL is how long the bucket keeps the marker of a deleted key.
const markerTTL = 10 * time.Minute

func lookupBucket(ctx context.Context, js jetstream.JetStream, name string) (bucketStore, error) {
	kv, err := js.KeyValue(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("open lease bucket %s: %w", name, err)
	}
	return &natsBucket{js: js, kv: kv}, nil
}

// openBucket opens the bucket and creates it if it is missing.
func openBucket(ctx context.Context, js jetstream.JetStream, name string, replicas int) (bucketStore, error) {
	b, err := lookupBucket(ctx, js, name)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return b, err
	}
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket:         name,
		Description:    "Millrace: leases and members",
		History:        1,
		Storage:        jetstream.FileStorage,
		Replicas:       replicas,
		LimitMarkerTTL: markerTTL,
	})
	// Another process has created it meanwhile, perhaps with other replicas: it stays as it is.
	if errors.Is(err, jetstream.ErrBucketExists) {
		return lookupBucket(ctx, js, name)
	}
	if err != nil {
		return nil, fmt.Errorf("create lease bucket %s: %w", name, err)
	}
	return &natsBucket{js: js, kv: kv}, nil
}

// Get asks the leader. A replica that lags does not know a key that was written a moment ago,
// and who believed it would lose a lease that nobody has taken; nor does it tell whether a
// revision that is lower than a known one is merely an earlier one.
func (b *natsBucket) Get(ctx context.Context, key string) (entry, error) {
	e, err := bucket.Newest(ctx, b.js, b.kv, key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound): // ErrKeyDeleted too
		return entry{}, errNotFound
	case err != nil:
		return entry{}, fmt.Errorf("get %s: %w", key, err)
	}
	return entry{Key: key, Value: e.Value(), Revision: e.Revision(), Created: e.Created()}, nil
}

func (b *natsBucket) Put(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	var revision uint64
	var err error
	if last == 0 {
		revision, err = b.kv.Create(ctx, key, value) // also in place of a deleted key's marker
	} else {
		revision, err = b.kv.Update(ctx, key, value, last)
	}
	return revision, translate("put", key, err)
}

func (b *natsBucket) Delete(ctx context.Context, key string, last uint64) error {
	opts := []jetstream.KVDeleteOpt{}
	if last != 0 {
		opts = append(opts, jetstream.LastRevision(last))
	}
	// A purge leaves a marker that expires by itself. A bucket that somebody else made may
	// not allow that; then a marker stays that does not expire.
	err := b.kv.Purge(ctx, key, append(opts, jetstream.PurgeTTL(markerTTL))...)
	if isAPIError(err) && !isMismatch(err) {
		err = b.kv.Purge(ctx, key, opts...)
	}
	return translate("delete", key, err)
}

func isMismatch(err error) bool {
	return errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch)
}

func isAPIError(err error) bool {
	_, ok := errors.AsType[*jetstream.APIError](err)
	return ok
}

func translate(verb, key string, err error) error {
	switch {
	case err == nil:
		return nil
	case isMismatch(err):
		return fmt.Errorf("%s %s: %w", verb, key, errMismatch)
	default:
		return fmt.Errorf("%s %s: %w", verb, key, err)
	}
}

func (b *natsBucket) Watch(ctx context.Context, patterns ...string) (<-chan update, error) {
	watcher, err := b.kv.WatchFiltered(ctx, patterns)
	if err != nil {
		return nil, fmt.Errorf("watch %v: %w", patterns, err)
	}
	out := make(chan update)
	context.AfterFunc(ctx, func() { _ = watcher.Stop() }) // fails only if it has stopped
	go func() {
		defer close(out)
		for e := range watcher.Updates() {
			u := update{Ready: e == nil}
			if e != nil {
				u.entry = entry{
					Key: e.Key(), Value: e.Value(), Revision: e.Revision(), Created: e.Created(),
					Deleted: e.Operation() != jetstream.KeyValuePut,
				}
			}
			select {
			case out <- u:
			case <-ctx.Done(): // keep reading to the end: the client waits for room in Updates
			}
		}
	}()
	return out, nil
}
