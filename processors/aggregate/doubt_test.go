package aggregate_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/aggregate"
	"github.com/millrace/millrace/store"
)

// loseRefusals loses the first answer that tells of targets which refused their fields. The
// channel is closed when that has happened. With cut the worker gets no answer any more from
// then on, and none of its requests arrives.
func loseRefusals(k *storetest.Worker, cut bool) (lost <-chan struct{}) {
	noAnswer := &store.Error{Status: store.StatusUnavailable, Message: "no answer", RetryAfter: 1}
	happened := make(chan struct{})
	var once sync.Once
	var gone atomic.Bool
	k.Tap.Refuse(func(*store.Request) *store.Error {
		if gone.Load() {
			return noAnswer
		}
		return nil
	})
	k.Tap.Answer(func(_ *store.Request, resp *store.Response) *store.Response {
		if gone.Load() {
			return &store.Response{Err: noAnswer}
		}
		if resp.Fold != nil && len(resp.Fold.Refused) > 0 {
			once.Do(func() {
				resp = &store.Response{Err: noAnswer}
				gone.Store(cut)
				close(happened)
			})
		}
		return resp
	})
	return happened
}

// roomless pads a customer until it has no room for a larger total.
func (s *shop) roomless(customer string) {
	s.t.Helper()
	item, err := s.cfg.Target.Read(s.t.Context(), keyOf(s.t, customer), customer)
	if err != nil {
		s.t.Fatal(err)
	}
	pad := strings.Repeat("x", store.ItemBytesMax-len(item.Body)-len(`,"pad":""`))
	full := strings.Replace(string(item.Body), "{", fmt.Sprintf(`{"pad":%q,`, pad), 1)
	if _, err := s.cfg.Target.Upsert(s.t.Context(), []byte(full)); err != nil {
		s.t.Fatal(err)
	}
}

// A fold commits, and the answer that names the targets which refused their fields is lost, or
// whoever got it dies before it has written the dead letters. What is not applied has a dead
// letter all the same, and one alone.
func TestI6_RefusalsOutliveTheirAnswer(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(s *shop, k *storetest.Worker, change func()) *storetest.Worker{
		"the connection is cut": func(_ *shop, k *storetest.Worker, change func()) *storetest.Worker {
			lost := loseRefusals(k, false)
			change()
			<-lost
			return k
		},
		"the worker dies": func(s *shop, k *storetest.Worker, change func()) *storetest.Worker {
			before := s.Checkpoints()
			lost := loseRefusals(k, true)
			change()
			<-lost
			k.Crash()
			s.SetBack(before)
			return s.start(s.cfg)
		},
		"the worker dies, and its successor does too": func(s *shop, k *storetest.Worker, change func()) *storetest.Worker {
			before := s.Checkpoints()
			lost := loseRefusals(k, true)
			change()
			<-lost
			k.Crash()
			s.SetBack(before)
			// The successor comes as far as to try the item again.
			var cut atomic.Bool
			there := make(chan struct{})
			var once sync.Once
			second := s.startTuned(func(k *storetest.Worker) {
				k.Tap.Refuse(func(r *store.Request) *store.Error {
					if r.Repair != nil {
						cut.Store(true)
						once.Do(func() { close(there) })
					}
					if cut.Load() {
						return &store.Error{Status: store.StatusUnavailable, Message: "no answer", RetryAfter: 1}
					}
					return nil
				})
			})
			<-there
			second.Crash()
			s.SetBack(before)
			return s.start(s.cfg)
		},
	} {
		for shape, local := range map[string]bool{"orders elsewhere": false, "orders beside their customer": true} {
			t.Run(name+", "+shape, func(t *testing.T) {
				t.Parallel()
				begin := newShop
				if local {
					begin = newLocal
				}
				s := begin(t)
				k := s.start(s.cfg)
				s.order("o1", "c", 1, 10)
				s.order("p1", "other", 1, 10)
				s.Quiet(k)
				s.roomless("c")
				s.Quiet(k)
				k = run(s, k, func() { s.order("o2", "c", 2, 1_000_000) })
				s.Quiet(k)
				s.refused(`["c"]/c`, store.StatusTooLarge)
				// The accumulator has the order once, and the others go on.
				s.order("p2", "other", 2, 10)
				if err := s.cfg.Target.Delete(t.Context(), keyOf(t, "c"), "c"); err != nil {
					t.Fatal(err)
				}
				s.Quiet(k)
				s.check("made again")
			})
		}
	}
}

// startTuned starts a worker that is tuned before it runs.
func (s *shop) startTuned(tune func(*storetest.Worker)) *storetest.Worker {
	k := s.Worker()
	tune(k)
	return s.startOn(k, s.cfg)
}

