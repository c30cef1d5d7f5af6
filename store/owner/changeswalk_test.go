package owner_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// walkAll is the continuation of a walk through a whole container that has shown nothing;
// floor is what follows the mark of each partition.
func (f *feeding) walkAll(floor string) string {
	var parts []string
	for _, p := range f.ct.Info().Partitions {
		parts = append(parts, fmt.Sprintf("%d@0!%s", p.Number, floor))
	}
	return string(f.ct.Info().ID) + "/" + strings.Join(parts, ",")
}

// follower reads latest versions page by page and checks what each reader may rely on.
type follower struct {
	f     *feeding
	name  string
	r     store.ChangesRequest
	seen  map[string]store.ETag // the version of each item that came last
	floor map[uint32]feed.LSN   // up to which it knows all, by partition
	ended bool                  // the last page was the end and empty
}

func (w *follower) page(itemsMax int) {
	w.f.t.Helper()
	w.r.ItemsMax = itemsMax
	page := w.f.read(w.r)
	w.r.Continuation, w.ended = page.Continuation, page.End && len(page.Changes) == 0
	last := map[uint32]feed.Position{}
	for i := range page.Changes {
		c := &page.Changes[i]
		ref := store.ItemRef{Key: c.Item.Key, ID: c.Item.ID}.String()
		at, p := feed.Position(c.Item.ETag), w.f.ct.PartitionFor(c.Item.Key).Number
		if before := feed.Position(w.seen[ref]); !before.Before(at) {
			w.f.t.Errorf("%s: %s comes at %s after %s", w.name, ref, at, before)
		}
		if !last[p].Before(at) {
			w.f.t.Errorf("%s: in a page of partition %d %s comes after %s", w.name, p, at, last[p])
		}
		if at.LSN <= w.floor[p] {
			w.f.t.Errorf("%s: %s comes at %s, and all up to %d was known", w.name, ref, at, w.floor[p])
		}
		w.seen[ref], last[p] = c.Item.ETag, at
	}
	if open := strings.Count(page.Continuation, "!A"); open > 1 {
		w.f.t.Errorf("%s: %d walks are open at once: %s", w.name, open, page.Continuation)
	}
}

// versions are those of the items in a scope, but for those up to a floor in each partition.
func (f *feeding) versions(scope store.ChangeScope, floor map[uint32]feed.LSN) map[string]store.ETag {
	f.t.Helper()
	all := map[string]store.ETag{}
	for _, p := range f.ct.Partitions() {
		res, err := f.ct.Scan(f.t.Context(), p, store.Scan{ItemsMax: 1000, Barrier: true})
		f.must(err)
		for _, item := range res.Items {
			in := scope.Key.IsZero() || scope.Key == item.Key
			in = in && (scope.Range == feed.Range{} || scope.Range.Contains(item.Key.Hash()))
			in = in && (scope.Partitions == nil || slices.Contains(scope.Partitions, p.Number))
			if in && item.ETag.LSN > floor[p.Number] {
				all[store.ItemRef{Key: item.Key, ID: item.ID}.String()] = item.ETag
			}
		}
	}
	return all
}

// settle reads to the end and checks that the newest version of each item has come.
func (w *follower) settle() {
	w.f.t.Helper()
	for pages := 0; pages == 0 || !w.ended; pages++ {
		if pages > 1000 {
			w.f.t.Fatalf("%s: there is no end: %s", w.name, w.r.Continuation)
		}
		w.page(1 + pages%50)
	}
	held := w.f.versions(w.r.Scope, w.floor)
	for ref := range w.seen { // deletes do not come
		if _, there := held[ref]; !there {
			delete(w.seen, ref)
		}
	}
	if diff := cmp.Diff(held, w.seen); diff != "" {
		w.f.t.Errorf("%s (-held +read):\n%s", w.name, diff)
	}
}

