package processors_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// records are the records of children's leases, as a bucket has them: the first who makes one makes it.
type records struct {
	mu      sync.Mutex
	made    map[uint32]*processors.Checkpoint
	refuse  int  // so many times
	crashed bool // the process dies before the second one is made
}

var errCrash = errors.New("the process has died")

func (r *records) begin(_ context.Context, child processors.Resource, data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse > 0 {
		r.refuse--
		return errors.New("no answer")
	}
	if r.crashed && len(r.made) == 1 {
		return errCrash
	}
	cp, err := processors.DecodeCheckpoint(data)
	if err != nil {
		return err
	}
	if r.made == nil {
		r.made = map[uint32]*processors.Checkpoint{}
	}
	if r.made[child.Partition.Number] == nil {
		r.made[child.Partition.Number] = cp
	}
	return nil
}

func (r *records) all() map[uint32]*processors.Checkpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.made)
}

// firstOfChildren is the first LSN of the children of a split.
const firstOfChildren = 1 << 20

// split appends the split commit, which makes the partition the parent of 4 and 5.
func (s *stage) split() *feed.Split {
	s.t.Helper()
	split := &feed.Split{ID: "s1", First: firstOfChildren, Children: []feed.Offshoot{
		{Number: 4, Range: feed.Range{Max: "\x10"}, Log: feed.NewLogID(), Genesis: feed.NewCommitID()},
		{Number: 5, Range: feed.Range{Min: "\x10", Max: feed.EPKMax}, Log: feed.NewLogID(), Genesis: feed.NewCommitID()},
	}}
	control, err := split.Control(feed.ControlSplit)
	if err != nil {
		s.t.Fatal(err)
	}
	s.appendTransaction(feed.Transaction{Control: control})
	return split
}

// runParent runs a term of the partition that is split, and returns what Run returns.
func (s *stage) runParent(l *lease, p processors.Processor, made *records, rewinds uint32) <-chan error {
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.host.Run(ctx, l, processors.Task{Resource: resource, Processor: p, Rewinds: rewinds, BeginChild: made.begin, Amend: l.amend})
	}()
	s.t.Cleanup(cancel)
	return done
}

func isSplit(cp *processors.Checkpoint) bool { return cp.Split != nil }

