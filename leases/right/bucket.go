package right

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/leases/bucket"
)

// Errors of a store that callers distinguish. After any other error of Put the outcome is unknown.
var (
	errMismatch = errors.New("revision has changed")
	errNotFound = errors.New("no such key")
)

// entry is one state of one key.
type entry struct {
	Key      string
	Value    []byte
	Revision uint64 // grows with every write to the bucket
	Deleted  bool
}

// update is an entry; or, if Ready, the sign that all entries which were there have been delivered.
type update struct {
	entry
	Ready bool
}

// store is the key-value store that keys need. Tests have one that fails and lags.
type store interface {
	// Get returns the last acknowledged state of key, errNotFound if there is none; a deleted key may be returned
	// as such. While the leader of the bucket changes, its answer may be an earlier state: it proves what was, and
	// not what is.
	Get(ctx context.Context, key string) (entry, error)

	// Put writes value if key's revision is last; 0 means that it does not exist or is deleted. It returns the new
	// revision. The error is errMismatch if nothing was written for that reason.
	Put(ctx context.Context, key string, value []byte, last uint64) (uint64, error)

	// Watch delivers the state of each key under the pattern, then Ready, then changes, until ctx ends or the watch
	// breaks; then the channel is closed.
	Watch(ctx context.Context, pattern string) (<-chan update, error)
}

// natsBucket is a store on a JetStream key-value bucket.
type natsBucket struct {
	js jetstream.JetStream
	kv jetstream.KeyValue
}

// markerTTL is how long the bucket keeps the marker of a deleted key.
const markerTTL = 10 * time.Minute

func lookupBucket(ctx context.Context, js jetstream.JetStream, name string) (store, error) {
	kv, err := js.KeyValue(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("right: open bucket %s: %w", name, err)
	}
	return &natsBucket{js: js, kv: kv}, nil
}

// openBucket opens the bucket and creates it if it is missing.
func openBucket(ctx context.Context, js jetstream.JetStream, name string, replicas int) (store, error) {
	b, err := lookupBucket(ctx, js, name)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return b, err
	}
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket:         name,
		Description:    "Millrace: the nodes' keys",
		History:        1,
		Storage:        jetstream.FileStorage, // a bucket in memory forgets who was deposed
		Replicas:       replicas,
		LimitMarkerTTL: markerTTL,
	})
	// Another process has created it meanwhile, perhaps with other replicas: it stays as it is.
	if errors.Is(err, jetstream.ErrBucketExists) {
		return lookupBucket(ctx, js, name)
	}
	if err != nil {
		return nil, fmt.Errorf("right: create bucket %s: %w", name, err)
	}
	return &natsBucket{js: js, kv: kv}, nil
}

// Get asks the leader. A replica that lags does not have what was written a moment ago.
func (b *natsBucket) Get(ctx context.Context, key string) (entry, error) {
	e, err := bucket.Newest(ctx, b.js, b.kv, key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound): // ErrKeyDeleted too
		return entry{}, errNotFound
	case err != nil:
		return entry{}, fmt.Errorf("get %s: %w", key, err)
	}
	return entry{Key: key, Value: e.Value(), Revision: e.Revision()}, nil
}

func (b *natsBucket) Put(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	var revision uint64
	var err error
	if last == 0 {
		revision, err = b.kv.Create(ctx, key, value) // also in place of a deleted key's marker
	} else {
		revision, err = b.kv.Update(ctx, key, value, last)
	}
	switch {
	case err == nil:
		return revision, nil
	case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		err = errMismatch
	}
	return 0, fmt.Errorf("put %s: %w", key, err)
}

func (b *natsBucket) Watch(ctx context.Context, pattern string) (<-chan update, error) {
	watcher, err := b.kv.Watch(ctx, pattern)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", pattern, err)
	}
	out := make(chan update)
	context.AfterFunc(ctx, func() { _ = watcher.Stop() }) // fails only if it has stopped
	go func() {
		defer close(out)
		for e := range watcher.Updates() {
			u := update{Ready: e == nil}
			if e != nil {
				u.entry = entry{
					Key: e.Key(), Value: e.Value(), Revision: e.Revision(),
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

// found is a key as it was read, or delivered by a watch.
type found struct {
	entry
	rec *record // nil: there is none, or it cannot be read
	err error   // why it cannot be read
}

func (f *found) missing() bool { return f.rec == nil && f.err == nil }

// read decodes an entry.
func read(e entry) *found {
	f := &found{entry: e}
	if !e.Deleted {
		f.rec, f.err = decode(e.Key, e.Value)
	}
	return f
}

// look reads a key. It is missing if the bucket says so.
func look(ctx context.Context, s store, key string) (*found, error) {
	e, err := s.Get(ctx, key)
	if errors.Is(err, errNotFound) {
		return &found{entry: entry{Key: key, Deleted: true}}, nil
	}
	if err != nil {
		return nil, err
	}
	e.Key = key
	return read(e), nil
}
