package processors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// refuser gives up the items that it is told to, and tries again by a function.
type refuser struct {
	recorder
	again func(item string) error
}

func newRefuser(refuse func(ids []string) bool) *refuser {
	return &refuser{recorder: recorder{fail: func(ids []string) error {
		if refuse(ids) {
			return processors.Reject(errors.New("it is bad"))
		}
		return nil
	}}}
}

func (r *refuser) Retry(_ context.Context, p *processors.Parked) error { return r.again(p.Item) }

// What is processed behind a change that was given up may be known after a crash to be owed it, as
// an aggregate's targets know it. So the checkpoint tells of the change first.
func TestI6_WhatIsGivenUpIsSavedBeforeWhatFollows(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Hour, CheckpointBusyInterval: time.Hour})
	l := newLease()
	parked := make(chan int, 1)
	s.append("a", "bad", "c")
	s.run(l, newRefuser(func(ids []string) bool {
		if slices.Equal(ids, []string{"c"}) {
			cp, err := processors.DecodeCheckpoint(l.Checkpoint())
			if err != nil {
				t.Error(err)
			}
			parked <- len(cp.Parked)
		}
		return slices.Contains(ids, "bad")
	}))
	select {
	case n := <-parked:
		if n != 1 {
			t.Errorf("when the next change is processed the checkpoint tells of %d that were given up", n)
		}
	case <-time.After(time.Minute):
		t.Fatal("the change behind it was not processed")
	}
}

// Where more is given up than may be, and the next change fails too, those before it can be tried
// again all the same.
func TestRetriesAreServedThoughTooMuchIsGivenUp(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{ParkedMax: 2})
	l := newLease()
	newOne := func() *refuser {
		r := newRefuser(func([]string) bool { return true })
		r.again = func(item string) error {
			if strings.HasSuffix(item, "/c") {
				return errors.New("it is still bad")
			}
			return nil
		}
		return r
	}
	term := func() error {
		return s.host.Run(t.Context(), l, processors.Task{Resource: resource, Processor: newOne()})
	}
	s.append("a", "b")
	stop := s.run(l, newOne())
	l.waitCheckpoint(t, at(1))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	s.append("c")
	for range 2 {
		if _, ok := errors.AsType[*processors.TooManyParkedError](term()); !ok {
			t.Fatal("the term did not end for too many")
		}
	}
	list, err := s.letters.List(t.Context(), "names", 10)
	if err != nil || len(list) != 3 {
		t.Fatalf("dead letters: %+v, %v", list, err)
	}
	for i := range list {
		s.retry(list[i].ID)
	}
	s.run(l, newOne())
	for i := range list {
		if !strings.HasSuffix(list[i].Item, "/c") {
			s.done(list[i].ID)
		}
	}
}

// A checkpoint tells of many long names without their errors, and a term ends whose checkpoint
// would be too large without them.
func TestACheckpointFitsIntoItsLease(t *testing.T) {
	t.Parallel()
	// fill appends creates of items whose names have 3,000 bytes.
	fill := func(s *stage, n int) {
		key, err := feed.NewPartitionKey(strings.Repeat("k", 2000))
		if err != nil {
			t.Fatal(err)
		}
		changes := make([]feed.Change, n)
		for i := range changes {
			id := fmt.Sprintf("%03d", i) + strings.Repeat("n", 1000)
			changes[i] = feed.Change{Op: feed.OpCreate, Key: key, ID: id, After: fmt.Appendf(nil, `{"id":%q}`, id)}
		}
		s.appendTransaction(feed.Transaction{Changes: changes})
	}
	limited := func() *lease {
		l := newLease()
		l.onSave = func(cp *processors.Checkpoint) error {
			if len(cp.Encode()) > leases.CheckpointBytesMax {
				return leases.ErrCheckpointTooLarge
			}
			return nil
		}
		return l
	}
	bad := func() *refuser {
		r := newRefuser(nil)
		r.fail = func([]string) error { return processors.Reject(errors.New(strings.Repeat("bad ", 64))) }
		return r
	}
	t.Run("without errors", func(t *testing.T) {
		t.Parallel()
		const n = 79
		s := newStage(t, processors.Config{ParkedMax: n})
		fill(s, n)
		l := limited()
		s.run(l, bad())
		cp := l.waitCheckpoint(t, at(1))
		if len(cp.Parked) != n || cp.Parked[0].LastError != "" {
			t.Errorf("%d are given up; the first says %q", len(cp.Parked), cp.Parked[0].LastError)
		}
	})
	t.Run("too large", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, processors.Config{ParkedMax: 1000})
		fill(s, 100)
		err := s.host.Run(t.Context(), limited(), processors.Task{Resource: resource, Processor: bad()})
		if !errors.Is(err, leases.ErrCheckpointTooLarge) || !strings.Contains(err.Error(), "changes are given up") {
			t.Errorf("the term ended with %v", err)
		}
	})
}