// Both children begin before their first commit with what their parent's holder knows, and not from the beginning, not
// from now, and not where the generation began; then the parent's lease ends, and says so.
func TestSplit_ChildrenBeginWhereTheirParentEnds(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	l, made := newLease(), &records{}
	r := &recorder{}
	s.append("a", "b")
	split := s.split()
	if err := <-s.runParent(l, r, made, 3); !errors.Is(err, processors.ErrEnded) {
		t.Fatalf("the parent's term ends with %v", err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, r.seen()); diff != "" {
		t.Errorf("processed (-want +got):\n%s", diff)
	}
	children := made.all()
	for _, at := range split.Children {
		want := &processors.Checkpoint{
			Position: feed.Position{LSN: firstOfChildren - 1}, Log: at.Log, Rewinds: 3, Parent: &processors.Parent{Number: 1, Generation: 1, Last: 2},
		}
		got := *children[at.Number]
		got.Time, got.Saved = 0, 0
		if diff := cmp.Diff(want, &got); diff != "" {
			t.Errorf("child %d begins with (-want +got):\n%s", at.Number, diff)
		}
	}
	cp, err := processors.DecodeCheckpoint(l.Checkpoint())
	if err != nil || !cp.Ended() || cp.Position.LSN != 2 || !slices.Equal(cp.Split.Children, []uint32{4, 5}) || cp.Split.First != firstOfChildren {
		t.Errorf("the parent's record is %+v, %v", cp, err)
	}

	// Whoever takes its lease all the same does nothing.
	again := &recorder{}
	if err := <-s.runParent(l, again, made, 3); !errors.Is(err, processors.ErrEnded) || again.term != nil {
		t.Errorf("a lease that has ended is worked for: %v", err)
	}
}

// A child goes on at the first commit of its log, of which it knows only that it is the one that the split named.
func TestSplit_AChildReadsItsLogFromTheFirstCommit(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	s.append("a")
	l := newLease()
	begin := func(log feed.LogID) []byte {
		return (&processors.Checkpoint{Log: log, Rewinds: 2, Parent: &processors.Parent{Number: 0, Last: 7}}).Encode()
	}
	l.checkpoint = begin(s.log.ID())
	r := &recorder{}
	// Its generation was set back twice, to a place that its parent had.
	stop := s.runTask(l, processors.Task{Resource: resource, Processor: r, Rewinds: 2, Start: feed.Position{LSN: 5}})
	cp := l.waitCheckpoint(t, at(1))
	if err := stop(); err != nil || !slices.Equal(r.seen(), []string{"a"}) || cp.Parent == nil || cp.Parent.Last != 7 {
		t.Errorf("it has read %v and notes %+v: %v", r.seen(), cp, err)
	}
	other := newLease()
	other.checkpoint = begin(feed.NewLogID())
	err := s.host.Run(t.Context(), other, processors.Task{Resource: resource, Processor: &recorder{}, Rewinds: 2})
	if _, wrong := errors.AsType[*feed.MismatchError](err); !wrong {
		t.Errorf("the log of another partition is read: %v", err)
	}
}

// Nothing of a child begins while anything of the parent is open: a fan-out, or what a sink holds.
func TestSplit_ChildrenWaitForWhatIsOpen(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	l, made := newLease(), &records{}
	l.onSave = func(cp *processors.Checkpoint) error {
		if len(cp.Jobs) > 0 && len(made.all()) > 0 {
			t.Errorf("a child has begun while %v is open", cp.Jobs)
		}
		return nil
	}
	r := &recorder{jobs: []processors.Job{{Source: `["k"]/a`}}}
	held := &keepsJobs{recorder: r}
	s.append("a")
	s.split()
	done := s.runParent(l, held, made, 0)
	l.waitCheckpoint(t, at(2))
	if n := len(made.all()); n > 0 {
		t.Fatalf("%d children have begun", n)
	}
	r.mu.Lock()
	r.jobs = nil
	r.mu.Unlock()
	r.term.Changed("")
	if err := <-done; !errors.Is(err, processors.ErrEnded) || len(made.all()) != 2 {
		t.Errorf("the term ends with %v and %d children", err, len(made.all()))
	}
}

// keepsJobs is a recorder that keeps the jobs that it was made with.
type keepsJobs struct{ *recorder }

func (k *keepsJobs) Open(_ context.Context, t *processors.Term, _ processors.State) error {
	k.term = t
	return nil
}

// What was given up may be tried again for as long as it takes: the children begin, and the parent's lease stays.
func TestSplit_WhatWasGivenUpKeepsTheParentAndNotItsChildren(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	l, made := newLease(), &records{}
	bad := &recorder{fail: func([]string) error { return processors.Reject(errors.New("it is bad")) }}
	s.append("a")
	s.split()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.host.Run(ctx, l, processors.Task{Resource: resource, Processor: bad, BeginChild: made.begin, Amend: l.amend})
	}()
	cp := l.waitCheckpoint(t, isSplit)
	if len(cp.Parked) != 1 || cp.Ended() || len(made.all()) != 2 {
		t.Errorf("with a change given up the checkpoint is %+v, and %d children have begun", cp, len(made.all()))
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("a term that goes on for a retry ends with %v", err)
	}
	// The lease has passed on, and nothing is parked any more: there are the dead letters, of targets too.
	rest := *cp
	rest.Parked = nil
	if rest.Ended() {
		t.Errorf("%+v has ended, and nobody has looked for dead letters", rest)
	}
	next := newLease()
	next.epoch, next.checkpoint = 2, rest.Encode()
	ended := s.runParent(next, &recorder{}, made, 0)
	if err := s.letters.Forget(t.Context(), resource); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, processors.ErrEnded) {
		t.Errorf("with no dead letter left the term ends with %v", err)
	}
}

