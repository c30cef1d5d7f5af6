package leases_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/leases"
)

// TestListShowsALeasesLife lists from before the bucket exists.
func TestListShowsALeasesLife(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	js, _ := connect(t, s)
	listed := func(n int) leases.Lease {
		t.Helper()
		all, err := leases.List(t.Context(), js, "")
		if err != nil || len(all) != n {
			t.Fatalf("List: %v, %v; want %d leases", all, err, n)
		}
		return append(all, leases.Lease{})[0]
	}
	listed(0)

	const resource = "category-names.v1/3/c7k2x4ab/0"
	cfg := lasting("a")
	cfg.Group, cfg.Host = "worker", "host-1"
	p := start(t, js, cfg, resource)
	p.waitCount(t, 1)
	held := listed(1)
	held.Acquired, held.Progress, held.Revision = time.Time{}, time.Time{}, 0
	want := leases.Lease{
		Group: "worker", Resource: resource, Owner: p.m.Holder(), Host: "host-1", Epoch: 1, Weight: 1,
	}
	if diff := cmp.Diff(want, held); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
	if err := p.get(resource).Save(t.Context(), []byte("9.1")); err != nil {
		t.Fatal(err)
	}
	if l := listed(1); string(l.Checkpoint) != "9.1" {
		t.Errorf("saved: %+v", l)
	}
	p.end(t)
	if l := listed(1); l.Owner != "" || l.Last != want.Owner || string(l.Checkpoint) != "9.1" {
		t.Errorf("released: %+v", l)
	}
	for range 2 { // the second finds nothing
		if err := leases.Forget(t.Context(), js, "", "worker", resource); err != nil {
			t.Fatal(err)
		}
	}
	listed(0)
}

// TestForeignRecordsAreLeftAlone puts records of a later release, and no records
// at all, where leases are expected.
func TestForeignRecordsAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
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
	s := natstest.Start(t)
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
