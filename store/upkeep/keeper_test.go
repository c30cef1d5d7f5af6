package upkeep_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/spare"
	"github.com/millrace/millrace/store/upkeep"
)

func must[T any](tb testing.TB) func(v T, err error) T {
	tb.Helper()
	return func(v T, err error) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

func keeper(js jetstream.JetStream, catalog *store.Catalog, replicas int) *upkeep.Keeper {
	return upkeep.NewKeeper(js, catalog, upkeep.Config{
		Wish: upkeep.Wish{Replicas: replicas, Leases: "millrace_leases"}, Copies: []spare.Source{store.DatabaseRecords()}, LeftMin: -1, Logger: quiet,
	})
}

// run runs a keeper for as long as the test.
func run(tb testing.TB, k *upkeep.Keeper) {
	tb.Helper()
	ctx, stop := context.WithCancel(tb.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	tb.Cleanup(func() { stop(); <-done })
}

// TestReplicas_ApplyBeforeTheFirstStore declares a container with a configuration
// that knows nothing of replicas, as a command has it, before a store comes that
// keeps three.
func TestReplicas_ApplyBeforeTheFirstStore(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a cluster takes seconds to elect its leaders")
	}
	cluster, js := three(t)
	catalog := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), js, store.CatalogConfig{}))
	info := must[store.ContainerInfo](t)(catalog.Create(t.Context(), "default", "orders", store.ContainerSpec{PartitionKey: []string{"/id"}, Partitions: 2}))
	must[jetstream.KeyValue](t)(js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "millrace_leases"}))
	must[jetstream.KeyValue](t)(js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "of_another"}))
	if n := must[int](t)(upkeep.Wanted(t.Context(), js)); n != 1 {
		t.Fatalf("before any store %d replicas are wanted, want 1", n)
	}
	before := must[*upkeep.Report](t)(upkeep.Look(t.Context(), js, upkeep.Wish{Replicas: 3, Leases: "millrace_leases"}))
	if len(before.Short()) != 4 || len(before.Warnings()) != 1 || !strings.Contains(before.Warnings()[0], "4 of 4 streams have fewer replicas") {
		t.Fatalf("before: %+v, %q", before.Short(), before.Warnings())
	}

	run(t, keeper(js, catalog, 3))
	wish := upkeep.Wish{Replicas: 3, Leases: "millrace_leases"}
	poll.Until(t, func() error {
		r, err := upkeep.Look(t.Context(), js, wish)
		if err != nil {
			return err
		}
		return poll.Unless(len(r.Short()) == 0, fmt.Sprintf("short are %+v", r.Short()))
	})
	stream := must[jetstream.Stream](t)(js.Stream(t.Context(), feed.Partition{Container: info.ID}.Stream()))
	if got := stream.CachedInfo().Config.Replicas; got != 3 {
		t.Errorf("the log has %d replicas", got)
	}
	if got := must[jetstream.Stream](t)(js.Stream(t.Context(), "KV_of_another")).CachedInfo().Config.Replicas; got != 1 {
		t.Errorf("a bucket of somebody else has %d replicas now", got)
	}
	// A command makes the next container at once as the stores keep them.
	if n := must[int](t)(upkeep.Wanted(t.Context(), js)); n != 3 {
		t.Errorf("%d replicas are wanted, want 3", n)
	}
	// A store with an older configuration takes none away.
	if _, err := keeper(js, catalog, 1).Pass(t.Context()); err != nil {
		t.Errorf("pass of a store with one replica: %v", err)
	}
	if r := must[*upkeep.Report](t)(upkeep.Look(t.Context(), js, wish)); len(r.Short()) != 0 {
		t.Errorf("a store with one replica took some away: %+v", r.Short())
	}

	// A lost server is told of, and is no shortage.
	cluster.Stop(cluster.Servers[2])
	poll.Until(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r, err := upkeep.Look(ctx, js, wish)
		if err != nil {
			return err
		}
		if len(r.Short()) > 0 {
			t.Fatalf("a lost server made %+v short", r.Short())
		}
		w := strings.Join(r.Warnings(), "; ")
		return poll.Unless(strings.Contains(w, "the NATS server s2 cannot be reached; it holds a replica of"), w)
	})
	if err := catalog.Sound(t.Context()); err != nil {
		t.Errorf("without one of three servers the catalog counts as damaged: %v", err)
	}
}

// silentStream is JetStream of which one stream answers no change.
type silentStream struct {
	jetstream.JetStream
	t    *testing.T
	name string
}