// Walks of several scopes and page sizes, with writes between their pages, restarts of the
// owner and floors: no version that stays is missed, and none comes twice.
func TestI4_WalksOfLatestVersionsModel(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dir := t.TempDir()
	_, err := c.catalog.Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/k"}, Partitions: 3})
	f := &feeding{cluster: c}
	f.must(err)
	stop := f.open(dir)
	half := feed.Range{Max: feed.EvenRanges(8)[3].Max} // cuts a partition
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		write := func(count int) {
			for range count {
				f.must(f.writeAny(t.Context(), r, r.IntN(1000)))
			}
		}
		write(30)
		floors := map[uint32]feed.LSN{}
		for _, p := range f.ct.Partitions() {
			res, err := f.ct.Scan(t.Context(), p, store.Scan{ItemsMax: 1, Barrier: true})
			f.must(err)
			floors[p.Number] = res.LSN
		}
		var floored []string
		for number, lsn := range floors {
			floored = append(floored, fmt.Sprintf("%d@0!!%d", number, lsn))
		}
		var readers []*follower
		for i, scope := range []store.ChangeScope{
			{}, {Range: half}, {Range: feed.Range{Min: half.Max, Max: feed.EPKMax}}, {Key: f.key("k3")}, {Partitions: []uint32{1}},
		} {
			name := fmt.Sprintf("seed %d, scope %d", seed, i)
			all := &follower{f: f, name: name, seen: map[string]store.ETag{}, r: store.ChangesRequest{Scope: scope, Continuation: f.walkAll("")}}
			some := &follower{f: f, name: name + " behind a floor", seen: map[string]store.ETag{}, floor: floors}
			some.r = store.ChangesRequest{Scope: scope, Continuation: string(f.ct.Info().ID) + "/" + strings.Join(floored, ",")}
			readers = append(readers, all, some)
		}
		write(r.IntN(10))
		for round := range 8 {
			for _, w := range readers {
				if r.IntN(3) > 0 {
					w.page(1 + r.IntN(12))
				}
			}
			write(r.IntN(8))
			if round == 4 && seed%10 == 3 {
				stop()
				stop = f.open(dir)
			}
		}
		for _, w := range readers {
			w.settle()
		}
		if t.Failed() {
			return
		}
	}
}

// Commits come between the reading of a page and that of the log, and while the owner
// applies one.
func TestI4_AWalkFollowsAWriter(t *testing.T) {
	t.Parallel()
	f := newFeeding(t, store.ContainerSpec{Partitions: 2})
	for seed := range uint64(25) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			r := rand.New(rand.NewPCG(seed, 2))
			for n := range 60 {
				if err := f.writeAny(t.Context(), r, n); err != nil {
					t.Errorf("write %d: %v", n, err)
					return
				}
			}
		}()
		r := rand.New(rand.NewPCG(seed, 4))
		w := &follower{f: f, name: fmt.Sprint("seed ", seed), seen: map[string]store.ETag{}, r: store.ChangesRequest{Continuation: f.walkAll("")}}
		for ended := false; !ended; {
			select {
			case <-done:
				ended = true
			default:
			}
			w.page(1 + r.IntN(5))
		}
		w.settle()
	}
}

