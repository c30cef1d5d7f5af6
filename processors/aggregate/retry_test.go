package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/aggregate"
	"github.com/millrace/millrace/store"
)

// refuse makes a worker's partitions refuse shares of customers whose names hold a
// text, until the returned function is called.
func refuse(k *storetest.Worker, text string) (allow func()) {
	var allowed atomic.Bool
	k.Tap.Refuse(func(r *store.Request) *store.Error {
		if r.Fold != nil && !allowed.Load() && strings.Contains(string(r.Fold.Delta), text) {
			return store.Refuse(store.StatusBadRequest, "not this group")
		}
		return nil
	})
	return func() { allowed.Store(true) }
}

// parked waits until so many items are parked.
func parked(t *testing.T, k *storetest.Worker, want int) {
	t.Helper()
	poll.Until(t, func() error {
		n := 0
		for _, a := range k.Host.Activities() {
			n += len(a.Checkpoint.Parked)
		}
		return poll.Unless(n == want, fmt.Sprintf("%d items are parked", n))
	})
}

// deadLetter waits for the dead letter of an item.
func (s *shop) deadLetter(item string) (found processors.DeadLetter) {
	s.t.Helper()
	poll.Until(s.t, func() error {
		deadLetters, err := s.DeadLetters.List(s.t.Context(), s.cfg.Pipeline, 10)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, l := range deadLetters {
			if l.Item == item {
				found = l
				return nil
			}
		}
		return fmt.Errorf("%s has no dead letter: %+v", item, deadLetters)
	})
	return found
}

// retry asks to try the dead letter of an item again and waits until it is gone.
func (s *shop) retry(item string) {
	s.t.Helper()
	l := s.deadLetter(item)
	if err := s.DeadLetters.Retry(s.t.Context(), l.Pipeline, l.ID); err != nil {
		s.t.Fatal(err)
	}
	poll.Until(s.t, func() error {
		now, err := s.DeadLetters.Get(s.t.Context(), l.Pipeline, l.ID)
		return poll.Unless(errors.Is(err, store.ErrNotFound), fmt.Sprintf("the dead letter is still there: %+v, %v", now, err))
	})
}

// An order moves from one customer to another, of which one partition takes its
// part and the other does not. What was given up is folded by a retry, there and
// nowhere else, whatever has happened to the order since, and whoever tries.
func TestI5_RetryFoldsWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(s *shop, k *storetest.Worker) *storetest.Worker{
		"at once": func(_ *shop, k *storetest.Worker) *storetest.Worker { return k },
		"the order has changed since": func(s *shop, k *storetest.Worker) *storetest.Worker {
			s.order("o", "c2", 5, 50)
			s.Quiet(k)
			return k
		},
		"by another worker": func(s *shop, k *storetest.Worker) *storetest.Worker {
			s.order("p", "c2", 5, 50)
			s.Quiet(k)
			k.Stop()
			return s.start(s.cfg)
		},
		"by another worker, before any other change": func(s *shop, k *storetest.Worker) *storetest.Worker {
			k.Stop()
			return s.start(s.cfg)
		},
		"by a worker that is given the change again": func(s *shop, k *storetest.Worker) *storetest.Worker {
			s.order("o", "c2", 5, 50)
			s.Quiet(k)
			k.Crash()
			s.setBack() // as after a crash before the checkpoint: it knows of nothing parked
			k = s.start(s.cfg)
			s.Quiet(k)
			return k
		},
		"by a worker that is given the change again, before anything behind it was folded": func(s *shop, k *storetest.Worker) *storetest.Worker {
			planted := make(chan struct{})
			var once sync.Once
			k.Tap.Refuse(func(r *store.Request) *store.Error {
				switch {
				case r.Fold == nil || r.Fold.Ask:
				case strings.HasPrefix(r.Fold.Producer.Source, "source:"):
					once.Do(func() { close(planted) })
					return &store.Error{Status: store.StatusUnavailable, Message: "not now", RetryAfter: time.Millisecond}
				}
				return nil
			})
			s.order("o", "c2", 5, 50)
			<-planted
			k.Crash()
			s.setBack()
			k = s.start(s.cfg)
			s.Quiet(k)
			return k
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			// Customers of which each is in a partition of its own.
			seen := map[feed.Partition]bool{}
			bad, good := "bad", ""
			seen[s.cfg.Target.PartitionFor(keyOf(t, bad))] = true
			for i := 0; good == ""; i++ {
				if c := fmt.Sprint("c", i); !seen[s.cfg.Target.PartitionFor(keyOf(t, c))] {
					good = c
				}
			}
			k := s.start(s.cfg)
			allow := refuse(k, bad)
			s.order("o", good, 1, 10)
			s.order("x", good, 1, 10)
			s.Quiet(k)
			s.order("o", bad, 2, 20)
			s.deadLetter(`["o"]/o`)
			parked(t, k, 1)
			s.Quiet(k)
			if _, customers := s.state(); customers[good].Orders != 1 || customers[bad].Orders != 0 {
				t.Errorf("while it is given up: %+v", customers)
			}
			allow()
			k = between(s, k)
			s.retry(`["o"]/o`)
			s.Quiet(k)
			s.check("tried again")
			s.order("o", good, 3, 30)
			s.Quiet(k)
			s.check("moved back")
		})
	}
}