// amend changes the lease's record as leases.Manager.Amend does.
func (l *lease) amend(_ context.Context, _ processors.Resource, amend func([]byte) []byte) error {
	if before := l.beforeAmend.Swap(nil); before != nil {
		(*before)()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if next := amend(l.checkpoint); next != nil {
		l.checkpoint = next
	}
	return nil
}

// A worker that has lost the lease tells of a refused copy when its successor has ended the partition, or is about to: before
// its last look for dead letters, between that and the end, and behind it. Somebody reads the partition until that one is tried.
func TestSplit_ALateDeadLetterIsLookedFor(t *testing.T) {
	t.Parallel()
	const beforeLook, behindLook, behindEnd = "before the last look", "behind the last look", "behind the end"
	for _, when := range []string{beforeLook, behindLook, behindEnd} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
			s.append("a")
			l, made, first, late := successor(), &records{}, newLease(), &recorder{}
			stop := s.runTask(first, processors.Task{Resource: resource, Processor: late, Amend: l.amend})
			first.waitCheckpoint(t, at(1))
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			l.checkpoint = first.Checkpoint()
			s.split()
			refused := refusal(1, `["k"]/a`, `["k"]/full`)
			tells := sync.OnceFunc(func() {
				if err := late.term.DeadLetter(t.Context(), refused); err != nil {
					t.Error(err)
				}
			})
			writes := sync.OnceFunc(func() {
				if err := s.letters.Write(t.Context(), &refused); err != nil {
					t.Error(err)
				}
			})
			switch when {
			case beforeLook:
				l.onSave = func(cp *processors.Checkpoint) error {
					if isSplit(cp) && cp.Split.Looking != 0 {
						writes()
					}
					return nil
				}
			case behindLook:
				l.beforeAmend.Store(&tells)
			}
			ended := s.runParent(l, &retrier{retry: func(string) error { return nil }}, made, 0)
			if when == behindEnd {
				if err := <-ended; !errors.Is(err, processors.ErrEnded) {
					t.Fatalf("the partition ends with %v", err)
				}
				tells()
				cp, err := processors.DecodeCheckpoint(l.Checkpoint())
				if err != nil || cp.Ended() || cp.Position.LSN != 2 || len(cp.Split.Children) != 2 {
					t.Fatalf("with a late dead letter the checkpoint is %+v, %v", cp, err)
				}
				next := newLease()
				next.epoch, next.checkpoint = 3, l.Checkpoint()
				ended = s.runParent(next, &retrier{retry: func(string) error { return nil }}, made, 0)
				l = next
			} else {
				l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return isSplit(cp) && cp.Split.Late })
			}
			s.retry(s.letter().ID)
			if err := <-ended; !errors.Is(err, processors.ErrEnded) {
				t.Errorf("when the dead letter was tried the partition ends with %v", err)
			}
			if cp, err := processors.DecodeCheckpoint(l.Checkpoint()); err != nil || !cp.Ended() {
				t.Errorf("the checkpoint is %+v, %v", cp, err)
			}
			if all, err := s.letters.List(t.Context(), "names", 10); err != nil || len(all) > 0 {
				t.Errorf("dead letters: %+v, %v", all, err)
			}
		})
	}
}

