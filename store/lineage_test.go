package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// scripted answers a request by what stands at its place, and the last one again and again.
type scripted struct {
	answers []*store.Response
	keys    []string // of idempotency, as they came
}

func (h *scripted) Handle(_ context.Context, r *store.Request) *store.Response {
	if r.Transact != nil {
		h.keys = append(h.keys, r.Transact.IdempotencyKey)
	}
	next := h.answers[0]
	if len(h.answers) > 1 {
		h.answers = h.answers[1:]
	}
	return next
}

func refusing(status store.Status) *store.Response {
	return &store.Response{Err: store.Refuse(status, "refused")}
}

// A write whose partition is split while it is sent goes on in the child, under the same key. What the child decides is
// decisive, whatever became of an attempt at the parent: below the split commit it is in the child's state, and behind it
// is nothing.
func TestI2_AWriteGoesOnInTheChild(t *testing.T) {
	unanswered, leaving := refusing(store.StatusUnknown), gone{}.Handle(t.Context(), nil)
	done := &store.Response{Transact: &store.TransactResult{LSN: 1, Results: []store.OpResult{{Status: store.StatusCreated}}}}
	conflict, full := refusing(store.StatusConflict), refusing(store.StatusTooManyRequests)
	for name, c := range map[string]struct {
		key    string
		parent []*store.Response
		child  *store.Response
		want   error
	}{
		"carried out in the child":                  {"once", []*store.Response{leaving}, done, nil},
		"carried out in the child, without a key":   {"", []*store.Response{leaving}, done, nil},
		"decided behind no answer":                  {"once", []*store.Response{unanswered, leaving}, conflict, store.ErrConflict},
		"found there behind no answer":              {"once", []*store.Response{unanswered, leaving}, done, nil},
		"not decided behind no answer":              {"once", []*store.Response{unanswered, leaving}, full, store.ErrUnknown},
		"not decided, and nothing sent before":      {"once", []*store.Response{leaving}, full, full.Err},
		"without a key, behind no answer":           {"", []*store.Response{unanswered, leaving}, done, store.ErrUnknown},
		"the parent's owner stands still for good":  {"once", []*store.Response{unanswered}, done, nil},
		"the parent's owner stands still, conflict": {"once", []*store.Response{unanswered}, conflict, store.ErrConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := filled(t)
			stale, key := s.container(), keyOf(t, "a")
			s.split(0)
			parent, child := &scripted{answers: c.parent}, &scripted{answers: []*store.Response{c.child}}
			s.local.Add(s.partition(0), parent)
			s.local.Add(s.partition(s.holder(key)), child)
			_, err := stale.Upsert(t.Context(), []byte(`{"id":"1","k":"a"}`), store.WriteOptions{IdempotencyKey: c.key})
			if !errors.Is(err, c.want) || errors.Is(err, store.ErrUnknown) != errors.Is(c.want, store.ErrUnknown) {
				t.Errorf("the write: %v, want %v", err, c.want)
			}
			if len(child.keys) > 0 && child.keys[0] != c.key {
				t.Errorf("the child was sent the idempotency key %q, want %q", child.keys[0], c.key)
			}
			if c.want == nil && stale.PartitionFor(key).Number != s.holder(key) {
				t.Error("the container does not know the child that has answered")
			}
		})
	}
}

// What is asked of a partition is not asked of one child; a container answers for all items of both.
func TestContainer_AsksTheChildren(t *testing.T) {
	t.Parallel()
	s, _ := filled(t)
	stale := s.container()
	low, _ := s.split(0)
	s.split(low) // asleep through two generations
	if _, err := stale.Do(t.Context(), &store.Request{Partition: s.partition(0), Groups: &store.ReadGroups{}}); !isSplit(err) {
		t.Errorf("a request for a partition that was split: %v, want *SplitError", err)
	}
	if n, err := stale.Count(t.Context(), s.partition(0), store.Scope{}); n != len(names) || err != nil {
		t.Errorf("count: %d, %v; want %d", n, err, len(names))
	}
	var refs []store.ItemRef
	for _, name := range names {
		refs = append(refs, store.ItemRef{Key: keyOf(t, name), ID: "1"})
	}
	asleep := s.container()
	s.split(s.info.Partitions[0].Number)
	items, err := asleep.ReadMany(t.Context(), refs, false)
	for i, item := range items {
		if err != nil || item.Key != refs[i].Key {
			t.Fatalf("item %d of many is %v, %v; want %v", i, item.Key, err, refs[i].Key)
		}
	}
	var got, want []string
	for page := (store.Scan{ItemsMax: 3}); ; {
		result, err := asleep.Scan(t.Context(), s.partition(0), page)
		if s.must(err); result.Cursor == nil && len(got) == 0 {
			t.Fatal("a scan of one child is no scan of all")
		}
		for _, item := range result.Items {
			got = append(got, item.Key.String())
		}
		if page.After = result.Cursor; page.After == nil {
			break
		}
	}
	for _, ref := range refs {
		want = append(want, ref.Key.String())
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("scanned (-want +got):\n%s", diff)
	}
	if _, err := asleep.Scan(t.Context(), s.partition(0), store.Scan{Barrier: true}); !isSplit(err) {
		t.Errorf("a scan beside a log that was split: %v, want *SplitError", err)
	}
}