func (s silentStream) UpdateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	until, ends := ctx.Deadline()
	if !ends || time.Until(until) > time.Minute {
		s.t.Errorf("the answer of stream %s is waited for until %s", cfg.Name, until)
	}
	if cfg.Name == s.name {
		return nil, context.DeadlineExceeded
	}
	return s.JetStream.UpdateStream(ctx, cfg)
}

// TestReplicas_AreMadeBesideAStreamThatDoesNotAnswer: the pass goes on to the other streams, tells
// which one did not, and is not as long as a pass may be.
func TestReplicas_AreMadeBesideAStreamThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	js := alone(t)
	catalog := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), js, store.CatalogConfig{}))
	info := must[store.ContainerInfo](t)(catalog.Create(t.Context(), "default", "orders", store.ContainerSpec{PartitionKey: []string{"/id"}, Partitions: 3}))
	stream := func(number uint32) string { return feed.Partition{Container: info.ID, Number: number}.Stream() }
	for n := range uint32(3) {
		s := must[jetstream.Stream](t)(js.Stream(t.Context(), stream(n)))
		cfg := s.CachedInfo().Config
		delete(cfg.Metadata, store.LabelContainer)
		must[jetstream.Stream](t)(js.UpdateStream(t.Context(), cfg))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if _, err := keeper(silentStream{js, t, stream(1)}, catalog, 1).Pass(ctx); err == nil || !strings.Contains(err.Error(), stream(1)) {
		t.Errorf("the pass says %v", err)
	}
	for n := range uint32(3) {
		_, is := must[jetstream.Stream](t)(js.Stream(t.Context(), stream(n))).CachedInfo().Config.Metadata[store.LabelContainer]
		if is != (n != 1) {
			t.Errorf("stream %d has its label: %v", n, is)
		}
	}
}

// TestReplicas_AreLoweredByHandOnly as docs/operations.md says: a store with a smaller
// configuration does not, and one that comes after it was done does not undo it.
func TestReplicas_AreLoweredByHandOnly(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a cluster takes seconds to elect its leaders")
	}
	_, js := three(t)
	catalog := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), js, store.CatalogConfig{Replicas: 3, Log: feed.LogConfig{Replicas: 3}}))
	must[store.ContainerInfo](t)(catalog.Create(t.Context(), "default", "orders", store.ContainerSpec{PartitionKey: []string{"/id"}}))
	for _, replicas := range []int{3, 1} {
		if _, err := keeper(js, catalog, replicas).Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := must[int](t)(upkeep.Wanted(t.Context(), js)); n != 3 {
			t.Fatalf("%d replicas are wanted with a store that asks for %d, want 3", n, replicas)
		}
	}
	for name := range js.StreamNames(t.Context()).Name() {
		if !strings.HasPrefix(name, "MILLRACE_") && !strings.HasPrefix(name, "KV_millrace_") {
			t.Errorf("what docs/operations.md names does not hold stream %s", name)
		}
		cfg := must[jetstream.Stream](t)(js.Stream(t.Context(), name)).CachedInfo().Config
		cfg.Replicas = 1
		if name == "KV_millrace_catalog" {
			cfg.Metadata["millrace.replicas"] = "1"
		}
		must[jetstream.Stream](t)(js.UpdateStream(t.Context(), cfg))
	}
	poll.Until(t, func() error { // a stream that has just changed may have no leader
		_, err := keeper(js, catalog, 1).Pass(t.Context())
		return poll.Unless(err == nil, fmt.Sprint(err))
	})
	if n := must[int](t)(upkeep.Wanted(t.Context(), js)); n != 1 {
		t.Errorf("%d replicas are wanted, want 1", n)
	}
	for name := range js.StreamNames(t.Context()).Name() {
		if got := must[jetstream.Stream](t)(js.Stream(t.Context(), name)).CachedInfo().Config.Replicas; got != 1 {
			t.Errorf("stream %s has %d replicas", name, got)
		}
	}
}

func TestReplicas_OfOneServerAreToldToBeMissing(t *testing.T) {
	t.Parallel()
	js := alone(t)
	catalog := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), js, store.CatalogConfig{}))
	must[store.ContainerInfo](t)(catalog.Create(t.Context(), "default", "orders", store.ContainerSpec{PartitionKey: []string{"/id"}}))
	k := keeper(js, catalog, 3)
	r := must[*upkeep.Report](t)(k.Pass(t.Context()))
	if len(r.Short()) != 2 || !strings.Contains(strings.Join(r.Warnings(), ""), "the NATS server is alone, and replicas need a cluster of three") {
		t.Errorf("%+v, %q", r.Short(), r.Warnings())
	}
}

