package bucket

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Errors of a Store that callers distinguish. After any other error of Put, or of Bucket.Delete, the outcome is unknown.
var (
	ErrMismatch = errors.New("revision has changed")
	ErrNotFound = errors.New("no such key")
)

// Entry is one state of one key.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64    // grows with every write to the bucket
	Created  time.Time // the server's clock
	Deleted  bool
}

// Update is an Entry; or, if Ready, the sign that all entries which were there have been
// delivered.
type Update struct {
	Entry
	Ready bool
}

// Store is a key-value store as leases and rights need it. Tests have one that fails and lags.
type Store interface {
	// Get returns the last acknowledged state of key, ErrNotFound if there is none; a deleted key may be returned as
	// such. While the leader of the bucket changes, its answer may be an earlier state: it proves what was, and not
	// what is.
	Get(ctx context.Context, key string) (Entry, error)

	// Put writes value if key's revision is last; 0 means that it does not exist or is deleted. It returns the new
	// revision. The error is ErrMismatch if nothing was written for that reason.
	Put(ctx context.Context, key string, value []byte, last uint64) (uint64, error)

	// Watch delivers the state of each key under the patterns, then Ready, then
	// changes, until ctx ends or the watch breaks; then the channel is closed.
	Watch(ctx context.Context, patterns ...string) (<-chan Update, error)
}

// Bucket is a Store on a JetStream key-value bucket.
type Bucket struct {
	js jetstream.JetStream
	kv jetstream.KeyValue
}

// Of returns kv, a bucket of js, as a Bucket.
func Of(js jetstream.JetStream, kv jetstream.KeyValue) *Bucket { return &Bucket{js: js, kv: kv} }

// markerTTL is how long the bucket keeps the marker of a deleted key.
const markerTTL = 10 * time.Minute

// Lookup returns a bucket; the error is jetstream.ErrBucketNotFound if there is none.
func Lookup(ctx context.Context, js jetstream.JetStream, name string) (*Bucket, error) {
	kv, err := js.KeyValue(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", name, err)
	}
	return Of(js, kv), nil
}

// Open returns a bucket, and creates it if it is missing, in files: one in memory forgets who held what.
func Open(ctx context.Context, js jetstream.JetStream, name, description string, replicas int) (*Bucket, error) {
	b, err := Lookup(ctx, js, name)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return b, err
	}
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket:         name,
		Description:    description,
		History:        1,
		Storage:        jetstream.FileStorage,
		Replicas:       replicas,
		LimitMarkerTTL: markerTTL,
	})
	// Another process has created it meanwhile, perhaps with other replicas: it stays as it is.
	if errors.Is(err, jetstream.ErrBucketExists) {
		return Lookup(ctx, js, name)
	}
	if err != nil {
		return nil, fmt.Errorf("create bucket %s: %w", name, err)
	}
	return Of(js, kv), nil
}

// Get asks the leader. A replica that lags does not know a key that was written a moment ago,
// and who believed it would lose a lease that nobody has taken; nor does it tell whether a
// revision that is lower than a known one is merely an earlier one.
func (b *Bucket) Get(ctx context.Context, key string) (Entry, error) {
	e, err := Newest(ctx, b.js, b.kv, key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound): // ErrKeyDeleted too
		return Entry{}, ErrNotFound
	case err != nil:
		return Entry{}, fmt.Errorf("get %s: %w", key, err)
	}
	return Entry{Key: key, Value: e.Value(), Revision: e.Revision(), Created: e.Created()}, nil
}

// Put is one request; a reply that is lost is not asked for again.
func (b *Bucket) Put(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	var revision uint64
	var err error
	if last == 0 {
		revision, err = b.kv.Create(ctx, key, value) // also in place of a deleted key's marker
	} else {
		revision, err = b.kv.Update(ctx, key, value, last)
	}
	return revision, translate("put", key, err)
}

// Delete removes key if its revision is last; 0 means whatever it is. It leaves a marker that expires by itself. A bucket that somebody else made may not allow that; then a marker
// stays that does not expire.
func (b *Bucket) Delete(ctx context.Context, key string, last uint64) error {
	opts := []jetstream.KVDeleteOpt{}
	if last != 0 {
		opts = append(opts, jetstream.LastRevision(last))
	}
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
		return fmt.Errorf("%s %s: %w", verb, key, ErrMismatch)
	default:
		return fmt.Errorf("%s %s: %w", verb, key, err)
	}
}

// Watch has one consumer for all the patterns.
func (b *Bucket) Watch(ctx context.Context, patterns ...string) (<-chan Update, error) {
	watcher, err := b.kv.WatchFiltered(ctx, patterns)
	if err != nil {
		return nil, fmt.Errorf("watch %v: %w", patterns, err)
	}
	out := make(chan Update)
	context.AfterFunc(ctx, func() { _ = watcher.Stop() }) // fails only if it has stopped
	go func() {
		defer close(out)
		for e := range watcher.Updates() {
			u := Update{Ready: e == nil}
			if e != nil {
				u.Entry = Entry{
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