// What a reader pays who begins at the beginning follows what lives: a long log is not read.
func TestChangesFromTheBeginningOfALongLog(t *testing.T) {
	t.Parallel()
	f := newFeeding(t, store.ContainerSpec{})
	for i := range 250 {
		f.upsert(fmt.Sprint("k", i%10), fmt.Sprintf("i%03d", i), i)
	}
	f.want(f.read(store.ChangesRequest{ItemsMax: 2}), false, "create i000=0", "create i001=1") // a short log shows its order
	fill := strings.Repeat("x", 1<<20)
	for n := range 12 {
		_, err := f.ct.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"big","k":"k1","n":%d,"fill":"%s%d"}`, n, fill, n))
		f.must(err)
	}
	w := &follower{f: f, name: "from the beginning", seen: map[string]store.ETag{}}
	pages := 0
	for ; pages == 0 || !w.ended; pages++ {
		w.page(100)
		if pages == 0 && len(w.seen) != 100 {
			t.Errorf("the first page has %d items", len(w.seen))
		}
	}
	if pages > 5 {
		t.Errorf("%d pages", pages)
	}
	w.settle()
	now := w.r.Continuation
	if strings.Contains(now, "!") {
		t.Errorf("a walk that is done is followed by %s", now)
	}
	f.upsert("k2", "i002", 7)
	f.want(f.read(store.ChangesRequest{Continuation: now}), true, "replace i002=7")
	// All versions are read from the log.
	if page := f.read(store.ChangesRequest{AllVersions: true, ItemsMax: 1}); len(page.Changes) != 1 || page.Changes[0].Item.ID != "i000" {
		t.Errorf("all versions begin with %v", shown(page))
	}
	if _, err := f.remote.Changes(t.Context(), store.ChangesRequest{AllVersions: true, Continuation: f.walkAll("")}); err == nil {
		t.Error("a walk goes on as a reader of all versions")
	}
}

// open starts the process that owns the container, or starts it again.
func (f *feeding) open(dir string) (stop func()) {
	f.t.Helper()
	p := f.process("one", dir)
	f.ct = f.container(p.client, "things")
	f.remote = f.container(store.NewClient(f.conn(), f.catalog, store.ClientConfig{}), "things")
	return p.stop
}

// trim takes away the commits before one, while nobody owns the log.
func (f *feeding) trim(p feed.Partition, last feed.LSN) {
	f.t.Helper()
	log, err := feed.OpenLog(f.t.Context(), f.js, p, feed.LogConfig{})
	f.must(err)
	defer log.Close()
	_, end, err := log.Bounds(f.t.Context())
	f.must(err)
	before, err := log.Read(f.t.Context(), end)
	f.must(err)
	c := &feed.Commit{
		ID: feed.NewCommitID(), Log: log.ID(), Prev: before.Sum, Epoch: before.Epoch, Owner: before.Owner, Time: before.Time, Trimmed: last - 1,
	}
	_, err = log.Append(f.t.Context(), end, c.ID, feed.AppendCommit(nil, c))
	f.must(err)
	_, err = log.Trim(f.t.Context(), last-1)
	f.must(err)
}

// The log goes while a reader is away: it is shown what changed since, and whoever begins
// at the beginning or at a time is shown what is there.
func TestChangesBehindATrim(t *testing.T) {
	c := newCluster(t)
	f, dir := &feeding{cluster: c}, t.TempDir()
	_, err := c.catalog.Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/k"}})
	f.must(err)
	stop := f.open(dir)
	for i := range 6 {
		f.upsert("k", fmt.Sprint("a", i), 1)
	}
	away := f.read(store.ChangesRequest{}).Continuation
	halfway := store.ChangesRequest{ItemsMax: 2, Continuation: f.walkAll("")}
	halfway.Continuation = f.read(halfway).Continuation // it has shown a0 and a1
	before := f.upsert("k", "b", 1)
	later := before
	for n := 2; later.Modified <= before.Modified; n++ { // milliseconds pass
		later = f.upsert("k", "c", n)
	}
	f.upsert("k", "a4", 2)
	f.must(f.ct.Delete(t.Context(), f.key("k"), "a5"))
	last := f.upsert("k", "a1", 2)
	stop()
	f.trim(f.ct.Partitions()[0], last.ETag.LSN)
	f.open(dir)

	ids := func(r store.ChangesRequest) (all []string) {
		for end := false; !end; {
			page := f.read(r)
			for i := range page.Changes {
				all = append(all, page.Changes[i].Item.ID)
			}
			r.Continuation, r.Start, end = page.Continuation, feed.Start{}, page.End
		}
		return all
	}
	since := feed.StartTime(time.UnixMilli(later.Modified))
	for _, test := range []struct {
		name string
		r    store.ChangesRequest
		want []string
	}{
		{"one that was away", store.ChangesRequest{Continuation: away}, []string{"b", "c", "a4", "a1"}},
		{"one that was away, by small pages", store.ChangesRequest{Continuation: away, ItemsMax: 1}, []string{"a1", "a4", "b", "c"}},
		{"one in the middle of a walk begins it again", halfway, []string{"a0", "a1", "a2", "a3", "b", "a4", "c"}},
		{"from the beginning", store.ChangesRequest{}, []string{"a0", "a2", "a3", "b", "c", "a4", "a1"}},
		{"from a time", store.ChangesRequest{Start: since}, []string{"c", "a4", "a1"}},
		{"from a time, by small pages", store.ChangesRequest{Start: since, ItemsMax: 1}, []string{"a1", "a4", "c"}},
	} {
		if diff := cmp.Diff(test.want, ids(test.r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}
