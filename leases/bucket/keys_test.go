package bucket_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/leases/bucket"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// TestKeys_WhileTheyAreWritten lists keys that others write as fast as they can.
func TestKeys_WhileTheyAreWritten(t *testing.T) {
	js := natstest.Start(t).JS

	if _, err := bucket.Keys(t.Context(), js, "none", ">"); !errors.Is(err, jetstream.ErrBucketNotFound) {
		t.Errorf("without the bucket: %v", err)
	}
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b", Storage: jetstream.MemoryStorage})
	must(t, err)
	if keys, err := bucket.Keys(t.Context(), js, "b", ">"); err != nil || len(keys) != 0 {
		t.Errorf("of an empty bucket: %q, %v", keys, err)
	}
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprintf("a.%02d", i))
		_, err := kv.Put(t.Context(), want[i], nil)
		must(t, err)
	}
	_, err = kv.Put(t.Context(), "b.00", nil)
	must(t, err)
	_, err = kv.Put(t.Context(), "b.01", []byte("x"))
	must(t, err)
	must(t, kv.Delete(t.Context(), "b.00"))
	if entries, err := bucket.Entries(t.Context(), js, kv, "b.>"); err != nil || len(entries) != 1 || entries[0].Key() != "b.01" || string(entries[0].Value()) != "x" {
		t.Errorf("entries are %v, %v; want b.01 alone", entries, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for _, key := range want[:4] {
		writers.Go(func() {
			for ctx.Err() == nil {
				_, _ = kv.Put(ctx, key, nil)
			}
		})
	}
	for range 300 {
		if keys, err := bucket.Keys(t.Context(), js, "b", "a.>"); err != nil || !slices.Equal(keys, want) {
			t.Fatalf("%q, %v", keys, err)
		}
	}
	stop()
	writers.Wait()
}