// A worker that has lost the lease tells of a refused copy when its successor says that there are no dead letters, and the
// successor dies before it looks once more: the next holder looks.
func TestSplit_WhoSucceedsTheSuccessorLooksForALateDeadLetter(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	s.append("a")
	s.split()
	l, made, looking := newLease(), &records{}, []byte(nil)
	l.onSave = func(cp *processors.Checkpoint) error {
		if isSplit(cp) && cp.Split.Looking != 0 {
			looking = cp.Encode()
		}
		return nil
	}
	if err := <-s.runParent(l, &recorder{}, made, 0); !errors.Is(err, processors.ErrEnded) || looking == nil {
		t.Fatalf("the partition ends with %v, behind %q", err, looking)
	}
	refused := refusal(1, `["k"]/a`, `["k"]/full`)
	if err := s.letters.Write(t.Context(), &refused); err != nil {
		t.Fatal(err)
	}
	next := newLease()
	next.epoch, next.checkpoint = 2, looking
	ended := s.runParent(next, &retrier{retry: func(string) error { return nil }}, made, 0)
	next.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return isSplit(cp) && cp.Split.Late })
	s.retry(s.letter().ID)
	if err := <-ended; !errors.Is(err, processors.ErrEnded) {
		t.Errorf("when the dead letter was tried the partition ends with %v", err)
	}
	if cp, err := processors.DecodeCheckpoint(next.Checkpoint()); err != nil || !cp.Ended() {
		t.Errorf("the checkpoint is %+v, %v", cp, err)
	}
}

// What a processor tells while its partition ends is not saved over the end.
func TestSplit_NothingIsSavedBehindTheEnd(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	s.append("a")
	s.split()
	l, r := newLease(), &recorder{}
	l.onSave = func(cp *processors.Checkpoint) error {
		if isSplit(cp) && cp.Split.Looking != 0 {
			r.term.Changed("")
		}
		return nil
	}
	if err := <-s.runParent(l, r, &records{}, 0); !errors.Is(err, processors.ErrEnded) {
		t.Fatalf("the partition ends with %v", err)
	}
	if cp, err := processors.DecodeCheckpoint(l.Checkpoint()); err != nil || !cp.Ended() {
		t.Errorf("the checkpoint is %+v, %v", cp, err)
	}
}

// A holder that does not know that it was succeeded does not end by its own look what its successor looks at.
func TestSplit_WhoWasSucceededEndsNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	s.append("a")
	s.split()
	l, refused := newLease(), make(chan struct{})
	tries := sync.OnceFunc(func() { close(refused) })
	succeeded := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		cp, err := processors.DecodeCheckpoint(l.checkpoint)
		if err != nil {
			t.Error(err)
			return
		}
		cp.Split.Looking = l.epoch + 1
		l.checkpoint, l.lost = cp.Encode(), true
		l.onSave = func(*processors.Checkpoint) error { tries(); return nil }
	}
	l.beforeAmend.Store(&succeeded)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.host.Run(ctx, l, processors.Task{Resource: resource, Processor: &recorder{}, BeginChild: (&records{}).begin, Amend: l.amend})
	}()
	select {
	case <-refused:
	case err := <-done:
		t.Fatalf("the term ends with %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("whoever was succeeded ends with %v", err)
	}
	if cp, err := processors.DecodeCheckpoint(l.Checkpoint()); err != nil || cp.Ended() {
		t.Errorf("the checkpoint is %+v, %v", cp, err)
	}
}

