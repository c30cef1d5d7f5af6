package owner_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

// feeding is a container of one process, whose change feed a client of another
// process reads.
type feeding struct {
	*cluster
	ct     *store.Container // beside the owner
	remote *store.Container
}

func newFeeding(t *testing.T, spec store.ContainerSpec) *feeding {
	t.Helper()
	c := newCluster(t)
	if spec.PartitionKey == nil {
		spec.PartitionKey = []string{"/k"}
	}
	if _, err := c.catalog.Create(t.Context(), "default", "things", spec); err != nil {
		t.Fatal(err)
	}
	p := c.process("one", t.TempDir())
	f := &feeding{cluster: c, ct: c.container(p.client, "things")}
	f.remote = c.container(store.NewClient(c.conn(), c.catalog, patient(nil)), "things")
	return f
}

// key is the partition key of one component.
func (f *feeding) key(component any) feed.PartitionKey {
	f.t.Helper()
	k, err := feed.NewPartitionKey(component)
	if err != nil {
		f.t.Fatal(err)
	}
	return k
}

func (f *feeding) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *feeding) upsert(k, id string, n int) store.Item {
	f.t.Helper()
	item, err := f.ct.Upsert(f.t.Context(), fmt.Appendf(nil, `{"id":%q,"k":%q,"n":%d}`, id, k, n))
	f.must(err)
	return item
}

func (f *feeding) read(r store.ChangesRequest) *store.ChangesPage {
	f.t.Helper()
	page, err := f.remote.Changes(f.t.Context(), r)
	f.must(err)
	return page
}

// shown prints the changes of a page: what happened and to which item.
func shown(p *store.ChangesPage) []string {
	all := []string{}
	for _, c := range p.Changes {
		n := ""
		if v, ok := document.Get(c.Item.Body, document.Path{{Name: "n"}}); ok {
			n = "=" + string(v)
		}
		all = append(all, c.Op.String()+" "+c.Item.ID+n)
	}
	return all
}

func (f *feeding) want(page *store.ChangesPage, end bool, want ...string) {
	f.t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), shown(page)); diff != "" {
		f.t.Errorf("changes (-want +got):\n%s", diff)
	}
	if page.End != end {
		f.t.Errorf("the page says end=%t, want %t", page.End, end)
	}
}

func TestChangesOfBothModes(t *testing.T) {
	f := newFeeding(t, store.ContainerSpec{})
	now := f.read(store.ChangesRequest{Start: feed.StartNow()})
	f.want(now, true)
	a := f.upsert("x", "a", 1)
	f.upsert("x", "b", 1)
	f.upsert("x", "c", 1)
	f.upsert("x", "a", 2)
	f.must(f.ct.Delete(t.Context(), f.key("x"), "b"))
	f.upsert("x", "d", 1)

	f.want(f.read(store.ChangesRequest{}), true, "create c=1", "replace a=2", "create d=1")
	all := f.read(store.ChangesRequest{AllVersions: true})
	f.want(all, true, "create a=1", "create b=1", "create c=1", "replace a=2", "delete b", "create d=1")
	if c := all.Changes[3]; c.Previous != a.ETag || c.Item.ETag == a.ETag || c.Time < all.Changes[0].Time {
		t.Errorf("the second version of a names its first as %v, want %v: %+v", c.Previous, a.ETag, c)
	}
	if c := all.Changes[4]; c.Item.Key != f.key("x") || c.Item.Body != nil || c.Previous != all.Changes[1].Item.ETag {
		t.Errorf("the delete of b: %+v", c)
	}
	f.want(f.read(store.ChangesRequest{AllVersions: true, Continuation: now.Continuation, ItemsMax: 2}), false, "create a=1", "create b=1")

	latest := f.read(store.ChangesRequest{})
	f.want(f.read(store.ChangesRequest{Continuation: latest.Continuation}), true)
	f.upsert("x", "c", 2)
	f.want(f.read(store.ChangesRequest{Continuation: latest.Continuation}), true, "replace c=2")
}

