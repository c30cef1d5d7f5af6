package doctor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/doctor"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/featurelevel"
)

// TestFix_LeavesWhatWasWrittenSinceTheLook: another process may have repaired or made a record
// meanwhile.
func TestFix_LeavesWhatWasWrittenSinceTheLook(t *testing.T) {
	t.Parallel()
	const nothing = "container.default.nothing"
	for name, c := range map[string]struct{ bucket, key, bad string }{
		"a container that cannot be read":      {store.CatalogBucket, "container.default.product", "{"},
		"a container that is lost":             {store.CatalogBucket, "container.default.product", ""},
		"a database that cannot be read":       {store.CatalogBucket, "database.empty", "?"},
		"a pipeline that cannot be read":       {registry.Bucket, "pipeline.default.names", "[]"},
		"a pipeline that is lost":              {registry.Bucket, "pipeline.default.names", ""},
		"a pipeline that nothing can tell of":  {registry.Bucket, "pipeline.default.new", "[]"},
		"a record that no log has":             {store.CatalogBucket, nothing, "{}"},
		"a record that was deleted meanwhile":  {store.CatalogBucket, nothing, "{}"},
		"a database that was deleted likewise": {store.CatalogBucket, "database.empty", "?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSoundWard(t)
			kv := w.bucket(c.bucket)
			right := []byte(`{"written":"since"}`) // where the fix could tell nothing
			if entry, err := kv.Get(t.Context(), c.key); err == nil {
				right = append(entry.Value(), ' ') // as good, and other bytes
			}
			if c.bad == "" {
				w.lose(c.bucket, c.key)
			} else {
				w.put(c.bucket, c.key, c.bad)
			}
			deleted := strings.Contains(name, "deleted")
			r, err := w.doctor.FixBetween(t.Context(), nil, func() {
				if deleted {
					if err := kv.Delete(t.Context(), c.key); err != nil {
						t.Fatal(err)
					}
					return
				}
				w.put(c.bucket, c.key, string(right))
			})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(fmt.Sprint(r.Done), "left record "+c.key) {
				t.Errorf("it does not tell that it left the record: %q", r.Done)
			}
			entry, err := kv.Get(t.Context(), c.key)
			switch {
			case deleted && !errors.Is(err, jetstream.ErrKeyNotFound):
				t.Errorf("what somebody has deleted is there again: %v", err)
			case !deleted && err != nil:
				t.Errorf("what somebody has written is gone: %v", err)
			case !deleted && string(entry.Value()) != string(right):
				t.Errorf("it is %s, and somebody has written %s", entry.Value(), right)
			}
		})
	}
}

// TestFix_RemovesWhatIsLeftOfADeletion: a log that somebody who was late has made for a container that was deleted is told
// of, is no damage, and is not entered again.
func TestFix_RemovesWhatIsLeftOfADeletion(t *testing.T) {
	t.Parallel()
	w := newSoundWard(t)
	before := w.state()
	info, err := w.catalog.Create(t.Context(), "default", "brief", store.ContainerSpec{PartitionKey: []string{"/id"}})
	if err != nil {
		t.Fatal(err)
	}
	log := feed.Partition{Container: info.ID}
	_, cfg := w.stream(log.Stream())
	if err := w.catalog.Delete(t.Context(), "default", "brief"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	r := w.examine()
	told := func(f doctor.Finding) bool {
		return f.Kind == doctor.Warning && f.What == "log "+log.String() && strings.Contains(f.Remedy, "--fix")
	}
	if !r.Well() || !slices.ContainsFunc(r.Findings, told) {
		t.Errorf("%+v", r)
	}
	w.open()
	r = w.fix(nil)
	if !r.Well() || slices.ContainsFunc(r.Findings, told) {
		t.Errorf("after --fix: %+v", r)
	}
	if !slices.ContainsFunc(r.Done, func(done string) bool { return strings.Contains(done, "log "+log.String()+" is removed") }) {
		t.Errorf("it does not tell what it has removed: %q", r.Done)
	}
	w.open()
	if after := w.state(); after != before {
		t.Errorf("it is\n%s\nand was\n%s", after, before)
	}
	if _, err := w.js.Stream(t.Context(), log.Stream()); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the log is still there: %v", err)
	}
}

