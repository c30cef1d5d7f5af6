package processors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// pinnedItems answers as an owner does that has pinned a snapshot.
type pinnedItems struct {
	page store.PinnedPage // Items are all of them

	mu       sync.Mutex
	refuse   *store.Error
	pageMax  int
	released chan struct{} // a token for each time
	ends     chan struct{} // a token for each time that it is read at its end
}

func (p *pinnedItems) Handle(_ context.Context, r *store.Request) *store.Response {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case r.Pin != nil:
		p.released <- struct{}{}
		return &store.Response{Pin: &store.PinResult{}}
	case p.refuse != nil:
		return &store.Response{Err: p.refuse}
	}
	page := p.page
	if int(r.Pinned.From) == len(page.Items) {
		p.ends <- struct{}{}
	}
	page.Items = page.Items[min(int(r.Pinned.From), len(page.Items)):]
	page.Items = page.Items[:min(p.pageMax, len(page.Items))]
	return &store.Response{Pinned: &page}
}

func (p *pinnedItems) set(refuse *store.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// walk returns a walk over n items as of the commit that was appended last.
func (s *stage) walk(n int) (*processors.Walk, *pinnedItems) {
	s.t.Helper()
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		s.t.Fatal(err)
	}
	p := &pinnedItems{page: store.PinnedPage{Log: s.log.ID(), LSN: s.last, Sum: s.sum, Time: 5}, pageMax: 7, released: make(chan struct{}, 100), ends: make(chan struct{}, 100)}
	for i := range n {
		p.page.Items = append(p.page.Items, store.Item{
			Key: key, ID: fmt.Sprint("i", i), Body: []byte("{}"), ETag: store.ETag{LSN: 1, Index: uint32(i)}, Written: 1, Modified: 3,
		})
	}
	local := &store.Local{}
	local.Add(partition, p)
	c, err := store.NewClient(nil, nil, store.ClientConfig{Local: local}).Open(store.ContainerInfo{ID: partition.Container})
	if err != nil {
		s.t.Fatal(err)
	}
	return &processors.Walk{Container: c, Snapshot: "s", LSN: s.last, Items: uint64(n)}, p
}

// walker notes positions and versions too.
type walker struct{ recorder }

func (w *walker) Process(ctx context.Context, b *processors.Batch) error {
	if err := w.recorder.Process(ctx, b); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	at := len(w.ids) - b.Len()
	for i := range b.Parts {
		for j := range b.Parts[i].Changes {
			w.ids[at] += fmt.Sprintf(" %s %s", b.Parts[i].At(j), b.Parts[i].ETag(j))
			at++
		}
	}
	return nil
}

func walkedIDs(lsn feed.LSN, from, n int) (all []string) {
	for i := from; i < n; i++ {
		all = append(all, fmt.Sprintf("i%d %s %s", i, feed.WalkPosition(lsn, uint64(i)), store.ETag{LSN: 1, Index: uint32(i)}))
	}
	return all
}