func TestChangesFromATime(t *testing.T) {
	f := newFeeding(t, store.ContainerSpec{})
	first := f.upsert("x", "a", 1)
	later := first
	for n := 2; later.Modified <= first.Modified; n++ { // milliseconds pass
		later = f.upsert("x", "b", n)
	}
	start := feed.StartTime(time.UnixMilli(later.Modified))
	f.want(f.read(store.ChangesRequest{Start: start}), true, shown(f.read(store.ChangesRequest{}))[1:]...)
	future := f.read(store.ChangesRequest{Start: feed.StartTime(time.Now().Add(time.Hour))})
	f.want(future, true)
	f.upsert("x", "c", 1)
	f.want(f.read(store.ChangesRequest{Continuation: future.Continuation}), true, "create c=1")
}

// A batch comes whole, or not in this page.
func TestChangesKeepTransactionsWhole(t *testing.T) {
	f := newFeeding(t, store.ContainerSpec{})
	batch := func(ids ...string) {
		ops := make([]store.Operation, 0, len(ids))
		for _, id := range ids {
			ops = append(ops, store.Operation{Kind: store.OpUpsert, Body: fmt.Appendf(nil, `{"id":%q,"k":"x"}`, id)})
		}
		res, err := f.ct.Batch(t.Context(), f.key("x"), ops, "")
		if f.must(err); res.Failed {
			t.Fatalf("batch: %+v", res)
		}
	}
	batch("a", "b")
	batch("c", "d", "e")
	batch("f")
	for _, test := range []struct {
		itemsMax int
		want     [][]string
	}{
		{1, [][]string{{"a", "b"}, {"c", "d", "e"}, {"f"}}},
		{2, [][]string{{"a", "b"}, {"c", "d", "e"}, {"f"}}},
		{3, [][]string{{"a", "b"}, {"c", "d", "e"}, {"f"}}},
		{4, [][]string{{"a", "b"}, {"c", "d", "e", "f"}}},
		{5, [][]string{{"a", "b", "c", "d", "e"}, {"f"}}},
		{100, [][]string{{"a", "b", "c", "d", "e", "f"}}},
	} {
		for _, all := range []bool{false, true} {
			t.Run(fmt.Sprintf("items=%d/all=%t", test.itemsMax, all), func(t *testing.T) {
				var got [][]string
				for r := (store.ChangesRequest{ItemsMax: test.itemsMax, AllVersions: all}); ; {
					page := f.read(r)
					if len(page.Changes) == 0 {
						break
					}
					var ids []string
					for _, c := range page.Changes {
						ids = append(ids, c.Item.ID)
					}
					got = append(got, ids)
					r.Continuation = page.Continuation
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("pages (-want +got):\n%s", diff)
				}
			})
		}
	}
	// Of a batch that was written over in part the rest stays.
	f.upsert("x", "d", 1)
	f.want(f.read(store.ChangesRequest{ItemsMax: 4}), false, "create a", "create b", "create c", "create e")
}

