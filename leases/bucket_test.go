package leases

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases/boottime"
	"github.com/millrace/millrace/leases/bucket"
)

// lagging is a bucket of which the replica that answers has seen no writes for some gets.
type lagging struct {
	jetstream.KeyValue
	gets int
}

func (l *lagging) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	if l.gets--; l.gets >= 0 {
		return nil, jetstream.ErrKeyNotFound
	}
	return l.KeyValue.Get(ctx, key)
}

func (l *lagging) GetRevision(ctx context.Context, key string, revision uint64) (jetstream.KeyValueEntry, error) {
	if l.gets--; l.gets >= 0 {
		return nil, jetstream.ErrKeyNotFound
	}
	return l.KeyValue.GetRevision(ctx, key, revision)
}

// TestAReplicaThatLagsLosesNoLease renews a lease after a renewal that was stored without a reply. What is stored is asked
// of a replica that does not know the key yet.
func TestAReplicaThatLagsLosesNoLease(t *testing.T) {
	t.Parallel()
	js := natstest.Start(t).JS
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b"})
	if err != nil {
		t.Fatal(err)
	}
	key := leaseKey("g", "r")
	rec := leaseRecord{Version: 1, Resource: "r", Owner: "a/1", Epoch: 1, Write: 1}
	first, err := kv.Create(t.Context(), key, encode(&rec))
	if err != nil {
		t.Fatal(err)
	}
	rec.Write = 2
	if _, err := kv.Update(t.Context(), key, encode(&rec), first); err != nil {
		t.Fatal(err)
	}
	number := uint64(2)
	w := writer{
		store: bucket.Of(js, &lagging{kv, 2}), holder: "a/1", key: key, rec: rec, revision: first,
		sent:   []try{{write: 2}},
		number: func() uint64 { number++; return number },
		clock:  boottime.Clock(), tryMax: poll.Most,
	}
	if _, err := w.put(t.Context(), func(*leaseRecord) {}); err != nil {
		t.Fatal(err)
	}
	if w.rec.Write != 4 { // write 3 was refused
		t.Errorf("write %d is stored, want 4", w.rec.Write)
	}
}