// A dead letter that was dropped, or asked for once more, while it was tried is not written over when
// that fails.
func TestAFailedRetryLeavesWhatHappenedMeanwhile(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	l := newLease()
	s.append("dropped", "asked")
	ids := map[string]string{} // of dead letters, by item
	var mu sync.Mutex
	tries := 0
	r := newRefuser(func([]string) bool { return true })
	r.again = func(item string) error {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasSuffix(item, "/dropped") {
			if err := s.letters.Drop(t.Context(), "names", ids["dropped"]); err != nil {
				t.Error(err)
			}
			return errors.New("it is still bad")
		}
		if tries++; tries > 1 {
			return nil
		}
		if err := s.letters.Retry(t.Context(), "names", ids["asked"]); err != nil {
			t.Error(err)
		}
		return errors.New("it is still bad")
	}
	s.run(l, r)
	l.waitCheckpoint(t, at(1))
	list, err := s.letters.List(t.Context(), "names", 10)
	if err != nil || len(list) != 2 {
		t.Fatalf("dead letters: %+v, %v", list, err)
	}
	mu.Lock()
	for i := range list {
		ids[list[i].Item[strings.LastIndex(list[i].Item, "/")+1:]] = list[i].ID
	}
	mu.Unlock()
	for _, id := range ids {
		s.retry(id)
	}
	s.done(ids["asked"])
	poll.Until(t, func() error {
		_, err := s.letters.Get(t.Context(), "names", ids["dropped"])
		return poll.Unless(errors.Is(err, store.ErrNotFound), "the dropped one is there")
	})
	if list, err := s.letters.List(t.Context(), "names", 10); err != nil || len(list) != 0 {
		t.Errorf("dead letters: %+v, %v", list, err)
	}
}

// beating is a lease that counts how often it was told that its holder is alive.
type beating struct {
	*lease
	beats atomic.Int64
}

func (l *beating) Progress() { l.beats.Add(1) }

// A processor is alive while something is tried again that takes long.
func TestARetryThatTakesLongIsAlive(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	l := &beating{lease: newLease()}
	s.append("a")
	r := &slowRefuser{refuser: newRefuser(func([]string) bool { return true }), beats: &l.beats}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.host.Run(ctx, l, processors.Task{Resource: resource, Processor: r}) }()
	l.waitCheckpoint(t, at(1))
	list, err := s.letters.List(t.Context(), "names", 10)
	if err != nil || len(list) != 1 {
		t.Fatalf("dead letters: %+v, %v", list, err)
	}
	s.retry(list[0].ID)
	s.done(list[0].ID)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// slowRefuser tries again for as long as it takes to be said to be alive twice.
type slowRefuser struct {
	*refuser
	beats *atomic.Int64
}

func (r *slowRefuser) Retry(ctx context.Context, _ *processors.Parked) error {
	for began := r.beats.Load(); r.beats.Load() < began+2; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}
