package owner

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// names asks for pages of a fan-out that sets name, until it is done or pages
// are used up.
type fan struct {
	t        *testing.T
	n        *node
	req      store.PatchMany
	pages    int
	patched  int
	scanned  int
	lastPage *store.PatchManyResult
}

func newFan(t *testing.T, n *node, scope store.Scope) *fan {
	t.Helper()
	return &fan{t: t, n: n, req: store.PatchMany{
		Producer: feed.Producer{Pipeline: "p", Generation: 1, Source: "s/0"}, Epoch: 1, Source: "c", Scope: scope, ItemsMax: 10,
	}}
}

func (f *fan) set(lsn feed.LSN, name string) {
	f.req.Position = feed.Position{LSN: lsn}
	f.req.Copy = store.Copy{Action: store.CopySet, Set: []store.Field{{Path: "name", Value: []byte(name)}}}
	f.req.NotAfter = 0
}

func (f *fan) page() *store.PatchManyResult {
	f.t.Helper()
	req := f.req
	r := f.n.ask(&store.Request{PatchMany: &req})
	if r.Err != nil {
		f.t.Fatal(r.Err)
	}
	f.pages++
	f.patched += r.PatchMany.Patched
	f.scanned += r.PatchMany.Scanned
	f.lastPage = r.PatchMany
	return r.PatchMany
}

func (f *fan) finish() {
	f.t.Helper()
	for range 1000 {
		if f.page().Done {
			return
		}
	}
	f.t.Fatal("the fan-out does not end")
}

func fill(t *testing.T, n *node, k feed.PartitionKey, count int) {
	t.Helper()
	for i := range count {
		n.mustOne(k, create(fmt.Sprintf(`{"id":"%03d","a":"x","name":"old","tags":[{"id":"t","name":"old"}]}`, i)))
	}
}

func (n *node) countNames(k feed.PartitionKey, count int) map[string]int {
	n.w.t.Helper()
	names := map[string]int{}
	for i := range count {
		names[n.read(k, fmt.Sprintf("%03d", i))]++
	}
	return names
}

func TestPagesCoverAScopeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/a"}, Indexes: []string{"/tags/*/id"}})
	n := w.start(t.TempDir())
	k := pk(t, "x")
	fill(t, n, k, 95)
	for name, scope := range map[string]store.Scope{
		"logical partition": {Key: k},
		"index":             {Index: "/tags/*/id", Value: []byte(`"t"`)},
		"all":               {},
	} {
		f := newFan(t, n, scope)
		f.req.Source = name
		f.set(10, `"`+name+`"`)
		f.finish()
		if f.patched != 95 || f.scanned != 95 || f.pages != 10 {
			t.Errorf("%s: %d pages scanned %d, patched %d", name, f.pages, f.scanned, f.patched)
		}
		if again := f.page(); !again.Done || again.Scanned != 0 {
			t.Errorf("%s: done, and asked again: %+v", name, again)
		}
	}
}

func TestPagesSeeWhatIsInFlight(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	fill(t, n, k, 3)
	arrived, release := n.log.hold()
	go func() { _, _ = n.one(k, create(`{"id":"0005","a":"x","name":"old"}`)) }()
	<-arrived
	f := newFan(t, n, store.Scope{Key: k})
	f.set(10, `"new"`)
	done := make(chan struct{})
	go func() { defer close(done); f.finish() }()
	n.decided(1)
	release()
	<-done
	if f.patched != 4 {
		t.Errorf("patched %d of 4 items", f.patched)
	}
}

func TestTwoPagesAtOnceDoNotRepeatEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	fill(t, n, k, 100)
	f := newFan(t, n, store.Scope{Key: k})
	f.set(10, `"new"`)
	scanned := make(chan int, 2)
	for range 2 {
		go func() {
			total := 0
			for {
				req := f.req
				r := n.ask(&store.Request{PatchMany: &req})
				if r.Err != nil {
					t.Error(r.Err)
					break
				}
				total += r.PatchMany.Scanned
				if r.PatchMany.Done {
					break
				}
			}
			scanned <- total
		}()
	}
	if total := <-scanned + <-scanned; total != 100 {
		t.Errorf("scanned %d items, want 100", total)
	}
}

func TestANewerSourceTakesOverHalfWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byA)
	dir := t.TempDir()
	n := w.start(dir)
	k := pk(t, "x")
	fill(t, n, k, 50)
	f := newFan(t, n, store.Scope{Key: k})
	f.set(10, `"one"`)
	f.page()
	f.page() // 20 items are named one
	f.set(11, `"two"`)
	f.page() // 10 more are named two
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n = w.start(dir) // the cursor survives
	f.n = n
	f.finish()
	if f.scanned != 20+50 {
		t.Errorf("scanned %d items, want 70: the scan goes on and comes round", f.scanned)
	}
	if f.patched != 70 {
		t.Errorf("patched %d items, want 70", f.patched)
	}
	f.set(10, `"one"`)
	if r := f.page(); !r.Superseded || r.Patched != 0 || r.Position.LSN != 11 {
		t.Errorf("an older version was answered %+v", r)
	}
	for body, count := range n.countNames(k, 50) {
		if count != 1 || body == "" {
			t.Errorf("%d items are %s", count, body)
		}
	}
}

func TestAPageThatComesAfterItsFanOutWasForgottenIsLate(t *testing.T) {
	w := newWorld(t, byA)
	dir := t.TempDir()
	n := w.start(dir)
	k := pk(t, "x")
	fill(t, n, k, 3)
	f := newFan(t, n, store.Scope{Key: k})
	f.set(10, `"ten"`)
	f.finish()
	f.req.Source = "other"
	f.req.FinishedBelow = feed.Position{LSN: 15}
	f.set(20, `"twenty"`)
	f.finish() // the record of the first is forgotten
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	f.n = w.start(dir)
	f.req.Source = "c"
	f.req.FinishedBelow = feed.Position{}
	f.set(9, `"nine"`)
	if r := f.page(); !r.Superseded || r.Patched != 0 {
		t.Errorf("a late page was answered %+v", r)
	}
}

// A repair by a part of a term's work leaves alone where the term's fan-outs are finished.
func TestI5_APageBehindARepairIsLateToo(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	fill(t, n, k, 3)
	f := newFan(t, n, store.Scope{Key: k})
	f.set(10, `"ten"`)
	f.finish()
	f.req.Source, f.req.FinishedBelow = "other", feed.Position{LSN: 15}
	f.set(20, `"twenty"`)
	f.finish() // the record of the first is forgotten
	refused := n.mustOne(k, create(`{"id":"refused","a":"x"}`))
	r := n.ask(&store.Request{Repair: &store.Repair{Producer: f.req.Producer.Of("retry"), Epoch: f.req.Epoch, Items: []store.RepairItem{{
		Ref: store.ItemRef{Key: k, ID: "refused"}, IfMatch: refused.ETag,
		Copies: []store.Copy{{Action: store.CopySet, Set: []store.Field{{Path: "name", Value: []byte(`"ten"`)}}}},
	}}}})
	if r.Err != nil || r.Repair.Statuses[0] != store.StatusOK {
		t.Fatalf("%+v", r)
	}
	f.req.Source, f.req.FinishedBelow = "c", feed.Position{}
	f.set(9, `"nine"`)
	if r := f.page(); !r.Superseded || r.Patched != 0 {
		t.Errorf("a late page was answered %+v", r)
	}
}

