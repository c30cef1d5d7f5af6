package pipelines_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/store"
)

// system is an embedded NATS server with a catalog and a registry.
type system struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	client   *store.Client
	registry *registry.Registry
}

func newSystem(t testing.TB) *system {
	t.Helper()
	return systemOf(t, storetest.System(t))
}

func systemOf(t testing.TB, below *storetest.Store) *system {
	t.Helper()
	s := &system{nc: below.NC, js: below.JS, client: below.Client}
	var err error
	if s.registry, err = registry.Open(t.Context(), s.js, s.client, registry.Config{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// apply applies text, or files, and returns a line for each outcome.
func (s *system) apply(t testing.TB, r *spec.Resources, opts ...registry.ApplyOptions) []string {
	t.Helper()
	outcomes, err := s.registry.Apply(t.Context(), r, opts...)
	if err != nil {
		t.Fatal(err)
	}
	lines := make([]string, len(outcomes))
	for i, o := range outcomes {
		lines[i] = o.String()
	}
	return lines
}

func load(t testing.TB, path string) *spec.Resources {
	t.Helper()
	r, err := spec.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func decode(t testing.TB, text string) *spec.Resources {
	t.Helper()
	r, err := spec.Decode("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestApply(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	r := load(t, "testdata/shop")
	want := []string{
		"container default/customer created",
		"container default/product created",
		"container default/productMeta created",
		"pipeline default/category-names created",
		"pipeline default/tag-names created: index /tags/*/id is added to container product",
	}
	if diff := cmp.Diff(want, s.apply(t, r)); diff != "" {
		t.Errorf("first time (-want +got):\n%s", diff)
	}
	first, err := s.registry.Get(t.Context(), "default", "tag-names")
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Starts) != 4 || first.Starts[2].After.LSN != 1 || !strings.HasPrefix(first.ID, "tag-names-") {
		t.Errorf("record: %+v", first)
	}
	for i, line := range s.apply(t, r) {
		if got, _ := strings.CutSuffix(want[i], "created"); !strings.HasSuffix(line, "unchanged") {
			t.Errorf("second time: %s, want %sunchanged", line, got)
		}
	}
	info, err := s.client.Catalog().Get(t.Context(), "default", "product")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/tags/*/id"}, info.IndexesWanted); diff != "" {
		t.Errorf("indexes wanted:\n%s", diff)
	}
}

const tagNames = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: tag-names}
spec:
  source: {container: productMeta, where: WHERE}
  cascade: {into: product, each: tags, match: {id: id}, set: SET, onSourceDelete: clear}
`

func tagNamesWith(t testing.TB, where, set string) *spec.Resources {
	t.Helper()
	return decode(t, strings.NewReplacer("WHERE", where, "SET", set).Replace(tagNames))
}

func TestApplyChanges(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.apply(t, load(t, "testdata/shop"))
	get := func() registry.Record {
		t.Helper()
		rec, err := s.registry.Get(t.Context(), "default", "tag-names")
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	first := get()
	if _, err := s.registry.Pause(t.Context(), "default", "tag-names"); err != nil {
		t.Fatal(err)
	}

	got := s.apply(t, tagNamesWith(t, `(type="tag")`, "{name: name}"))
	if want := "pipeline default/tag-names changed: it means the same, so nothing is copied anew"; got[0] != want {
		t.Errorf("other words: %s", got[0])
	}
	if rec := get(); rec.Generation != 1 || rec.Spec.Source.Where.String() != `(type="tag")` || !rec.Paused {
		t.Errorf("other words: %+v", rec)
	}

	other := tagNamesWith(t, `(type="tag")`, "{name: name, colour: colour}")
	_, err := s.registry.Apply(t.Context(), other)
	if refused, ok := errors.AsType[*registry.RefusedError](err); !ok || !strings.Contains(refused.Error(), "test.yaml:6:3: pipeline default/tag-names: what it has written as generation 1 does not hold") {
		t.Errorf("another meaning, unasked: %v", err)
	}
	if rec := get(); rec.Generation != 1 {
		t.Errorf("another meaning, unasked: %+v", rec)
	}

	got = s.apply(t, other, registry.ApplyOptions{Backfill: true})
	if want := "pipeline default/tag-names changed: generation 2: every copy is set again where it differs"; got[0] != want {
		t.Errorf("another meaning: %s", got[0])
	}
	if rec := get(); rec.Generation != 2 || rec.ID != first.ID || !rec.Created.Equal(first.Created) || !rec.Paused {
		t.Errorf("another meaning: %+v", rec)
	}

	if err := s.registry.Delete(t.Context(), "default", "tag-names"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.registry.Get(t.Context(), "default", "tag-name"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
	s.apply(t, tagNamesWith(t, `type = "tag"`, "{name: name}"))
	if rec := get(); rec.ID == first.ID || rec.Generation != 1 || rec.Paused {
		t.Errorf("made again: %+v", rec)
	}
}

// TestApplyAfterContainerWasMadeAgain begins a new generation: the positions of
// the old one are those of logs that are gone.
func TestApplyAfterContainerWasMadeAgain(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	r := load(t, "testdata/shop")
	s.apply(t, r)
	if err := s.client.Catalog().Delete(t.Context(), "default", "product"); err != nil {
		t.Fatal(err)
	}
	s.apply(t, r)
	for _, name := range []string{"category-names", "tag-names"} {
		rec, err := s.registry.Get(t.Context(), "default", name)
		if err != nil {
			t.Fatal(err)
		}
		if rec.Generation != 2 {
			t.Errorf("%s has generation %d, want 2", name, rec.Generation)
		}
	}
}

// TestApplyKeepsIndexesThatPipelinesNeed takes an index out of a declaration.
func TestApplyKeepsIndexesThatPipelinesNeed(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	const product = "apiVersion: millrace/v1\nkind: Container\nmetadata: {name: product}\nspec: {partitionKey: [/categoryId], partitions: 4, indexes: INDEXES}\n"
	s.apply(t, decode(t, strings.Replace(product, "INDEXES", "[/tags/*/id, /sku]", 1)))
	s.apply(t, load(t, "testdata/shop/productMeta.yaml"))
	s.apply(t, load(t, "testdata/shop/tag-names.yaml"))
	if got := s.apply(t, decode(t, strings.Replace(product, "INDEXES", "[/sku]", 1))); got[0] != "container default/product changed" {
		t.Errorf("%v", got)
	}
	info, err := s.client.Catalog().Get(t.Context(), "default", "product")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/tags/*/id"}, info.IndexesWanted); diff != "" {
		t.Errorf("indexes wanted:\n%s", diff)
	}
}

func TestApplyRefusesAndChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	r := decode(t, "apiVersion: millrace/v1\nkind: Container\nmetadata: {name: good}\nspec: {partitionKey: [/id]}\n---"+
		strings.NewReplacer("WHERE", "true", "SET", "{name: name}").Replace(tagNames))
	_, err := s.registry.Apply(t.Context(), r)
	if _, ok := errors.AsType[spec.Findings](err); !ok {
		t.Fatalf("%v", err)
	}
	if _, err := s.client.Catalog().Get(t.Context(), "default", "good"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the good container was made: %v", err)
	}
}

func TestRegistryTellsWhatIsMeant(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.apply(t, load(t, "testdata/shop"))
	_, err := s.registry.Pause(t.Context(), "default", "tagnames")
	if want := "pipeline default/tagnames is not registered; did you mean tag-names?"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	users, err := s.registry.Users(t.Context(), "default", "product")
	if err != nil || len(users) != 2 {
		t.Errorf("users of product: %v, %v", users, err)
	}
	if users, err = s.registry.Users(t.Context(), "default", "customer"); err != nil || len(users) != 0 {
		t.Errorf("users of customer: %v, %v", users, err)
	}
}

func TestWatchSeesEveryState(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	seen := make(chan []registry.Record, 16)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.registry.Watch(ctx, func(all []registry.Record) { seen <- all }) }()
	until := func(what string, ok func([]registry.Record) bool) {
		t.Helper()
		for {
			select {
			case all := <-seen:
				if ok(all) {
					return
				}
			case <-t.Context().Done():
				t.Fatalf("%s was not seen", what)
			}
		}
	}
	until("the empty registry", func(all []registry.Record) bool { return len(all) == 0 })
	s.apply(t, load(t, "testdata/shop"))
	until("two pipelines", func(all []registry.Record) bool { return len(all) == 2 && all[0].Name == "category-names" })
	if _, err := s.registry.Pause(t.Context(), "default", "tag-names"); err != nil {
		t.Fatal(err)
	}
	until("the pause", func(all []registry.Record) bool { return all[1].Paused })
	if err := s.registry.Delete(t.Context(), "default", "category-names"); err != nil {
		t.Fatal(err)
	}
	until("the deletion", func(all []registry.Record) bool { return len(all) == 1 && all[0].Name == "tag-names" })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