// Whoever takes the lease over does what is left, at whatever step its holder has died.
func TestSplit_ACrashBetweenAnyTwoStepsIsGoneOnFrom(t *testing.T) {
	t.Parallel()
	all := func(*processors.Checkpoint) bool { return true }
	for name, c := range map[string]struct {
		made *records
		lost func(*processors.Checkpoint) bool // a save of such a checkpoint fails, and all behind it
	}{
		"before anything was saved":              {lost: all},
		"before the end is durable":              {lost: at(2)},
		"before the second child":                {made: &records{crashed: true}},
		"before the parent says that it is over": {lost: isSplit},
		"after a child could not be made twice":  {made: &records{refuse: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
			s.append("a")
			s.split()
			l, made := newLease(), c.made
			if made == nil {
				made = &records{}
			}
			failed := make(chan struct{})
			dies := sync.OnceFunc(func() { close(failed) })
			l.onSave = func(cp *processors.Checkpoint) error {
				select {
				case <-failed:
					return errCrash
				default:
				}
				if c.lost != nil && c.lost(cp) {
					dies()
					return errCrash
				}
				return nil
			}
			ctx, die := context.WithCancel(t.Context())
			begin := func(ctx context.Context, child processors.Resource, data []byte) error {
				err := made.begin(ctx, child, data)
				if errors.Is(err, errCrash) {
					dies()
				}
				return err
			}
			done := make(chan error, 1)
			go func() {
				done <- s.host.Run(ctx, l, processors.Task{Resource: resource, Processor: &recorder{}, BeginChild: begin, Amend: l.amend})
			}()
			select {
			case <-failed:
			case err := <-done:
				done <- err
			}
			die()
			t.Logf("the term of the holder that died has ended: %v", <-done)
			made.mu.Lock()
			made.crashed = false
			before := fmt.Sprint(made.made[4])
			made.mu.Unlock()

			next := newLease()
			next.epoch, next.checkpoint = 2, l.Checkpoint()
			if err := <-s.runParent(next, &recorder{}, made, 0); !errors.Is(err, processors.ErrEnded) {
				t.Fatalf("the next holder's term ends with %v", err)
			}
			children := made.all()
			if len(children) != 2 || children[4].Position.LSN != firstOfChildren-1 || children[5].Position.LSN != firstOfChildren-1 {
				t.Errorf("the children have begun with %+v", children)
			}
			if before != fmt.Sprint((*processors.Checkpoint)(nil)) && before != fmt.Sprint(children[4]) {
				t.Errorf("a child was begun with twice: %s, then %v", before, children[4])
			}
		})
	}
}

// A pipeline that was registered at the very end of the parent, to begin with what comes, begins with the children.
func TestSplit_AGenerationThatBeginsAtTheEndGoesOn(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	s.append("a")
	s.split()
	made, r := &records{}, &recorder{}
	l := newLease()
	err := s.host.Run(t.Context(), l, processors.Task{Resource: resource, Processor: r, Start: feed.Position{LSN: 2}, BeginChild: made.begin, Amend: l.amend})
	if !errors.Is(err, processors.ErrEnded) || len(made.all()) != 2 || len(r.seen()) != 0 {
		t.Errorf("it ends with %v, has begun %d children and processed %v", err, len(made.all()), r.seen())
	}
}

// Of a backfill that is done nothing is left to the children; one that is not done they do from the beginning.
func TestSplit_ABackfillThatIsDoneStaysDone(t *testing.T) {
	t.Parallel()
	for _, done := range []bool{true, false} {
		s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
		s.split()
		made := &records{}
		r := &backfilled{fill: processors.Backfill{Number: 2, Cursor: []byte("x"), Done: done}}
		if err := <-s.runParent(newLease(), r, made, 0); !errors.Is(err, processors.ErrEnded) {
			t.Fatal(err)
		}
		for n, cp := range made.all() {
			if carried := cp.Backfill != nil && cp.Backfill.Done && cp.Backfill.Number == 2; carried != done || (cp.Counts.Copies == 7) != (n == 4) {
				t.Errorf("child %d of a parent whose backfill is done %t begins with %+v", n, done, cp)
			}
		}
	}
}

// backfilled is a recorder with a backfill.
type backfilled struct {
	recorder
	fill processors.Backfill
}

func (b *backfilled) State() processors.State {
	s := processors.State{Backfill: &b.fill, Counts: processors.Counts{Copies: 7}}
	return s
}