// TestFix_LeavesWhatIsRestoredOfADeletedContainer: somebody has brought back the stream of a container that was deleted by
// mistake. It holds what was written, so it is not what a maker of logs leaves: the container is entered again.
func TestFix_LeavesWhatIsRestoredOfADeletedContainer(t *testing.T) {
	t.Parallel()
	w := newSoundWard(t)
	info, err := w.catalog.Create(t.Context(), "default", "brief", store.ContainerSpec{PartitionKey: []string{"/id"}})
	if err != nil {
		t.Fatal(err)
	}
	p := feed.Partition{Container: info.ID}
	log, err := feed.OpenLog(t.Context(), w.js, p, feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c := &feed.Commit{ID: feed.NewCommitID(), Log: log.ID(), Owner: "somebody", Transactions: []feed.Transaction{{Control: &feed.Control{Kind: "test"}}}}
	last, err := log.Append(t.Context(), 1, c.ID, feed.AppendCommit(nil, c))
	if err != nil {
		t.Fatal(err)
	}
	stream, cfg := w.stream(p.Stream())
	var messages []*jetstream.RawStreamMsg
	for seq := range uint64(last) {
		m, err := stream.GetMsg(t.Context(), seq+1)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, m)
	}
	if err := w.catalog.Delete(t.Context(), "default", "brief"); err != nil {
		t.Fatal(err)
	}
	if stream, err = w.js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if _, err := w.js.Publish(t.Context(), m.Subject, m.Data); err != nil {
			t.Fatal(err)
		}
	}
	entered := func(text string) bool { return strings.Contains(text, "entered container default/brief") }
	if r := w.fix(nil); !r.Well() || !slices.ContainsFunc(r.Done, entered) {
		t.Errorf("%+v", r)
	}
	is, err := stream.Info(t.Context())
	if err != nil || is.State.Msgs != uint64(last) {
		t.Errorf("its stream holds %+v, %v; want %d commits", is, err, last)
	}
	w.open()
	if again := w.container("brief"); again.ID != info.ID || again.State != store.ContainerReady {
		t.Errorf("it is %+v, and was %+v", again, info)
	}
}

// TestFix_GivesNoNameThatEarlierReleasesCannotRead: as long as one may share the data.
func TestFix_GivesNoNameThatEarlierReleasesCannotRead(t *testing.T) {
	t.Parallel()
	w := newSoundWard(t)
	kv := w.bucket(store.CatalogBucket)
	entry, err := kv.Get(t.Context(), "container.default.product")
	if err != nil {
		t.Fatal(err)
	}
	var info store.ContainerInfo
	if err := json.Unmarshal(entry.Value(), &info); err != nil {
		t.Fatal(err)
	}
	w.lose(store.CatalogBucket, "container.default.product")
	stream, err := w.js.Stream(t.Context(), "KV_"+store.CatalogBucket)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.Metadata = map[string]string{"millrace.level": strconv.Itoa(featurelevel.WideNames - 1)}
	if _, err := w.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	names := map[feed.ResourceID]doctor.Name{info.ID: {Database: "default", Container: "all products"}}
	if _, err := w.doctor.Fix(t.Context(), names); err == nil || !strings.Contains(err.Error(), "millrace upgrade --finish") {
		t.Errorf("the name was taken: %v", err)
	}
	if _, err := kv.Get(t.Context(), "container.default.product"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("a refusal has changed the catalog: %v", err)
	}
	cfg.Metadata = map[string]string{"millrace.level": strconv.Itoa(featurelevel.Newest)}
	if _, err := w.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if r, err := w.doctor.Fix(t.Context(), names); err != nil || !strings.Contains(fmt.Sprint(r.Done), "all products") {
		t.Errorf("at the newest level: %+v, %v", r, err)
	}
}