// unlabel makes a stream be as the release before this one made it.
func unlabel(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	cfg := must[jetstream.Stream](t)(js.Stream(t.Context(), name)).CachedInfo().Config
	cfg.Metadata = maps.Clone(cfg.Metadata)
	delete(cfg.Metadata, store.LabelContainer)
	delete(cfg.Metadata, store.LabelRange)
	must[jetstream.Stream](t)(js.UpdateStream(t.Context(), cfg))
}

func TestLabels_FollowTheCatalog(t *testing.T) {
	t.Parallel()
	js := alone(t)
	catalog := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), js, store.CatalogConfig{}))
	info := must[store.ContainerInfo](t)(catalog.Create(t.Context(), "shop", "orders", store.ContainerSpec{PartitionKey: []string{"/id"}, Partitions: 3}))
	label := func(number uint32) (store.ContainerInfo, map[string]string, bool) {
		stream := must[jetstream.Stream](t)(js.Stream(t.Context(), feed.Partition{Container: info.ID, Number: number}.Stream()))
		_, labelled, ok, err := store.ReadLabel(stream.CachedInfo())
		if err != nil {
			t.Fatal(err)
		}
		return labelled, stream.CachedInfo().Config.Metadata, ok
	}
	record := func() store.ContainerInfo {
		is := must[store.ContainerInfo](t)(catalog.Get(t.Context(), "shop", "orders"))
		is.Revision = 0
		return is
	}
	for n := range uint32(3) {
		labelled, metadata, ok := label(n)
		if diff := cmp.Diff(record(), labelled); !ok || diff != "" {
			t.Fatalf("a new log is labelled otherwise than the catalog says (%v): %s", ok, diff)
		}
		var is feed.Range
		if err := json.Unmarshal([]byte(metadata[store.LabelRange]), &is); err != nil || is != info.Partitions[n].Range {
			t.Errorf("range of log %d is %s, %v", n, metadata[store.LabelRange], err)
		}
	}
	for n := range uint32(3) {
		unlabel(t, js, feed.Partition{Container: info.ID, Number: n}.Stream())
	}
	run(t, keeper(js, catalog, 1))
	follows := func() {
		t.Helper()
		poll.Until(t, func() error {
			want := record()
			for n := range uint32(3) {
				labelled, _, ok := label(n)
				if diff := cmp.Diff(want, labelled); !ok || diff != "" {
					return fmt.Errorf("log %d: %v %s", n, ok, diff)
				}
			}
			return nil
		})
	}
	follows() // a log of the release before
	if err := catalog.WantIndex(t.Context(), "shop", "orders", "/customerId"); err != nil {
		t.Fatal(err)
	}
	follows()
	if got, _, _ := label(2); len(got.IndexesWanted) != 1 {
		t.Errorf("indexes wanted: %v", got.IndexesWanted)
	}
}

// TestLabels_OfTheLargestContainerFit declares as many partitions as there may be.
func TestLabels_OfTheLargestContainerFit(t *testing.T) {
	info := store.ContainerInfo{Database: "shop", Name: "orders", ID: feed.NewResourceID(), State: store.ContainerReady}
	for i, r := range feed.EvenRanges(store.PartitionsMax) {
		info.Partitions = append(info.Partitions, store.PartitionInfo{Number: uint32(i), Range: r, Log: feed.NewLogID()})
	}
	for range 20_000 { // of no use, and as long as a client likes
		info.Policies = append(info.Policies, []byte(feed.NewLogID().String())...)
	}
	info.Policies = must[[]byte](t)(json.Marshal(string(info.Policies)))
	record := must[[]byte](t)(json.Marshal(info))
	labels := must[map[string]string](t)(store.Labels(record, time.Now(), info.Partitions[0]))
	stream := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Metadata: labels}}
	_, labelled, ok, err := store.ReadLabel(stream)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	info.Policies = nil // what has no room is left out
	if diff := cmp.Diff(info, labelled); diff != "" {
		t.Error(diff)
	}
}