// The change was given up, and no checkpoint says so: it is processed again with
// success. Its dead letter is out of date, and a retry does nothing.
func TestI5_RetryOfADeadLetterThatIsOutOfDate(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	k := s.start(s.cfg)
	refuse(k, "bad")
	s.order("o", "bad", 2, 20)
	s.deadLetter(`["o"]/o`)
	k.Crash()
	s.setBack()
	k = s.start(s.cfg)
	s.Quiet(k)
	s.check("processed again")
	refuse(k, "other")
	for i := range 9 { // each processor looks for dead letters once it has written one
		s.order(fmt.Sprint("p", i), "other", 1, 1)
		s.deadLetter(fmt.Sprintf(`["p%d"]/p%d`, i, i))
	}
	s.retry(`["o"]/o`)
	if _, customers := s.state(); customers["bad"].Orders != 1 {
		t.Errorf("tried again, the customer says %+v", customers["bad"])
	}
}

// A change that was tried again with success comes again by the feed, to a worker that
// knows of nothing parked, before the partition was told anything behind it.
func TestI5_WhatWasTriedAgainIsNotFoldedByTheFeed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.cfg.RecordInterval = -1
	k := s.start(s.cfg)
	allow := refuse(k, "bad")
	s.order("o", "bad", 2, 20)
	s.deadLetter(`["o"]/o`)
	parked(t, k, 1)
	allow()
	s.retry(`["o"]/o`)
	s.check("tried again")
	k.Crash()
	s.setBack()
	k = s.start(s.cfg)
	s.Quiet(k)
	s.check("given again")
}

// A worker that has given a change up falls asleep before it says so to the target.
// Its successor folds the change, and what the late one says then is refused: no retry
// folds it a second time.
func TestI5_ALateWorkerOwesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	late := s.start(s.cfg)
	there, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	late.Tap.Refuse(func(r *store.Request) *store.Error {
		if r.Fold == nil {
			return nil
		}
		if strings.Contains(r.Fold.Producer.Source, "@") {
			once.Do(func() { close(there) })
			<-goOn
		}
		if strings.Contains(string(r.Fold.Delta), "bad") {
			return store.Refuse(store.StatusBadRequest, "not this group")
		}
		return nil
	})
	s.order("o", "bad", 2, 20)
	s.deadLetter(`["o"]/o`)
	s.order("o", "bad", 3, 30) // in the same partition: before it is processed, the target is told
	<-there
	s.setBack()
	k := s.start(s.cfg)
	s.Quiet(k)
	s.check("folded by the successor")
	close(goOn)
	poll.Until(t, func() error {
		errs := late.Failures()
		return poll.Unless(len(errs) == 1 && errors.Is(errs[0], processors.ErrFenced), fmt.Sprintf("the late worker: %v", errs))
	})
	late.Stop()
	k.Stop()
	k = s.start(s.cfg)
	refuse(k, "other")
	for i := range 9 { // each processor looks for dead letters once it has written one
		s.order(fmt.Sprint("p", i), "other", 1, 1)
		s.deadLetter(fmt.Sprintf(`["p%d"]/p%d`, i, i))
	}
	s.retry(`["o"]/o`)
	if _, customers := s.state(); customers["bad"].Orders != 1 {
		t.Errorf("tried again, the customer says %+v", customers["bad"])
	}
}