func isSplit(err error) bool {
	_, ok := errors.AsType[*store.SplitError](err)
	return ok
}

// A refresh never goes back, and never on to another container of the name.
func TestContainer_RefreshIsOfTheContainer(t *testing.T) {
	t.Parallel()
	s, _ := filled(t)
	c := s.container()
	session := c.InSession(nil)
	before := s.info
	low, high := s.split(0)
	s.must(c.Refresh(t.Context()))
	if ps := session.Partitions(); len(ps) != 2 || ps[0].Number != low || ps[1].Number != high {
		t.Errorf("what was made of a container before it was refreshed has the partitions %v", ps)
	}
	info := c.Info()
	if f := info.FormerOf(0); f == nil || f.Last == 0 || len(info.HeirsOf(0)) != 2 || len(info.HeirsOf(low)) != 1 || info.HeirsOf(high+1) != nil {
		t.Errorf("of partition 0 is known %+v, its heirs are %v", f, info.HeirsOf(0))
	}
	s.publish(before)
	s.must(c.Refresh(t.Context()))
	if len(c.Partitions()) != 2 {
		t.Error("a record from before the split took the children away")
	}
	other := before
	other.ID = "aaaaaaaa"
	s.publish(other)
	if err := c.Refresh(t.Context()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a refresh where another container has the name: %v, want 404", err)
	}
}

// asked is a standby that says what state it was asked for.
type asked struct{ lsn feed.LSN }

func (a *asked) HandleAtLeast(_ context.Context, _ *store.Request, lsn feed.LSN) *store.Response {
	a.lsn = lsn
	return &store.Response{Count: 1}
}

// A session that has seen a partition has seen each of its children as far.
func TestContainer_SessionOfAParentHoldsInItsChildren(t *testing.T) {
	t.Parallel()
	s, _ := filled(t)
	low, high := s.split(0)
	low, other := s.split(low)
	s.info.Spec.Standbys = 1
	c, err := s.client.Open(s.info)
	s.must(err)
	lsn := s.logs[low].last
	for number, want := range map[uint32]feed.LSN{low: lsn, high: 5, other: 5} {
		standby := &asked{}
		s.local.Add(s.partition(number), &scripted{answers: []*store.Response{refusing(store.StatusUnavailable)}})
		s.local.AddStandby(s.partition(number), standby)
		session := c.InSession(map[uint32]feed.LSN{0: 5, low: lsn})
		if _, err := session.Count(t.Context(), s.partition(number), store.Scope{}); err != nil || standby.lsn != want {
			t.Errorf("partition %d: its standby was asked for LSN %d, %v; want %d", number, standby.lsn, err, want)
		}
	}
}

// The items of a partition are found through two generations of splits.
func TestHeirsOf_APartitionThatWasSplitTwice(t *testing.T) {
	t.Parallel()
	part := func(number uint32, from, to feed.EPK) store.PartitionInfo {
		return store.PartitionInfo{Number: number, Range: feed.Range{Min: from, Max: to}}
	}
	c := &store.ContainerInfo{
		Partitions: []store.PartitionInfo{part(3, "0", "1"), part(5, "1", "2"), part(6, "2", "3"), part(1, "3", "4")},
		Former: []store.FormerPartition{
			{PartitionInfo: part(0, "0", "3"), Children: []uint32{3, 4}}, {PartitionInfo: part(4, "1", "3"), Children: []uint32{5, 6}},
		},
	}
	for number, want := range map[uint32][]uint32{0: {3, 5, 6}, 4: {5, 6}, 1: {1}, 6: {6}, 9: nil} {
		var got []uint32
		for _, p := range c.HeirsOf(number) {
			got = append(got, p.Number)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("of %d (-want +got):\n%s", number, diff)
		}
	}
}