// Of many fan-outs, one after the other, the owner remembers the last ones only, whether
// it was there all the time, has begun in the middle or reads the whole log.
func TestI3_FinishedFanOutsAreForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byA)
	dir := t.TempDir()
	n := w.start(dir)
	k := pk(t, "x")
	fill(t, n, k, 3)
	f := newFan(t, n, store.Scope{Key: k})
	const fanOuts = 60
	for i := range feed.LSN(fanOuts) {
		if i == fanOuts/2 {
			if err := n.stop(); err != nil {
				t.Fatal(err)
			}
			n = w.start(dir)
			f.n = n
		}
		f.req.Source = fmt.Sprint("source ", i)
		f.req.FinishedBelow = feed.Position{LSN: 10 + i}
		f.set(10+i, fmt.Sprintf(`"%d"`, i))
		f.finish()
	}
	snap := n.engine.Snapshot()
	defer snap.Close()
	left := 0
	for _, err := range snap.Records(recordFanOut, nil) {
		if err != nil {
			t.Fatal(err)
		}
		left++
	}
	if left != 1 {
		t.Errorf("%d fan-outs are remembered, want the last one", left)
	}
	want, err := n.engine.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if got := w.openAt(t.TempDir(), n.state.Load().lsn); got != want {
		t.Errorf("digest of a rebuilt engine is %x, of the other %x", got, want)
	}
}

func TestPlantKeepsItsCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byA)
	dir := t.TempDir()
	n := w.start(dir)
	k := pk(t, "x")
	fill(t, n, k, 3)
	f := newFan(t, n, store.Scope{Key: k})
	f.set(10, `"gone"`)
	f.req.Plant = true
	planted := f.page()
	n.mustOne(k, create(`{"id":"later","a":"x","name":"old"}`))
	n.mustOne(k, patch("001", set("/z", "1")))
	if again := f.page(); again.LSN != planted.LSN || again.Done {
		t.Errorf("planted at %d, asked again: %+v", planted.LSN, again)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n = w.start(dir)
	f.n = n
	f.req.Epoch = 2
	if again := f.page(); again.LSN != planted.LSN {
		t.Errorf("planted at %d, after a restart and under a new epoch at %d", planted.LSN, again.LSN)
	}
	f.req.Plant = false
	f.req.Copy.Action = store.CopyDelete
	f.req.NotAfter = planted.LSN
	f.finish()
	for id, want := range map[string]bool{"000": false, "001": true, "002": false, "later": true} {
		if got := n.read(k, id) != ""; got != want {
			t.Errorf("item %s there: %v, want %v", id, got, want)
		}
	}
}

func TestClearTakesElementsAndFields(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	n.mustOne(k, create(`{"id":"1","a":"x","name":"n","tags":[{"id":"t","name":"1"},{"id":"u","name":"2"}]}`))
	f := newFan(t, n, store.Scope{Key: k})
	f.set(1, `"x"`)
	f.req.Copy.Action = store.CopyClear
	f.finish()
	f.req.Source = "t"
	f.req.Copy.Each, f.req.Copy.Match = "tags", []store.Field{{Path: "id", Value: []byte(`"t"`)}}
	f.finish()
	if got, want := n.read(k, "1"), `{"id":"1","a":"x","tags":[{"id":"u","name":"2"}]}`; got != want {
		t.Errorf("item %s, want %s", got, want)
	}
}

func TestAnItemThatRefusesDoesNotStopTheFanOut(t *testing.T) {
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/a"}, UniqueKeys: [][]string{{"/name"}}})
	n := w.start(t.TempDir())
	k := pk(t, "x")
	for i := range 3 {
		n.mustOne(k, create(fmt.Sprintf(`{"id":"%d","a":"x","name":"%d"}`, i, i)))
	}
	f := newFan(t, n, store.Scope{Key: k})
	f.set(1, `"same"`)
	f.finish()
	if f.patched != 1 || len(f.lastPage.Refused) != 2 || f.lastPage.Refused[0].Status != store.StatusConflict {
		t.Errorf("patched %d, refused %+v", f.patched, f.lastPage.Refused)
	}
}
