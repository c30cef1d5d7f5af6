package leases_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/leases"
)

// TestWatchSeesALeasesLife watches from before the bucket exists.
func TestWatchSeesALeasesLife(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	js, _ := connect(t, s)
	if all, err := leases.List(t.Context(), js, ""); err != nil || len(all) != 0 {
		t.Fatalf("List without a bucket: %v, %v", all, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	seen := make(chan leases.Lease, 100)
	wg.Go(func() {
		if err := leases.Watch(ctx, js, "", func(l leases.Lease) { seen <- l }); err != nil {
			t.Errorf("Watch: %v", err)
		}
	})
	defer wg.Wait()
	defer cancel()
	next := func(what string, ok func(leases.Lease) bool) leases.Lease {
		t.Helper()
		timeout := time.After(time.Minute)
		for {
			select {
			case l := <-seen:
				if ok(l) {
					return l
				}
			case <-timeout:
				t.Fatalf("%s: not seen within a minute", what)
			}
		}
	}

	const resource = "category-names.v1/3/c7k2x4ab/0"
	cfg := fast("a")
	cfg.Group, cfg.Host = "worker", "host-1"
	p := start(t, js, cfg, resource)
	held := next("taken", func(l leases.Lease) bool { return l.Owner == p.m.Holder() })
	held.Acquired, held.Progress, held.Revision = time.Time{}, time.Time{}, 0
	want := leases.Lease{
		Group: "worker", Resource: resource, Owner: p.m.Holder(), Host: "host-1", Epoch: 1, Weight: 1,
	}
	if diff := cmp.Diff(want, held); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
	p.waitCount(t, 1)
	if err := p.get(resource).Save(t.Context(), []byte("9.1")); err != nil {
		t.Fatal(err)
	}
	next("saved", func(l leases.Lease) bool { return string(l.Checkpoint) == "9.1" })
	p.end(t)
	next("released", func(l leases.Lease) bool { return l.Owner == "" && l.Last == p.m.Holder() })
	for range 2 { // the second finds nothing
		if err := leases.Forget(t.Context(), js, "", "worker", resource); err != nil {
			t.Fatal(err)
		}
	}
	next("removed", func(l leases.Lease) bool { return l.Removed && l.Resource == resource && l.Group == "worker" })
	if all, err := leases.List(t.Context(), js, ""); err != nil || len(all) != 0 {
		t.Errorf("List after Forget: %v, %v", all, err)
	}
}

// TestForeignRecordsAreLeftAlone puts records of a later release, and no records
// at all, where leases are expected.
func TestForeignRecordsAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	js, _ := connect(t, s)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: leases.DefaultBucket})
	if err != nil {
		t.Fatal(err)
	}
	foreign := map[string]string{
		"lease.store.c7k2x4ab/0": `{"v":2,"resource":"c7k2x4ab/0"}`,
		"lease.store.c7k2x4ab/1": `nonsense`,
		"member.store.x":         `{"v":2}`,
		"other":                  `whatever`,
	}
	for key, value := range foreign {
		if _, err := kv.PutString(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, js, fast("a"), names(4)...)
	p.waitCount(t, 2)
	all, err := leases.List(t.Context(), js, "")
	if err == nil || len(all) != 2 {
		t.Errorf("List: %d leases, %v; want 2 and an error for the others", len(all), err)
	}
	p.end(t)
	for key, value := range foreign {
		if e, err := kv.Get(t.Context(), key); err != nil || string(e.Value()) != value {
			t.Errorf("%s was touched: %v", key, err)
		}
	}
}

// TestBucketDeletedUnderway loses everything while processes hold leases.
func TestBucketDeletedUnderway(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	js, _ := connect(t, s)
	p := start(t, js, fast("a"), names(3)...)
	p.waitCount(t, 3)
	first := p.get("c7k2x4ab/0")
	if err := js.DeleteKeyValue(t.Context(), leases.DefaultBucket); err != nil {
		t.Fatal(err)
	}
	<-first.Trust().Done()
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: leases.DefaultBucket}); err != nil {
		t.Fatal(err)
	}
	p.wait(t, "hold again", func(held map[string]*leases.Held) bool {
		return len(held) == 3 && !slices.ContainsFunc(names(3), func(name string) bool {
			return held[name].Epoch() <= first.Epoch() || !held[name].Valid()
		})
	})
	p.end(t)
}