// A target that could not take its fields takes them by a retry.
func TestRetryOfATargetThatRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	k := s.start(s.cfg)
	s.order("o1", "c", 1, 10)
	s.Quiet(k)
	item, err := s.cfg.Target.Read(t.Context(), keyOf(t, "c"), "c")
	if err != nil {
		t.Fatal(err)
	}
	pad := strings.Repeat("x", store.ItemBytesMax-len(item.Body)-len(`,"pad":""`))
	full := strings.Replace(string(item.Body), "{", fmt.Sprintf(`{"pad":%q,`, pad), 1)
	if _, err := s.cfg.Target.Upsert(t.Context(), []byte(full)); err != nil {
		t.Fatal(err)
	}
	s.order("o2", "c", 2, 1_000_000)
	s.Quiet(k)
	l := s.deadLetter(`["o2"]/o2`)
	s.retryInVain(l, store.StatusTooLarge)
	if err := s.cfg.Target.Delete(t.Context(), keyOf(t, "c"), "c"); err != nil {
		t.Fatal(err)
	}
	s.retry(l.Item)
	s.order("o3", "c", 3, 1)
	s.Quiet(k)
	s.check("made again")
}

// trimmed is a Folder to whose retries no change comes any more.
type trimmed struct{ processors.Additive }

func (t trimmed) without(p *processors.Parked) *processors.Parked {
	return &processors.Parked{Item: p.Item, At: p.At, Missing: processors.Reject(errors.New("the change is trimmed"))}
}

func (t trimmed) Retry(ctx context.Context, p *processors.Parked) error {
	return t.Additive.Retry(ctx, t.without(p))
}

func (t trimmed) RetryFinally(ctx context.Context, p *processors.Parked) error {
	return t.Additive.RetryFinally(ctx, t.without(p))
}

func (t trimmed) Process(ctx context.Context, b *processors.Batch) error {
	return t.Additive.(processors.Processor).Process(ctx, b)
}

func (t trimmed) Open(ctx context.Context, term *processors.Term, s processors.State) error {
	return t.Additive.(processors.Processor).Open(ctx, term, s)
}
func (t trimmed) State() processors.State       { return t.Additive.(processors.Processor).State() }
func (t trimmed) Run(ctx context.Context) error { return t.Additive.(processors.Processor).Run(ctx) }

// A change that was given up and that nobody has any more stays owed while an operator
// asks for a retry, and is let go once a repair makes up for it.
func TestI5_AnOwedChangeThatIsTrimmedIsLetGoByARepair(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.wrap = func(p processors.Processor) processors.Processor { return trimmed{p.(processors.Additive)} }
	k := s.start(s.cfg)
	allow := refuse(k, "bad")
	s.order("o", "bad", 2, 20)
	l := s.deadLetter(`["o"]/o`)
	parked(t, k, 1)
	allow()
	if err := s.DeadLetters.Retry(t.Context(), l.Pipeline, l.ID); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		again := s.deadLetter(l.Item)
		return poll.Unless(!again.Asked() && again.Reason == "the change is trimmed", fmt.Sprintf("%+v", again))
	})
	if s.owed() == 0 {
		t.Error("after a retry without the change nobody owes it")
	}
	again := s.deadLetter(l.Item)
	if err := s.DeadLetters.RetryFinally(t.Context(), &again); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		_, err := s.DeadLetters.Get(t.Context(), l.Pipeline, l.ID)
		return poll.Unless(errors.Is(err, store.ErrNotFound) && s.owed() == 0, fmt.Sprintf("%v, owed by %d", err, s.owed()))
	})
}

// owed counts the partitions that owe a change.
func (s *shop) owed() (n int) {
	s.t.Helper()
	for _, p := range s.cfg.Target.Partitions() {
		result, err := s.cfg.Target.ReadGroups(s.t.Context(), p, &store.ReadGroups{Pipeline: s.cfg.Pipeline, Generation: 1, Groups: []string{}})
		if err != nil {
			s.t.Fatal(err)
		}
		all, err := aggregate.GivenUpOf(result.Positions)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, g := range all {
			if g.Owed {
				n++
			}
		}
	}
	return n
}
