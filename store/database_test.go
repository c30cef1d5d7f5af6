package store_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/featurelevel"
	"github.com/millrace/millrace/store/rid"
)

func newCatalog(t *testing.T) *store.Catalog {
	t.Helper()
	return catalogOf(t, natstest.Start(t).JS)
}

func databaseNames(t *testing.T, c *store.Catalog) []string {
	t.Helper()
	infos, err := c.Databases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, info := range infos {
		names = append(names, info.Name)
	}
	return names
}

// A database is there because it was created, or because it has a container.
func TestCatalog_Databases(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	ctx := t.Context()
	if _, err := c.Create(ctx, "implied", "things", store.ContainerSpec{PartitionKey: []string{"/a"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateDatabase(ctx, "made"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"implied", "made"} {
		if _, err := c.CreateDatabase(ctx, name); !errors.Is(err, store.ErrConflict) {
			t.Errorf("creating %s again: %v, want a conflict", name, err)
		}
	}
	if _, err := c.CreateDatabase(ctx, "no/good"); !errors.Is(err, store.ErrBadRequest) {
		t.Errorf("a bad name: %v", err)
	}
	if diff := cmp.Diff([]string{"implied", "made"}, databaseNames(t, c)); diff != "" {
		t.Error(diff)
	}
	if all, err := c.List(ctx); err != nil || len(all) != 1 {
		t.Errorf("containers: %v, %v; a database is none", all, err)
	}
	for _, name := range []string{"implied", "made"} {
		if err := c.DeleteDatabase(ctx, name); err != nil {
			t.Fatal(err)
		}
		if err := c.DeleteDatabase(ctx, name); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("deleting %s again: %v, want not found", name, err)
		}
	}
	if left := databaseNames(t, c); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if all, err := c.List(ctx); err != nil || len(all) != 0 {
		t.Errorf("containers left: %v, %v", all, err)
	}
}

// A generation that is published stays so, whoever asks with an older record; the next one begins without.
func TestCatalog_APublicationIsNotTakenBack(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	if _, err := c.Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/a"}}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		wish store.RuleWish
		want bool
	}{
		{store.RuleWish{Pipeline: "p", Generation: 1}, false},
		{store.RuleWish{Pipeline: "other", Generation: 1}, false},
		{store.RuleWish{Pipeline: "p", Generation: 1, Published: true}, true},
		{store.RuleWish{Pipeline: "p", Generation: 1}, true},
		{store.RuleWish{Pipeline: "p", Generation: 2}, false},
		{store.RuleWish{Pipeline: "p", Generation: 1, Published: true}, false},
	} {
		if err := c.WantRule(t.Context(), "default", "things", step.wish); err != nil {
			t.Fatal(err)
		}
		info, err := c.Get(t.Context(), "default", "things")
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(info.Rules, func(r store.RuleWish) bool { return r.Pipeline == "p" })
		if at < 0 && step.wish.Pipeline == "p" || at >= 0 && info.Rules[at].Published != step.want {
			t.Errorf("behind %+v the rules are %+v", step.wish, info.Rules)
		}
	}
}

// What is deleted and made again has another resource id, and so has a container in a database that was.
func TestRID_OfWhatIsMadeAnew(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	spec := store.ContainerSpec{PartitionKey: []string{"/a"}}
	declare := func(created bool) (rid.Database, rid.Container) {
		t.Helper()
		if created {
			if _, err := c.CreateDatabase(t.Context(), "shop"); err != nil {
				t.Fatal(err)
			}
		}
		info, err := c.Create(t.Context(), "shop", "things", spec)
		if err != nil {
			t.Fatal(err)
		}
		database, err := c.Database(t.Context(), "shop")
		if err != nil {
			t.Fatal(err)
		}
		all, err := c.Databases(t.Context())
		if err != nil || len(all) != 1 || all[0].RID() != database.RID() {
			t.Errorf("listed %+v, %v; read %+v", all, err, database)
		}
		if info.RID().Database() != database.RID() || info.RID()[4]&0x80 == 0 {
			t.Errorf("rid %x: want the database's %x and then the high bit", info.RID(), database.RID())
		}
		return database.RID(), info.RID()
	}
	databases, containers := map[rid.Database]bool{}, map[rid.Container]bool{}
	for range 2 {
		database, container := declare(true)
		databases[database], containers[container] = true, true
		if err := c.Delete(t.Context(), "shop", "things"); err != nil {
			t.Fatal(err)
		}
		_, container = declare(false)
		containers[container] = true
		if err := c.DeleteDatabase(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
	}
	if _, implied := declare(false); len(databases) != 2 || len(containers) != 4 || containers[implied] {
		t.Errorf("%d databases and %d containers have an id of their own, want 2 and 4", len(databases), len(containers))
	}
}

// Of two who have seen the same database one sets its policies, and the other is told.
func TestCatalog_PoliciesOfADatabase(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	seen, err := c.CreateDatabaseWith(t.Context(), "shop", []byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	first, err := c.SetDatabasePolicies(t.Context(), &seen, []byte(`{"a":2}`))
	if err != nil || first.Revision <= seen.Revision || first.RID() != seen.RID() {
		t.Errorf("set: %+v, %v", first, err)
	}
	if _, err := c.SetDatabasePolicies(t.Context(), &seen, []byte(`{"a":3}`)); !errors.Is(err, store.ErrConflict) {
		t.Errorf("set by what was seen before: %v, want a conflict", err)
	}
	if _, err := c.Create(t.Context(), "implied", "things", store.ContainerSpec{PartitionKey: []string{"/a"}}); err != nil {
		t.Fatal(err)
	}
	implied, err := c.Database(t.Context(), "implied")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetDatabasePolicies(t.Context(), &implied, []byte(`{"a":1}`)); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("set of a database without a record: %v, want not found", err)
	}
	if now, err := c.Database(t.Context(), "shop"); err != nil || string(now.Policies) != `{"a":2}` || now.Revision != first.Revision {
		t.Errorf("kept %+v, %v", now, err)
	}
}

// A record without a resource id, as earlier releases wrote them, has one all the same; that of a restored container is the
// backup's.
func TestRID_OfRecords(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	info := store.ContainerInfo{
		Database: "shop", Name: "things", ID: feed.ResourceID("abcdefgh"), Spec: store.ContainerSpec{PartitionKey: []string{"/a"}},
	}
	if got, want := info.RID(), rid.NewContainer(rid.ImpliedDatabase("shop"), "abcdefgh"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	database := store.DatabaseInfo{Name: "shop"}
	if got, want := database.RID(), rid.ImpliedDatabase("shop"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	restored, err := c.RestoreContainer(t.Context(), info, "backup")
	if err != nil || restored.ID == info.ID || restored.RID() != info.RID() {
		t.Errorf("restored %+v, %v", restored, err)
	}
}

// Data that a process of an earlier release may write too gets no resource ids of its own: such a process drops them where it
// writes a container's record again, and links would break.
func TestRID_GivenFromItsFeatureLevelOn(t *testing.T) {
	t.Parallel()
	js := natstest.Start(t).JS
	if _, err := js.CreateKeyValue(t.Context(), store.CatalogBucketConfig(1)); err != nil { // of level 1
		t.Fatal(err)
	}
	c := catalogOf(t, js)
	given := func(name string) string {
		t.Helper()
		database, err := c.CreateDatabase(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		container, err := c.Create(t.Context(), name, "things", store.ContainerSpec{PartitionKey: []string{"/a"}})
		if err != nil || container.RID().Database() != database.RID() || (container.GivenRID == "") != (database.GivenRID == "") {
			t.Errorf("container %+v of %+v, %v", container, database, err)
		}
		return database.GivenRID
	}
	if before := given("before"); before != "" {
		t.Errorf("at level 1 a database has the resource id %s of its own", before)
	}
	if err := featurelevel.Raise(t.Context(), js); err != nil {
		t.Fatal(err)
	}
	if given("after") == "" {
		t.Error("at the newest level a database has no resource id of its own")
	}
}

// Names that a process of an earlier release takes for damage are refused as long as there may be one; plain ones are not.
func TestNames_WideFromTheirFeatureLevelOn(t *testing.T) {
	t.Parallel()
	js := natstest.Start(t).JS
	if _, err := js.CreateKeyValue(t.Context(), store.CatalogBucketConfig(1)); err != nil { // of level 1
		t.Fatal(err)
	}
	c := catalogOf(t, js)
	spec := store.ContainerSpec{PartitionKey: []string{"/a"}}
	if _, err := c.Create(t.Context(), "shop", "things", spec); err != nil {
		t.Fatal(err)
	}
	wide := func() []error {
		_, database := c.CreateDatabase(t.Context(), "shop.eu")
		_, container := c.Create(t.Context(), "shop", "日本", spec)
		_, inDatabase := c.Create(t.Context(), "shop 2", "things", spec)
		_, restored := c.RestoreContainer(t.Context(), store.ContainerInfo{
			Database: "a.b", Name: "c", ID: feed.NewResourceID(), Spec: spec, Partitions: []store.PartitionInfo{{Range: feed.EvenRanges(1)[0]}},
		}, "b1")
		return []error{database, container, inDatabase, restored, c.RestoreDatabase(t.Context(), "d.e", []byte(`{"name":"d.e"}`))}
	}
	for i, err := range wide() {
		if !errors.Is(err, store.ErrBadRequest) || !strings.Contains(err.Error(), "millrace upgrade --finish") {
			t.Errorf("%d: at level 1: %v", i, err)
		}
	}
	if diff := cmp.Diff([]string{"shop"}, databaseNames(t, c)); diff != "" {
		t.Error(diff)
	}
	if err := featurelevel.Raise(t.Context(), js); err != nil {
		t.Fatal(err)
	}
	for i, err := range wide() {
		if err != nil {
			t.Errorf("%d: at the newest level: %v", i, err)
		}
	}
	if diff := cmp.Diff([]string{"a.b", "d.e", "shop", "shop 2", "shop.eu"}, databaseNames(t, c)); diff != "" {
		t.Error(diff)
	}
}

// Keys of records never change: those of plain names are what earlier releases wrote.
func TestCatalogKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ database, name, key string }{
		{"shop", "Orders_2", "container.shop.Orders_2"},
		{"a.b", "c", "container.=YS5i.c"},
		{"a", "b.c", "container.a.=Yi5j"},
		{"日本", ">", "container.=5pel5pys.=Pg"},
	} {
		if got := store.CatalogKey(c.database, c.name); got != c.key {
			t.Errorf("%s/%s has the key %s, want %s", c.database, c.name, got, c.key)
		}
	}
}

func TestCatalog_PoliciesOfTheFirst(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	info, err := c.Create(t.Context(), "shop", "things", store.ContainerSpec{PartitionKey: []string{"/a"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetPolicies(t.Context(), &info, []byte(`{"by":"one"}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetPolicies(t.Context(), &info, []byte(`{"by":"two"}`)); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the second: %v, want a conflict", err)
	}
	got, err := c.Get(t.Context(), "shop", "things")
	if err != nil || string(got.Policies) != `{"by":"one"}` {
		t.Errorf("%s, %v", got.Policies, err)
	}
}

// beforeStream is a JetStream that does something before it makes or removes a stream, once.
type beforeStream struct {
	jetstream.JetStream
	create, remove func(name string) func()
	done           bool
}

func (b *beforeStream) run(f func(name string) func(), name string) {
	if f == nil || b.done {
		return
	}
	if act := f(name); act != nil {
		b.done = true
		act()
	}
}

func (b *beforeStream) CreateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) { //nolint:gocritic // the interface's
	b.run(b.create, cfg.Name)
	return b.JetStream.CreateStream(ctx, cfg)
}

func (b *beforeStream) DeleteStream(ctx context.Context, name string) error {
	b.run(b.remove, name)
	return b.JetStream.DeleteStream(ctx, name)
}

// TestCatalog_DeletedWhileItIsMade deletes a container between the makings of its logs: the one that is made
// after that must not stay, because no record names it, and a catalog with such a log opens for nobody.
func TestCatalog_DeletedWhileItIsMade(t *testing.T) {
	t.Parallel()
	js := natstest.Start(t).JS
	plain, err := store.OpenCatalog(t.Context(), js, store.CatalogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	slow := &beforeStream{JetStream: js, create: func(name string) func() {
		if !strings.HasSuffix(name, "_1") {
			return nil
		}
		return func() {
			if err := plain.Delete(t.Context(), "shop", "things"); err != nil {
				t.Error(err)
			}
		}
	}}
	maker, err := store.OpenCatalog(t.Context(), slow, store.CatalogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	spec := store.ContainerSpec{PartitionKey: []string{"/a"}, Partitions: 2}
	if _, err := maker.Create(t.Context(), "shop", "things", spec); err == nil || !slow.done {
		t.Errorf("a container that was deleted meanwhile was made: %v, deleted %v", err, slow.done)
	}
	if now, err := store.Examine(t.Context(), js); err != nil || now.Err() != nil {
		t.Errorf("a log is left that no record names: %v, %v", err, now.Err())
	}
	if _, err := plain.Create(t.Context(), "shop", "things", spec); err != nil {
		t.Errorf("the name cannot be used again: %v", err)
	}
}

// TestCatalog_DeletedWhileItsRecordChanges changes the record between its state and its removal.
func TestCatalog_DeletedWhileItsRecordChanges(t *testing.T) {
	t.Parallel()
	js := natstest.Start(t).JS
	plain, err := store.OpenCatalog(t.Context(), js, store.CatalogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	busy := &beforeStream{JetStream: js, remove: func(string) func() {
		return func() {
			if _, err := plain.Confirm(t.Context(), "shop", "things"); err != nil {
				t.Error(err)
			}
		}
	}}
	deleter, err := store.OpenCatalog(t.Context(), busy, store.CatalogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plain.Create(t.Context(), "shop", "things", store.ContainerSpec{PartitionKey: []string{"/a"}}); err != nil {
		t.Fatal(err)
	}
	if err := deleter.Delete(t.Context(), "shop", "things"); err != nil || !busy.done {
		t.Errorf("%v, changed %v", err, busy.done)
	}
	if _, err := plain.Get(t.Context(), "shop", "things"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the container is still there: %v", err)
	}
}

// TestCatalog_ADeletionThatWasBegunIsNotRefused lets the removal of a log fail: the container is being deleted
// then, and a Keeper goes on with it, so the caller must not learn that nothing was changed.
func TestCatalog_ADeletionThatWasBegunIsNotRefused(t *testing.T) {
	t.Parallel()
	js := &failingRemoval{JetStream: natstest.Start(t).JS}
	c := catalogOf(t, js)
	for _, container := range []string{"a", "b"} {
		if _, err := c.Create(t.Context(), "shop", container, store.ContainerSpec{PartitionKey: []string{"/a"}}); err != nil {
			t.Fatal(err)
		}
	}
	fails := errors.New("no leader")
	js.err = fails
	if err := c.Delete(t.Context(), "shop", "a"); !errors.Is(err, store.ErrUnknown) || !strings.Contains(err.Error(), fails.Error()) {
		t.Errorf("%v, want that the outcome is not known, and why", err)
	}
	if err := c.Delete(t.Context(), "shop", "none"); !errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrUnknown) {
		t.Errorf("of none: %v", err)
	}
	js.err = nil
	if err := c.Delete(t.Context(), "shop", "a"); err != nil {
		t.Error(err)
	}
	js.err = fails
	if err := c.DeleteDatabase(t.Context(), "shop"); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("of the database: %v, want that the outcome is not known", err)
	}
	js.err = nil
	if err := c.DeleteDatabase(t.Context(), "shop"); err != nil {
		t.Error(err)
	}
}

// failingRemoval is a JetStream that removes no stream while it has an error.
type failingRemoval struct {
	jetstream.JetStream
	err error
}

func (f *failingRemoval) DeleteStream(ctx context.Context, name string) error {
	if f.err != nil {
		return f.err
	}
	return f.JetStream.DeleteStream(ctx, name)
}

// What was seen is deleted, and nothing that has its name since; a change of what was seen does not matter.
func TestCatalog_DeletesWhatWasSeen(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	spec := store.ContainerSpec{PartitionKey: []string{"/a"}}
	declare := func() (store.DatabaseInfo, store.ContainerInfo) {
		t.Helper()
		database, err := c.CreateDatabase(t.Context(), "shop")
		if err != nil {
			t.Fatal(err)
		}
		container, err := c.Create(t.Context(), "shop", "things", spec)
		if err != nil {
			t.Fatal(err)
		}
		return database, container
	}
	database, container := declare()
	if err := c.DeleteDatabase(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // there is nothing, and then another
		if err := c.DeleteSeen(t.Context(), &container); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a container that has gone: %v", err)
		}
		if err := c.DeleteDatabaseSeen(t.Context(), &database); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a database that has gone: %v", err)
		}
		if _, err := c.Database(t.Context(), "shop"); errors.Is(err, store.ErrNotFound) {
			declare()
		}
	}
	database, err := c.Database(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	if container, err = c.Get(t.Context(), "shop", "things"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetPolicies(t.Context(), &container, []byte(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetDatabasePolicies(t.Context(), &database, []byte(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteSeen(t.Context(), &container); err != nil {
		t.Error(err)
	}
	if err := c.DeleteDatabaseSeen(t.Context(), &database); err != nil {
		t.Error(err)
	}
	if left := databaseNames(t, c); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