// TestI4_AWalkIsAPrefixOfTheLog: the items in their order, each with its position and its
// version, then the log behind them, from the commit that follows. A term that ends among
// the items is gone on with at the item that follows; behind them the checkpoint says so,
// and the snapshot is released.
func TestI4_AWalkIsAPrefixOfTheLog(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond, CheckpointBusyInterval: time.Millisecond, BatchItemsMax: 3})
	s.append("before", "also")
	walk, owner := s.walk(20)
	s.append("behind", "it")
	n := walk.LSN
	l := newLease()
	hold := make(chan struct{})
	first := &walker{recorder{fail: func(ids []string) error {
		if slices.Contains(ids, "i10") {
			<-hold
			return errors.New("it has crashed")
		}
		return nil
	}}}
	stop := s.runTask(l, processors.Task{Resource: resource, Processor: first, Walk: walk})
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool {
		done, walking := cp.Position.Walked()
		return walking && done > 3 && done <= 10
	})
	l.mu.Lock()
	l.lost = true
	l.mu.Unlock()
	close(hold)
	_ = stop()
	if len(owner.released) != 0 {
		t.Error("a snapshot is released that is still walked")
	}
	again := newLease()
	again.checkpoint = l.checkpoint
	cp, err := processors.DecodeCheckpoint(l.checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	done, _ := cp.Position.Walked()
	if cp.Position.Reached(n) || cp.Position.Reached(0) || cp.Log != s.log.ID() {
		t.Errorf("among the items the checkpoint is %+v", cp)
	}
	second := &walker{}
	stop = s.runTask(again, processors.Task{Resource: resource, Processor: second, Walk: walk})
	again.waitCheckpoint(t, at(n+1))
	s.append("last")
	again.waitCheckpoint(t, at(n+2))
	want := append(walkedIDs(n, int(done), 20),
		fmt.Sprintf("behind %s %s", feed.Position{LSN: n + 1}, store.ETag{LSN: n + 1}), fmt.Sprintf("it %s %s", feed.Position{LSN: n + 1, Index: 1}, store.ETag{LSN: n + 1, Index: 1}),
		fmt.Sprintf("last %s %s", feed.Position{LSN: n + 2}, store.ETag{LSN: n + 2}))
	if diff := cmp.Diff(want, second.seen()); diff != "" {
		t.Errorf("behind %d items (-want +got):\n%s", done, diff)
	}
	if diff := cmp.Diff(walkedIDs(n, 0, int(done)), first.seen()[:done]); diff != "" {
		t.Errorf("first term (-want +got):\n%s", diff)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestWalk_TheEndIsInTheCheckpoint where nothing is behind the items, also of no items at
// all; and the snapshot is released then.
func TestWalk_TheEndIsInTheCheckpoint(t *testing.T) {
	t.Parallel()
	for _, items := range []int{0, 8} {
		s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
		s.append("before")
		walk, owner := s.walk(items)
		l := newLease()
		r := &recorder{}
		stop := s.runTask(l, processors.Task{Resource: resource, Processor: r, Walk: walk})
		l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool {
			return cp.Position == feed.WalkEnd(walk.LSN) && cp.Position.Reached(walk.LSN)
		})
		if len(r.seen()) != items {
			t.Errorf("%q of %d items", r.seen(), items)
		}
		<-owner.released
		if err := stop(); err != nil {
			t.Error(err)
		}
		s.append("behind")
		r = &recorder{}
		stop = s.runTask(l, processors.Task{Resource: resource, Processor: r, Walk: walk})
		l.waitCheckpoint(t, at(walk.LSN+1))
		if diff := cmp.Diff([]string{"behind"}, r.seen()); diff != "" {
			t.Errorf("behind the end of %d items (-want +got):\n%s", items, diff)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestWalk_WhatCannotBeReadIsTold: a snapshot that is gone, damaged or another one is in
// the checkpoint with the way out, and nothing behind it is read, until it can be.
func TestWalk_WhatCannotBeReadIsTold(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond, BatchItemsMax: 2})
	s.append("before")
	walk, owner := s.walk(10)
	s.append("behind")
	for _, x := range []struct {
		name   string
		refuse *store.Error
		damage func(*store.PinnedPage)
		says   string
	}{
		{name: "gone", refuse: store.Refuse(store.StatusNotFound, "it is not kept"), says: "begins anew"},
		{name: "damaged", refuse: store.Refuse(store.StatusDamaged, "it has another checksum"), says: "begins anew"},
		{name: "an error of its owner", refuse: store.Refuse(store.StatusInternal, "it cannot"), says: "it cannot"},
		{name: "away", refuse: store.Refuse(store.StatusUnavailable, "no disk"), says: "no disk"},
		{name: "too short", damage: func(p *store.PinnedPage) { p.Items = p.Items[:9] }, says: "10 as of LSN 1 were pinned"},
		{name: "of another LSN", damage: func(p *store.PinnedPage) { p.LSN++ }, says: "begins anew"},
	} {
		l := newLease()
		r := &recorder{}
		whole := owner.page
		owner.set(x.refuse)
		if x.damage != nil {
			x.damage(&owner.page)
		}
		stop := s.runTask(l, processors.Task{Resource: resource, Processor: r, Walk: walk})
		cp := l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return cp.LastError != "" })
		if !strings.Contains(cp.LastError, x.says) || strings.Contains(cp.LastError, "begins anew") != (cp.Attempts >= processors.StuckAttempts) || slices.Contains(r.seen(), "behind") {
			t.Errorf("%s: %d attempts, %q, after %q", x.name, cp.Attempts, cp.LastError, r.seen())
		}
		owner.mu.Lock()
		owner.page, owner.refuse = whole, nil
		owner.mu.Unlock()
		cp = l.waitCheckpoint(t, at(walk.LSN+1))
		if cp = l.waitCheckpointOrLast(cp); cp.LastError != "" || len(r.seen()) != 11 {
			t.Errorf("%s: afterwards %q, %q", x.name, cp.LastError, r.seen())
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	// What is of another log, or at a place in another walk, ends the term.
	other := *walk
	other.LSN++
	l := newLease()
	l.checkpoint = (&processors.Checkpoint{Position: feed.WalkPosition(walk.LSN, 3)}).Encode()
	for name, w := range map[string]*processors.Walk{"another walk": &other, "none": nil} {
		if err := s.host.Run(t.Context(), l, processors.Task{Resource: resource, Processor: &recorder{}, Walk: w}); err == nil {
			t.Errorf("%s: a checkpoint among items is gone on with", name)
		}
	}
	owner.page.Log = feed.NewLogID()
	mismatch := &feed.MismatchError{}
	if err := s.host.Run(t.Context(), newLease(), processors.Task{Resource: resource, Processor: &recorder{}, Walk: walk}); !errors.As(err, &mismatch) {
		t.Errorf("a snapshot of another log: %v", err)
	}
	owner.page.Log, owner.page.Sum = s.log.ID(), owner.page.Sum^1
	if err := s.host.Run(t.Context(), newLease(), processors.Task{Resource: resource, Processor: &recorder{}, Walk: walk}); !errors.As(err, &mismatch) {
		t.Errorf("a snapshot of another history: %v", err)
	}
}

// waitCheckpointOrLast returns the newest checkpoint that was saved.
func (l *lease) waitCheckpointOrLast(cp *processors.Checkpoint) *processors.Checkpoint {
	for {
		select {
		case cp = <-l.saves:
		default:
			return cp
		}
	}
}

// TestWalk_AnItemThatIsGivenUpIsTriedAgain after the walk, with what the walk showed.
func TestWalk_AnItemThatIsGivenUpIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	s.append("before")
	walk, _ := s.walk(10)
	r := &walkRetrier{recorder: recorder{fail: func(ids []string) error {
		if slices.Contains(ids, "i4") {
			return processors.Reject(errors.New("no"))
		}
		return nil
	}}, tried: make(chan *processors.Parked, 10)}
	l := newLease()
	stop := s.runTask(l, processors.Task{Resource: resource, Processor: r, Walk: walk})
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool {
		return len(cp.Parked) == 1 && cp.Position == feed.WalkEnd(walk.LSN)
	})
	all, err := s.letters.List(t.Context(), resource.Pipeline, 10)
	if err != nil || len(all) != 1 || all[0].Position != feed.WalkPosition(walk.LSN, 4) {
		t.Fatalf("dead letters %+v, %v", all, err)
	}
	if err := s.letters.Retry(t.Context(), resource.Pipeline, all[0].ID); err != nil {
		t.Fatal(err)
	}
	if p := <-r.tried; p.Change.ID != "i4" || string(p.Change.After) != "{}" || p.At != all[0].Position || p.Commit.LSN != walk.LSN {
		t.Errorf("tried again: %+v at %s", p.Change, p.At)
	}
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return len(cp.Parked) == 0 })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// walkRetrier notes what it is to try again.
type walkRetrier struct {
	recorder
	tried chan *processors.Parked
}

func (r *walkRetrier) Retry(_ context.Context, p *processors.Parked) error {
	r.tried <- p
	return nil
}

// TestWalk_ThePinLastsWhileNothingIsRead: beside the reader, which comes to the end once,
// somebody asks for the snapshot while the processor stands.
func TestWalk_ThePinLastsWhileNothingIsRead(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	s.append("before")
	walk, owner := s.walk(10)
	hold := make(chan struct{})
	l := newLease()
	stop := s.runTask(l, processors.Task{Resource: resource, Walk: walk, Processor: &recorder{fail: func([]string) error { <-hold; return nil }}})
	for range 2 {
		select {
		case <-owner.ends:
		case <-time.After(time.Minute):
			t.Error("nobody lets the pin last")
		}
	}
	close(hold)
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return cp.Position == feed.WalkEnd(walk.LSN) })
	if err := stop(); err != nil {
		t.Error(err)
	}
}