func TestChangesOfScopes(t *testing.T) {
	t.Parallel()
	f := newFeeding(t, store.ContainerSpec{Partitions: 4})
	byPartition, byRange := map[uint32][]string{}, map[bool][]string{}
	half := feed.Range{Max: feed.EvenRanges(8)[3].Max} // cuts a partition
	for i := range 60 {
		k := fmt.Sprint("k", i%20)
		id := fmt.Sprint("i", i)
		f.upsert(k, id, i)
		p := f.ct.PartitionFor(f.key(k)).Number
		byPartition[p] = append(byPartition[p], id)
		in := half.Contains(f.key(k).Hash())
		byRange[in] = append(byRange[in], id)
	}
	ids := func(scope store.ChangeScope, itemsMax int) []string {
		var all []string
		for r := (store.ChangesRequest{Scope: scope, ItemsMax: itemsMax}); ; {
			page := f.read(r)
			for _, c := range page.Changes {
				all = append(all, c.Item.ID)
			}
			if page.End {
				return all
			}
			r.Continuation = page.Continuation
		}
	}
	same := func(what string, want, got []string) {
		t.Helper()
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	var all []string
	for p, want := range byPartition {
		if got := ids(store.ChangeScope{Partitions: []uint32{p}}, 3); !slices.Equal(want, got) {
			t.Errorf("partition %d in order: want %v, got %v", p, want, got)
		}
		all = append(all, want...)
	}
	if len(byPartition) != 4 || len(byRange[true]) == 0 || len(byRange[false]) == 0 {
		t.Fatalf("the keys do not spread: %v %v", byPartition, byRange)
	}
	same("the container", all, ids(store.ChangeScope{}, 7))
	same("a range", byRange[true], ids(store.ChangeScope{Range: half}, 2))
	same("its rest", byRange[false], ids(store.ChangeScope{Range: feed.Range{Min: half.Max, Max: feed.EPKMax}}, 100))
	same("a key", []string{"i7", "i27", "i47"}, ids(store.ChangeScope{Key: f.key("k7")}, 1))
	p := f.ct.PartitionFor(f.key("k7")).Number
	same("a key in its partition", []string{"i7", "i27", "i47"}, ids(store.ChangeScope{Key: f.key("k7"), Partitions: []uint32{p}}, 1))
	same("a key in another partition", nil, ids(store.ChangeScope{Key: f.key("k7"), Partitions: []uint32{(p + 1) % 4}}, 1))
	if _, err := f.remote.Changes(t.Context(), store.ChangesRequest{Scope: store.ChangeScope{Partitions: []uint32{9}}}); !errors.Is(err, store.ErrNotOwner) {
		t.Errorf("a partition that is not there: %v", err)
	}
}

func TestChangesRefuseForeignContinuations(t *testing.T) {
	f := newFeeding(t, store.ContainerSpec{Partitions: 2})
	f.upsert("x", "a", 1)
	good := f.read(store.ChangesRequest{}).Continuation
	one := f.read(store.ChangesRequest{Scope: store.ChangeScope{Partitions: []uint32{1}}}).Continuation
	f.read(store.ChangesRequest{Scope: store.ChangeScope{Partitions: []uint32{1}}, Continuation: good}) // has more than is needed
	rid := string(f.ct.Info().ID)
	nowhere := store.ChangesRequest{Scope: store.ChangeScope{Partitions: []uint32{}}}
	nowhere.Continuation = f.read(nowhere).Continuation
	f.want(f.read(nowhere), true)
	for _, text := range []string{
		one, nowhere.Continuation, "abcdefgh" + strings.TrimPrefix(good, rid), rid + "/0@99999,1@1", rid, rid + "/", rid + "/0@1", rid + "/0@1,0@1,1@1", rid + "/0@1.0,1@1",
		rid + "/0@0.5,1@1", rid + "/0@01,1@1", rid + "/0@-1,1@1", rid + "/0@1,1@1,", rid + "/0@18446744073709551615,1@1", "x", "/", "*",
	} {
		if _, err := f.remote.Changes(t.Context(), store.ChangesRequest{Continuation: text}); !errors.Is(err, store.ErrBadRequest) {
			t.Errorf("%q: %v, want 400", text, err)
		}
	}
	f.must(f.catalog.Delete(t.Context(), "default", "things"))
	if _, err := f.remote.Changes(t.Context(), store.ChangesRequest{Continuation: good}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of a container that was deleted: %v, want 404", err)
	}
}

func TestChangesOfExpiredItems(t *testing.T) {
	t.Parallel()
	f := newFeeding(t, store.ContainerSpec{TTL: -1})
	f.upsert("x", "long", 1)
	_, err := f.ct.Create(t.Context(), []byte(`{"id":"short","k":"x","ttl":1}`)) // last, because it expires soon
	f.must(err)
	poll.Until(t, func() error {
		all := f.read(store.ChangesRequest{AllVersions: true})
		if last := all.Changes[len(all.Changes)-1]; last.Op != feed.OpExpire {
			return fmt.Errorf("the item did not expire: %v", shown(all))
		}
		f.want(all, true, "create long=1", "create short", "expire short")
		return nil
	})
	f.want(f.read(store.ChangesRequest{}), true, "create long=1")
}

// Readers that follow a container while it is written end with what it holds, and
// one of all versions sees each change once and in order.
func TestChangesFollowAWriter(t *testing.T) {
	t.Parallel()
	f := newFeeding(t, store.ContainerSpec{Partitions: 3})
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := rand.New(rand.NewPCG(1, 2))
		for n := range 600 {
			if err := f.writeAny(t.Context(), r, n); err != nil {
				t.Errorf("write %d: %v", n, err)
				return
			}
		}
	}()
	r := rand.New(rand.NewPCG(3, 4))
	latest, all := map[string]string{}, map[string]string{}
	at := map[uint32]store.ETag{}
	lr, ar := store.ChangesRequest{}, store.ChangesRequest{AllVersions: true}
	for ended := false; ; {
		lr.ItemsMax, ar.ItemsMax = 1+r.IntN(40), 1+r.IntN(40)
		lp, ap := f.read(lr), f.read(ar)
		lr.Continuation, ar.Continuation = lp.Continuation, ap.Continuation
		seen := map[string]bool{}
		for _, c := range lp.Changes {
			ref := store.ItemRef{Key: c.Item.Key, ID: c.Item.ID}.String()
			if seen[ref] {
				t.Errorf("%s is twice in one page", ref)
			}
			seen[ref] = true
			latest[ref] = string(c.Item.Body)
		}
		for _, c := range ap.Changes {
			ref := store.ItemRef{Key: c.Item.Key, ID: c.Item.ID}.String()
			p := f.ct.PartitionFor(c.Item.Key).Number
			if before := at[p]; !feed.Position(before).Before(feed.Position(c.Item.ETag)) {
				t.Errorf("partition %d: change %s comes after %s", p, c.Item.ETag, before)
			}
			at[p] = c.Item.ETag
			if _, there := all[ref]; there == (c.Op == feed.OpCreate) {
				t.Errorf("%s of %s, which is there: %t", c.Op, ref, there)
			}
			if all[ref] = string(c.Item.Body); c.Item.Body == nil {
				delete(all, ref)
			}
		}
		if ended && lp.End && ap.End && len(lp.Changes)+len(ap.Changes) == 0 {
			break
		}
		select {
		case <-done:
			ended = true
		default:
		}
	}
	for ref := range latest { // deletes do not come
		if _, ok := all[ref]; !ok {
			delete(latest, ref)
		}
	}
	if diff := cmp.Diff(f.items(), all); diff != "" {
		t.Errorf("from all versions (-held +read):\n%s", diff)
	}
	if diff := cmp.Diff(f.items(), latest); diff != "" {
		t.Errorf("from latest versions (-held +read):\n%s", diff)
	}
}