// retryUntilGone asks for retries until one succeeds.
func (s *shop) retryUntilGone(l processors.DeadLetter) {
	s.t.Helper()
	poll.Until(s.t, func() error {
		now, err := s.DeadLetters.Get(s.t.Context(), l.Pipeline, l.ID)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil
		case err == nil && !now.Asked():
			err = s.DeadLetters.Retry(s.t.Context(), l.Pipeline, l.ID)
		}
		return fmt.Errorf("the dead letter is still there: %+v, %w", now, err)
	})
}

// retryInVain asks for a retry, and waits until it was refused once more.
func (s *shop) retryInVain(l processors.DeadLetter, status store.Status) {
	s.t.Helper()
	if err := s.DeadLetters.Retry(s.t.Context(), l.Pipeline, l.ID); err != nil {
		s.t.Fatal(err)
	}
	poll.Until(s.t, func() error {
		again := s.deadLetter(l.Item)
		return poll.Unless(again.Retry.IsZero() && again.Attempts > l.Attempts && again.Status == int(status), fmt.Sprintf("%+v", again))
	})
}

// refused wants one dead letter, of a target that refused what order o2 means to it.
func (s *shop) refused(target string, status store.Status) {
	s.t.Helper()
	deadLetters, err := s.DeadLetters.List(s.t.Context(), s.cfg.Pipeline, 10)
	if err != nil {
		s.t.Fatal(err)
	}
	type letter struct {
		Target string
		Status int
		Of     string
	}
	var got []letter
	for _, l := range deadLetters {
		ref, err := store.ParseItemRef(l.Item)
		if err != nil {
			s.t.Errorf("dead letter %+v: %v", l, err)
		}
		got = append(got, letter{l.Target, l.Status, ref.ID})
	}
	if diff := gocmp.Diff([]letter{{target, int(status), "o2"}}, got); diff != "" {
		s.t.Errorf("dead letters (-want +got):\n%s", diff)
	}
}

// The same of a target that cannot be made, because an item of another kind has its id.
func TestI6_ATargetThatCannotBeMadeOutlivesItsAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	k := s.start(s.cfg)
	s.put(s.cfg.Target, map[string]any{"id": "c", "customerId": "c", "type": "supplier"})
	s.Quiet(k)
	lost := loseRefusals(k, false)
	s.order("o2", "c", 2, 1)
	<-lost
	s.Quiet(k)
	s.refused(`["c"]/c`, store.StatusConflict)
}

// TestRetryOfATargetThatCouldNotBeMade makes it by a retry once its id is free, and not before.
func TestRetryOfATargetThatCouldNotBeMade(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	k := s.start(s.cfg)
	s.put(s.cfg.Target, map[string]any{"id": "c", "customerId": "c", "type": "supplier"})
	s.order("o2", "c", 2, 1)
	s.Quiet(k)
	l := s.deadLetter(`["o2"]/o2`)
	s.retryInVain(l, store.StatusConflict)
	if err := s.cfg.Target.Delete(t.Context(), keyOf(t, "c"), "c"); err != nil {
		t.Fatal(err)
	}
	s.retryUntilGone(l)
	s.Quiet(k)
	s.check("made by a retry")
}

// TestRetryOfATargetWhoseIDAnotherGroupHas keeps the dead letter of a group while the target of
// another one has the id of its own, and makes that once it is free.
func TestRetryOfATargetWhoseIDAnotherGroupHas(t *testing.T) {
	t.Parallel()
	s := newShopByDay(t)
	k := s.start(s.cfg)
	s.order("o1", "c", 1, 10) // makes the customer, of day 1
	s.Quiet(k)
	s.order("o2", "c", 2, 1)
	s.Quiet(k)
	s.refused(`["c"]/c`, store.StatusConflict)
	l := s.deadLetter(`["o2"]/o2`)
	s.retryInVain(l, store.StatusConflict)
	if err := s.cfg.Source.Delete(t.Context(), keyOf(t, "o1"), "o1"); err != nil { // the group has no members any more
		t.Fatal(err)
	}
	s.Quiet(k)
	if err := s.cfg.Target.Delete(t.Context(), keyOf(t, "c"), "c"); err != nil {
		t.Fatal(err)
	}
	s.retryUntilGone(l)
	item, err := s.cfg.Target.Read(t.Context(), keyOf(t, "c"), "c")
	if err != nil || !strings.Contains(string(item.Body), `"day":2`) || !strings.Contains(string(item.Body), `"orders":1`) {
		t.Errorf("the target is %s, %v; want that of day 2", item.Body, err)
	}
}