func TestCopies_OfDatabasesAreMade(t *testing.T) {
	t.Parallel()
	js := alone(t)
	catalog := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), js, store.CatalogConfig{}))
	must[store.DatabaseInfo](t)(catalog.CreateDatabase(t.Context(), "empty"))
	must[store.DatabaseInfo](t)(catalog.CreateDatabase(t.Context(), "gone"))
	if err := js.DeleteKeyValue(t.Context(), spare.Bucket); err != nil { // of the release before
		t.Fatal(err)
	}
	k := keeper(js, catalog, 1)
	must[*upkeep.Report](t)(k.Pass(t.Context()))
	if err := catalog.DeleteDatabase(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	copies := must[map[string][]byte](t)(spare.New(js, 1).All(t.Context(), "database."))
	if len(copies) != 1 || copies["database.empty"] == nil {
		t.Errorf("copies of %v", copies)
	}
	// What cannot be read does not take the place of what can.
	kv := must[jetstream.KeyValue](t)(js.KeyValue(t.Context(), store.CatalogBucket))
	must[uint64](t)(kv.Put(t.Context(), "database.empty", []byte("{")))
	must[*upkeep.Report](t)(k.Pass(t.Context()))
	if again := must[map[string][]byte](t)(spare.New(js, 1).All(t.Context(), "database.")); string(again["database.empty"]) != string(copies["database.empty"]) {
		t.Errorf("the copy is %s now", again["database.empty"])
	}
	if _, err := catalog.Database(t.Context(), "empty"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a database whose record cannot be read: %v", err)
	}
}

// TestKeeper_FinishesADeletion: whoever deleted a container was killed, or its client has gone, before the record
// was removed. Its name can be used again behind a pass.
func TestKeeper_FinishesADeletion(t *testing.T) {
	t.Parallel()
	js := alone(t)
	catalog := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), js, store.CatalogConfig{}))
	spec := store.ContainerSpec{PartitionKey: []string{"/id"}}
	must[store.ContainerInfo](t)(catalog.Create(t.Context(), "default", "orders", spec))
	must[jetstream.KeyValue](t)(js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "millrace_leases"}))
	cut := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), cutOff{js}, store.CatalogConfig{}))
	if err := cut.Delete(t.Context(), "default", "orders"); err == nil {
		t.Fatal("the deletion was not cut off")
	}
	pass := func(js jetstream.JetStream, most time.Duration, deleted ...string) {
		t.Helper()
		catalog := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), js, store.CatalogConfig{}))
		k := upkeep.NewKeeper(js, catalog, upkeep.Config{
			Wish: upkeep.Wish{Replicas: 1, Leases: "millrace_leases"}, Copies: []spare.Source{store.DatabaseRecords()}, DeletionMax: most, Logger: quiet,
		})
		if report := must[*upkeep.Report](t)(k.Pass(t.Context())); !slices.Equal(report.Deleted, deleted) {
			t.Errorf("deleted %v, want %v", report.Deleted, deleted)
		}
	}
	pass(js, time.Hour)
	if info := must[store.ContainerInfo](t)(catalog.Get(t.Context(), "default", "orders")); info.State != store.ContainerDeleting {
		t.Errorf("one that may be under way is %s", info.State)
	}
	// Another ends it while the pass is at it, and somebody makes a container of that name: it stays.
	var made store.ContainerInfo
	pass(&meanwhile{js, sync.OnceFunc(func() {
		if err := catalog.Delete(t.Context(), "default", "orders"); err != nil {
			t.Error(err)
		}
		made = must[store.ContainerInfo](t)(catalog.Create(t.Context(), "default", "orders", spec))
	})}, time.Nanosecond)
	if info := must[store.ContainerInfo](t)(catalog.Get(t.Context(), "default", "orders")); info.State != store.ContainerReady || info.ID != made.ID {
		t.Errorf("a container that was made anew is %s", info.State)
	}
	if err := cut.Delete(t.Context(), "default", "orders"); err == nil {
		t.Fatal("the deletion was not cut off")
	}
	pass(js, time.Nanosecond, "default/orders")
	must[store.ContainerInfo](t)(catalog.Create(t.Context(), "default", "orders", spec))
}

// meanwhile is a JetStream in which something else is done before a stream is removed.
type meanwhile struct {
	jetstream.JetStream
	act func()
}

func (m *meanwhile) DeleteStream(ctx context.Context, name string) error {
	m.act()
	return m.JetStream.DeleteStream(ctx, name)
}

// cutOff is a JetStream whose user has gone when a stream is to be removed.
type cutOff struct{ jetstream.JetStream }

func (cutOff) DeleteStream(context.Context, string) error { return context.Canceled }
