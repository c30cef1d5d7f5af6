package bucket_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases/bucket"
)

// TestWatch_UnreadableEntry writes a value and behind it one that cannot be read. The first is
// told of all the same, and of the second the former value.
func TestWatch_UnreadableEntry(t *testing.T) {
	js := natstest.Start(t).JS
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b", Storage: jetstream.MemoryStorage})
	must(t, err)
	put := func(key, value string) {
		_, err := kv.Put(t.Context(), key, []byte(value))
		must(t, err)
	}
	put("k.a", "1")
	put("k.b", "1")
	put("other", "1")
	decode := func(e jetstream.KeyValueEntry) (string, bool, error) {
		return string(e.Value()), string(e.Value()) != "unreadable", nil
	}
	seen, written := make(chan map[string]string, 16), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- bucket.Watch(ctx, kv, "k.>", decode, func(all map[string]string) {
			seen <- maps.Clone(all)
			<-written // so that what is written now comes together
		})
	}()
	if diff := cmp.Diff(map[string]string{"k.a": "1", "k.b": "1"}, <-seen); diff != "" {
		t.Error(diff)
	}
	put("k.a", "2")
	put("k.b", "unreadable")
	close(written)
	if diff := cmp.Diff(map[string]string{"k.a": "2", "k.b": "1"}, <-seen); diff != "" {
		t.Error(diff)
	}
	must(t, kv.Delete(t.Context(), "k.b"))
	for all := range seen {
		if len(all) == 1 {
			break
		}
	}
	cancel()
	must(t, <-done)
}

// TestWatch_EndsEarly ends watches of many keys at the first: nothing is left of them.
func TestWatch_EndsEarly(t *testing.T) {
	js := natstest.Start(t).JS
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b", Storage: jetstream.MemoryStorage})
	must(t, err)
	for i := range 600 {
		_, err := kv.Put(t.Context(), fmt.Sprint("k.", i), nil)
		must(t, err)
	}
	bad := errors.New("it cannot be read")
	decode := func(jetstream.KeyValueEntry) (string, bool, error) { return "", false, bad }
	before := runtime.NumGoroutine()
	for range 20 {
		if err := bucket.Watch(t.Context(), kv, "k.>", decode, func(map[string]string) {}); !errors.Is(err, bad) {
			t.Fatal(err)
		}
	}
	poll.Until(t, func() error { // of the server some come and go
		now := runtime.NumGoroutine()
		return poll.Unless(now < before+15, fmt.Sprintf("%d goroutines, before there were %d", now, before))
	})
}
