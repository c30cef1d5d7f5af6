package bucket_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/leases/bucket"
)

// lagging is a bucket of which the replica that answers has not seen the last writes.
type lagging struct {
	jetstream.KeyValue
	gets int // that it has not seen them for
}

func (l *lagging) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	if l.gets--; l.gets >= 0 {
		return nil, jetstream.ErrKeyNotFound
	}
	return l.KeyValue.Get(ctx, key)
}

// GetRevision does not find the last write either.
func (l *lagging) GetRevision(ctx context.Context, key string, revision uint64) (jetstream.KeyValueEntry, error) {
	if l.gets--; l.gets >= 0 {
		return nil, jetstream.ErrKeyNotFound
	}
	return l.KeyValue.GetRevision(ctx, key, revision)
}

// TestGet_AReplicaThatLagsIsNotBelieved reads a key that was written a moment ago.
func TestGet_AReplicaThatLagsIsNotBelieved(t *testing.T) {
	js := natstest.Start(t).JS
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b", Storage: jetstream.MemoryStorage, LimitMarkerTTL: time.Minute})
	must(t, err)
	for _, key := range []string{"there", "deleted", "purged"} {
		_, err := kv.Put(t.Context(), key, []byte("x"))
		must(t, err)
	}
	must(t, kv.Delete(t.Context(), "deleted"))
	must(t, kv.Purge(t.Context(), "purged"))

	e, err := bucket.Get(t.Context(), js, &lagging{kv, 3}, "there")
	must(t, err)
	if string(e.Value()) != "x" {
		t.Errorf("value %q", e.Value())
	}
	for _, key := range []string{"never", "deleted", "purged"} {
		if _, err := bucket.Get(t.Context(), js, &lagging{kv, 1 << 20}, key); !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Errorf("%s: %v", key, err)
		}
	}
	_, err = kv.Put(t.Context(), "there", []byte("y"))
	must(t, err)
	if e, err = bucket.Newest(t.Context(), js, &lagging{kv, 3}, "there"); err != nil || string(e.Value()) != "y" {
		t.Errorf("the newest value is %v, %v", e, err)
	}
	for _, key := range []string{"never", "deleted", "purged"} {
		if _, err := bucket.Newest(t.Context(), js, kv, key); !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Errorf("newest of %s: %v", key, err)
		}
	}
	entries, err := bucket.Entries(t.Context(), js, &lagging{kv, 3}, ">")
	must(t, err)
	if len(entries) != 1 || entries[0].Key() != "there" {
		t.Errorf("entries %v", entries)
	}
}