// A backfill of one logical partition is not done because its items are in a child now: the child does it.
func TestSplit_ABackfillOfAChildsKeyIsTheChilds(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	container, err := s.client.Open(store.ContainerInfo{
		ID: partition.Container, Spec: store.ContainerSpec{PartitionKey: []string{"/k"}},
		Partitions: []store.PartitionInfo{{Number: 4, Range: feed.Range{Max: "\x10"}}, {Number: 5, Range: feed.Range{Min: "\x10", Max: feed.EPKMax}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		t.Fatal(err)
	}
	s.split()
	made := &records{}
	r := &backfilling{Backfiller: processors.NewBackfiller(processors.BackfillRequest{Number: 1, Key: key}, container, func(context.Context, *processors.Backfill) error {
		t.Error("a page of a partition that was split is read")
		return nil
	})}
	if err := <-s.runParent(newLease(), r, made, 0); !errors.Is(err, processors.ErrEnded) {
		t.Fatal(err)
	}
	for n, cp := range made.all() {
		if cp.Backfill != nil {
			t.Errorf("child %d takes the backfill for done: %+v", n, cp.Backfill)
		}
	}
}

// backfilling is a processor that backfills, and runs until its term ends.
type backfilling struct {
	recorder
	*processors.Backfiller
}

func (b *backfilling) Open(_ context.Context, t *processors.Term, s processors.State) error {
	b.Backfiller.Open(t, s.Backfill)
	return nil
}

func (b *backfilling) State() (s processors.State) {
	b.Backfiller.State(&s)
	return s
}

func (b *backfilling) Run(ctx context.Context) error {
	if err := b.Backfiller.Run(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// Two holders, of which one does not know that it was succeeded, both make the children: what the first one made stays, though
// it has been gone on from since.
func TestSplit_TwoHoldersMakeOneBeginning(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	s.append("a")
	s.split()
	made := &records{}
	late, arrived, goOn := newLease(), make(chan struct{}), make(chan struct{})
	begin := func(ctx context.Context, child processors.Resource, data []byte) error {
		if child.Partition.Number == 4 {
			close(arrived)
			<-goOn
		}
		return made.begin(ctx, child, data)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.host.Run(ctx, late, processors.Task{Resource: resource, Processor: &recorder{}, BeginChild: begin, Amend: late.amend})
	}()
	<-arrived
	next := newLease()
	next.epoch, next.checkpoint = 2, late.Checkpoint()
	late.mu.Lock()
	late.lost = true
	late.mu.Unlock()
	if err := <-s.runParent(next, &recorder{}, made, 0); !errors.Is(err, processors.ErrEnded) {
		t.Fatal(err)
	}
	made.mu.Lock()
	made.made[4].Position.LSN += 5 // its reader
	made.mu.Unlock()
	close(goOn)
	end()
	if err := <-done; err != nil {
		t.Errorf("whoever was succeeded ends with %v", err)
	}
	children := made.all()
	if children[4].Position.LSN != firstOfChildren+4 || children[5].Position.LSN != firstOfChildren-1 {
		t.Errorf("the children stand at %+v and %+v", children[4].Position, children[5].Position)
	}
	if cp, err := processors.DecodeCheckpoint(late.Checkpoint()); err != nil || cp.Split != nil {
		t.Errorf("a lease that was lost says %+v, %v", cp, err)
	}
}

// The items with which a generation begins are gone with the partition that they are of, and not merely away.
func TestWalkGone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&store.SplitError{}, true},
		{store.Refuse(store.StatusNotFound, "no such pin"), true},
		{store.Refuse(store.StatusDamaged, "damaged"), true},
		{store.ErrNotOwner, false},
		{store.ErrUnavailable, false},
	} {
		if got := processors.WalkGone(fmt.Errorf("read: %w", c.err)); got != c.want {
			t.Errorf("%T: %t", c.err, got)
		}
	}
	if f := processors.FailureOf(t.Context(), &store.SplitError{}); f != processors.Unavailable {
		t.Errorf("to meet a target that was split is failure %d: no change is to be given up for it", f)
	}
}