// The same of a retry of a change that was given up: it folds the change, and what then refuses
// its fields has a dead letter.
func TestI6_RefusalsOfARetryOutliveTheirAnswer(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(s *shop, k *storetest.Worker) *storetest.Worker{
		"by the same worker": func(_ *shop, k *storetest.Worker) *storetest.Worker { return k },
		"by another one": func(s *shop, k *storetest.Worker) *storetest.Worker {
			k.Crash()
			return s.start(s.cfg)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			k := s.start(s.cfg)
			s.order("o1", "c", 1, 10)
			s.Quiet(k)
			s.roomless("c")
			s.Quiet(k)
			var allowed atomic.Bool
			k.Tap.Refuse(func(r *store.Request) *store.Error {
				if r.Fold != nil && !allowed.Load() && strings.Contains(string(r.Fold.Delta), "o2") {
					return store.Refuse(store.StatusBadRequest, "not this group")
				}
				return nil
			})
			s.order("o2", "c", 2, 1_000_000)
			l := s.deadLetter(`["o2"]/o2`)
			parked(t, k, 1)
			lost := loseRefusals(k, true)
			if err := s.DeadLetters.Retry(t.Context(), l.Pipeline, l.ID); err != nil {
				t.Fatal(err)
			}
			<-lost
			allowed.Store(true)
			k.Tap.Answer(func(_ *store.Request, resp *store.Response) *store.Response { return resp })
			k.Tap.Refuse(func(*store.Request) *store.Error { return nil })
			k = again(s, k)
			s.retryUntilGone(l)
			parked(t, k, 0)
			s.Quiet(k)
			s.refused(`["c"]/c`, store.StatusTooLarge)
		})
	}
}

// Targets that are looked for in a large logical partition take long. Without a word of progress a
// lease with a StallTimeout would be lost, and the next term begin at the same place.
func TestExaminationsTellOfProgress(t *testing.T) {
	t.Parallel()
	s := &shop{world: newWorld(t)}
	both := s.container("customer", store.ContainerSpec{PartitionKey: []string{"/customerId"}, Partitions: 1, Indexes: []string{"/customerId"}})
	spec := byCustomer()
	spec.Match, spec.Create = spec.Match[:1], false // any item of the logical partition may be a target
	s.cfg = aggregate.Config{Pipeline: "by-customer", Generation: 1, Spec: spec, Source: both, Target: both}
	s.want(s.cfg, false, true)
	s.put(both, map[string]any{"id": "c", "customerId": "c", "type": "customer"})
	for i := range 250 {
		s.put(both, map[string]any{"id": fmt.Sprintf("note%d", i), "customerId": "c", "type": "note"})
	}
	k := s.start(s.cfg)
	s.order("o1", "c", 1, 10)
	s.Quiet(k)
	s.roomless("c")
	s.Quiet(k)
	var pages, silent atomic.Int32
	var before atomic.Int64
	k.Tap.OnRequest(func(r *store.Request) {
		if r.Scan == nil || r.Partition != both.Partitions()[0] {
			return
		}
		if beats := k.Leases[0].Beats(); before.Swap(beats) == beats && r.Scan.After != nil {
			silent.Add(1)
		}
		pages.Add(1)
	})
	lost := loseRefusals(k, false)
	s.order("o2", "c", 2, 1_000_000)
	<-lost
	s.Quiet(k)
	s.refused(`["c"]/c`, store.StatusTooLarge)
	if pages.Load() < 3 || silent.Load() > 0 {
		t.Errorf("of %d pages %d were read without a word between", pages.Load(), silent.Load())
	}
}

// Nothing is read of targets whose folds were all answered, nor when a worker goes on where
// another one has stopped.
func TestFoldsInNoDoubtReadNoTarget(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	targets := map[feed.Partition]bool{}
	for _, p := range s.cfg.Target.Partitions() {
		targets[p] = true
	}
	var read atomic.Int32
	count := func(r *store.Request) {
		if targets[r.Partition] && (r.Read != nil || r.Scan != nil || r.Repair != nil) {
			read.Add(1)
		}
	}
	for i := range 2 {
		k := s.startTuned(func(k *storetest.Worker) { k.Tap.OnRequest(count) })
		for n := range 20 {
			s.order(fmt.Sprint("o", n), fmt.Sprint("c", n%3), 100*i+n+1, n)
		}
		s.Quiet(k)
		k.Stop()
	}
	s.check("folded")
	if n := read.Load(); n != 0 {
		t.Errorf("%d requests look at targets", n)
	}
}
