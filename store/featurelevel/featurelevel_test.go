package featurelevel_test

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/featurelevel"
)

func newJetStream(t *testing.T) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func level(t *testing.T, js jetstream.JetStream) int {
	t.Helper()
	level, err := featurelevel.Read(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	return level
}

// A new catalog has the newest level.
func TestLevel_ANewCatalog(t *testing.T) {
	t.Parallel()
	js := newJetStream(t)
	if _, err := featurelevel.Read(t.Context(), js); !errors.Is(err, jetstream.ErrBucketNotFound) {
		t.Errorf("without a catalog: %v", err)
	}
	if _, err := store.OpenCatalog(t.Context(), js, store.CatalogConfig{}); err != nil {
		t.Fatal(err)
	}
	if n := level(t, js); n != featurelevel.Newest {
		t.Errorf("level %d", n)
	}
}

// One that an earlier release made has level 1 until it is raised, and keeps its other
// labels.
func TestLevel_RaisedOnce(t *testing.T) {
	t.Parallel()
	js := newJetStream(t)
	cfg := store.CatalogBucketConfig(1)
	cfg.Metadata = map[string]string{"millrace.replicas": "1"}
	if _, err := js.CreateKeyValue(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if n := level(t, js); n != 1 {
		t.Errorf("level %d before", n)
	}
	for range 2 {
		if err := featurelevel.Raise(t.Context(), js); err != nil {
			t.Fatal(err)
		}
		if n := level(t, js); n != featurelevel.Newest {
			t.Errorf("level %d after", n)
		}
	}
	stream, err := js.Stream(t.Context(), "KV_"+store.CatalogBucket)
	if err != nil {
		t.Fatal(err)
	}
	if got := stream.CachedInfo().Config.Metadata["millrace.replicas"]; got != "1" {
		t.Errorf("millrace.replicas is %q", got)
	}
}

// TestLevel_TheLabelMayBeBehindTheKey has a later release that raised the level, whose label was
// lost: it is refused where the label tells this release's own level. A label that is behind the
// level of this release is mended by raising it once more.
func TestLevel_TheLabelMayBeBehindTheKey(t *testing.T) {
	t.Parallel()
	js := newJetStream(t)
	cfg := store.CatalogBucketConfig(1)
	labelled := func(level int) {
		cfg.Metadata = map[string]string{"millrace.level": strconv.Itoa(level)}
		if _, err := js.CreateOrUpdateKeyValue(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	labelled(featurelevel.Newest)
	kv, err := js.KeyValue(t.Context(), store.CatalogBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), "level", strconv.Itoa(featurelevel.Newest+1)); err != nil {
		t.Fatal(err)
	}
	_, err = featurelevel.Read(t.Context(), js)
	if _, later := errors.AsType[*featurelevel.LaterError](err); !later {
		t.Errorf("the key is of a later release: %v", err)
	}
	labelled(featurelevel.Newest - 1)
	if _, err := kv.PutString(t.Context(), "level", strconv.Itoa(featurelevel.Newest)); err != nil {
		t.Fatal(err)
	}
	if err := featurelevel.Raise(t.Context(), js); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "KV_"+store.CatalogBucket)
	if err != nil {
		t.Fatal(err)
	}
	if got := stream.CachedInfo().Config.Metadata["millrace.level"]; got != strconv.Itoa(featurelevel.Newest) {
		t.Errorf("raised once more, the label is %q", got)
	}
}

// Data of a later release is refused by name, and so is what is no level.
func TestLevel_OfALaterRelease(t *testing.T) {
	t.Parallel()
	js := newJetStream(t)
	kv := store.CatalogBucketConfig(1)
	for text, later := range map[string]bool{strconv.Itoa(featurelevel.Newest + 1): true, "x": false, "0": false} {
		kv.Metadata = map[string]string{"millrace.level": text}
		if _, err := js.CreateOrUpdateKeyValue(t.Context(), kv); err != nil {
			t.Fatal(err)
		}
		_, err := featurelevel.Read(t.Context(), js)
		if _, is := errors.AsType[*featurelevel.LaterError](err); err == nil || is != later {
			t.Errorf("%q: %v", text, err)
		}
		if err := featurelevel.Raise(t.Context(), js); err == nil {
			t.Errorf("%q was raised", text)
		}
	}
}

// Processes that do not tell the level are of an earlier release; those that have left
// do not count.
func TestBehind_NamesProcessesOfEarlierReleases(t *testing.T) {
	t.Parallel()
	js := newJetStream(t)
	if all, err := featurelevel.Behind(t.Context(), js, ""); err != nil || len(all) > 0 {
		t.Fatalf("without a bucket: %v, %v", all, err)
	}
	for group, level := range map[string]int{"store": featurelevel.Newest, "worker": 0} {
		if _, err := leases.Open(t.Context(), js, leases.Config{Group: group, Node: "n", NodeLocked: true, Host: "h", Level: level}); err != nil {
			t.Fatal(err)
		}
	}
	kv, err := js.KeyValue(t.Context(), leases.DefaultBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), "member.worker.gone", `{"v":1,"node":"gone","incarnation":"i","beat":9,"ttlMs":7000,"left":true}`); err != nil {
		t.Fatal(err)
	}
	all, err := featurelevel.Behind(t.Context(), js, "")
	if err != nil || len(all) != 1 || all[0].String() != "worker n on h" {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := kv.PutString(t.Context(), "member.worker.odd", `{"v":9}`); err != nil {
		t.Fatal(err)
	}
	if _, err := featurelevel.Behind(t.Context(), js, ""); err == nil {
		t.Error("a record that cannot be read counts as upgraded")
	}
}

// A process that was killed is forgotten after some lifetimes.
func TestBehind_ForgetsTheDead(t *testing.T) {
	t.Parallel()
	js := newJetStream(t)
	if _, err := leases.Open(t.Context(), js, leases.Config{Group: "store", Level: featurelevel.Newest}); err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), leases.DefaultBucket)
	if err != nil {
		t.Fatal(err)
	}
	for ttl, lives := range map[string]bool{"600000": true, "1": false} {
		if _, err := kv.PutString(t.Context(), "member.worker.n", `{"v":1,"node":"n","incarnation":"i","beat":9,"ttlMs":`+ttl+`}`); err != nil {
			t.Fatal(err)
		}
		poll.Until(t, func() error {
			all, err := featurelevel.Behind(t.Context(), js, "")
			return cmp.Or(err, poll.Unless((len(all) > 0) == lives, fmt.Sprint(all)))
		})
	}
}

// TestLevel_IsNotLoweredByWhoNotesReplicas: a store that has read the labels of the catalog
// before the level was raised writes its own among them afterwards.
func TestLevel_IsNotLoweredByWhoNotesReplicas(t *testing.T) {
	t.Parallel()
	js := newJetStream(t)
	if _, err := js.CreateKeyValue(t.Context(), store.CatalogBucketConfig(1)); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "KV_millrace_catalog")
	if err != nil {
		t.Fatal(err)
	}
	before := stream.CachedInfo().Config
	for range 2 { // the second finds it raised
		if err := featurelevel.Raise(t.Context(), js); err != nil {
			t.Fatal(err)
		}
		before.Metadata = map[string]string{"millrace.replicas": "1"}
		if _, err := js.UpdateStream(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		if n := level(t, js); n != featurelevel.Newest {
			t.Errorf("level %d", n)
		}
	}
	c, err := store.OpenCatalog(t.Context(), js, store.CatalogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if all, err := c.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("the catalog lists %+v, %v", all, err)
	}
	exam, err := store.Examine(t.Context(), js)
	if err != nil || exam.Err() != nil || len(exam.Bad) != 0 {
		t.Errorf("the catalog is %+v, %v", exam, err)
	}
}