// writeAny writes one of a few items, or some in a batch, or deletes one.
func (f *feeding) writeAny(ctx context.Context, r *rand.Rand, n int) error {
	k, err := feed.NewPartitionKey(fmt.Sprint("k", r.IntN(9)))
	if err != nil {
		return err
	}
	body := func(id int) []byte {
		return fmt.Appendf(nil, `{"id":"i%d","k":%q,"n":%d}`, id, k.Components()[0], n)
	}
	switch r.IntN(5) {
	case 0:
		err = f.ct.Delete(ctx, k, fmt.Sprint("i", r.IntN(9)))
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return err
	case 1:
		var ops []store.Operation
		for id := range 1 + r.IntN(6) {
			ops = append(ops, store.Operation{Kind: store.OpUpsert, Body: body(id)})
		}
		_, err = f.ct.Batch(ctx, k, ops, "")
		return err
	}
	_, err = f.ct.Upsert(ctx, body(r.IntN(9)))
	return err
}

// items are all that the container holds.
func (f *feeding) items() map[string]string {
	f.t.Helper()
	all := map[string]string{}
	for _, p := range f.ct.Partitions() {
		res, err := f.ct.Scan(f.t.Context(), p, store.Scan{ItemsMax: 1000})
		f.must(err)
		for _, item := range res.Items {
			all[store.ItemRef{Key: item.Key, ID: item.ID}.String()] = string(item.Body)
		}
	}
	return all
}
