package aggregate_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/aggregate"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// Orders come, change, change their customer and go; the customers are in several
// partitions of another container.
func TestEventual_FieldsFollow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	k := s.start(s.cfg)
	for i := range 30 {
		s.order(fmt.Sprint("o", i), fmt.Sprint("c", i%7), i%5, 10*i)
	}
	s.Quiet(k)
	s.check("created")
	for i := range 10 {
		s.order(fmt.Sprint("o", i), fmt.Sprint("c", (i+1)%7), i%3, i) // moved
	}
	for i := 10; i < 15; i++ {
		s.remove(s.cfg.Source, fmt.Sprint("o", i), fmt.Sprint("o", i))
	}
	if _, err := s.cfg.Source.Patch(t.Context(), keyOf(t, "o20"), "o20", []document.Op{{Kind: "set", Path: "/customerId", Value: []byte(`"c0"`)}}); err != nil {
		t.Fatal(err)
	}
	s.Quiet(k)
	s.check("moved, deleted and patched")
	// A client writes old fields back; a customer goes and comes again.
	s.put(s.cfg.Target, map[string]any{"id": "c1", "customerId": "c1", "type": "customer", "orders": 0})
	s.remove(s.cfg.Target, "c2", "c2")
	s.put(s.cfg.Target, map[string]any{"id": "c2", "customerId": "c2", "type": "customer"})
	s.check("written by clients")
}

// A patch of what the rule does not read starts nothing.
func TestEventual_OnlyWhatIsReadIsFolded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.cfg.RecordInterval = -1 // the positions of idle targets are not counted here
	k := s.start(s.cfg)
	s.order("o", "c", 1, 10)
	s.put(s.cfg.Source, map[string]any{"id": "x", "type": "draft", "customerId": "c"})
	s.Quiet(k)
	var folds atomic.Int64
	k.Tap.Refuse(func(r *store.Request) *store.Error {
		if r.Fold != nil && !r.Fold.Ask {
			folds.Add(1)
		}
		return nil
	})
	if _, err := s.cfg.Source.Patch(t.Context(), keyOf(t, "o"), "o", []document.Op{{Kind: "set", Path: "/note", Value: []byte(`1`)}}); err != nil {
		t.Fatal(err)
	}
	s.put(s.cfg.Source, map[string]any{"id": "x", "type": "draft", "customerId": "d"})
	s.order("o", "c", 1, 10) // as it was
	s.Quiet(k)
	if n := folds.Load(); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// The whole feed comes again: nothing is folded twice.
func TestI5_RedeliveryFoldsNothingTwice(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.cfg.RecordInterval = 10 * time.Millisecond
	k := s.start(s.cfg)
	for i := range 40 {
		s.order(fmt.Sprint("o", i%25), fmt.Sprint("c", i%7), i%5, 10*i)
		if i%5 == 4 {
			s.remove(s.cfg.Source, fmt.Sprint("o", i%25), fmt.Sprint("o", i%25))
		}
	}
	s.Quiet(k)
	s.check("first")
	s.recorded(k) // or what came and went between two positions may come and go again
	k.Stop()
	before := s.ends()
	for range 3 {
		s.setBack()
		k = s.start(s.cfg)
		s.Quiet(k)
		k.Stop()
	}
	s.check("again")
	if n := s.changes(before); n != 0 {
		t.Errorf("%d changes where none were due", n)
	}
}

// A worker dies after it has folded into some partitions, before its checkpoint;
// what its successor is given ends where other batches end.
func TestI5_CrashBetweenFoldAndCheckpoint(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for round := range 6 {
		k := s.start(s.cfg)
		var folded atomic.Int64
		enough := make(chan struct{})
		var once sync.Once
		k.Tap.Answer(func(r *store.Request, resp *store.Response) *store.Response {
			if r.Fold != nil && !r.Fold.Ask && folded.Add(1) >= int64(2+round) {
				once.Do(func() { close(enough) })
			}
			return resp
		})
		for i := range 40 {
			s.order(fmt.Sprint("o", (round*7+i)%30), fmt.Sprint("c", (i+round)%7), i%5, 10*i)
			if i%9 == 4 {
				s.remove(s.cfg.Source, fmt.Sprint("o", (round*7+i)%30), fmt.Sprint("o", (round*7+i)%30))
			}
		}
		<-enough
		k.Crash()
	}
	k := s.start(s.cfg)
	s.Quiet(k)
	s.check("after six crashes")
}

// A partition has folded the coming of an order of which the batch now holds the
// going too: as a whole it means nothing, and yet that partition must be told.
func TestI5_WhatCancelsOutIsToldToThoseAhead(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	k := s.start(s.cfg)
	s.Quiet(k)
	s.order("o", "c", 1, 10)
	poll.Until(t, func() error {
		_, customers := s.state()
		return poll.Unless(customers["c"].Orders == 1, "the order is not counted")
	})
	k.Crash()
	s.setBack()
	s.remove(s.cfg.Source, "o", "o")
	k = s.start(s.cfg)
	s.Quiet(k)
	s.check("come and gone")
	if _, customers := s.state(); customers["c"].Orders != 0 {
		t.Errorf("the customer says %+v", customers["c"])
	}
}

// Two workers believe that they hold the lease; the one that wakes up late is
// refused, and nothing counts twice.
func TestI5_LateWorkerIsRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	paused := s.start(s.cfg)
	s.order("o1", "c", 1, 10)
	s.Quiet(paused)
	there, let := paused.Tap.Hold(func(r *store.Request) bool { return r.Fold != nil && !r.Fold.Ask })
	s.order("o2", "c", 2, 10)
	<-there
	successor := s.start(s.cfg)
	s.order("o3", "c", 3, 10)
	s.Quiet(successor)
	s.check("by the successor")
	let()
	poll.Until(t, func() error { return poll.Unless(len(paused.Failures()) > 0, "the late worker was not refused") })
	for _, err := range paused.Failures() {
		if behind, ok := errors.AsType[*leases.EpochBehindError](err); !errors.Is(err, processors.ErrFenced) || !ok || behind.Seen != successor.Leases[0].Epoch() {
			t.Errorf("the late worker ended with %v", err)
		}
	}
	s.order("o4", "c", 4, 10)
	s.Quiet(successor)
	s.check("after the late one")
}

// Answers get lost: the interval may have been folded or not, and counts once.
func TestI5_LostAnswers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	k := s.start(s.cfg)
	var n atomic.Int64
	lost := &store.Response{Err: &store.Error{Status: store.StatusUnavailable, Message: "lost", RetryAfter: time.Millisecond}}
	k.Tap.Refuse(func(r *store.Request) *store.Error {
		if r.Fold != nil && n.Add(1)%5 == 0 {
			return lost.Err
		}
		return nil
	})
	k.Tap.Answer(func(r *store.Request, resp *store.Response) *store.Response {
		if r.Fold != nil && n.Add(1)%3 == 0 {
			return lost
		}
		return resp
	})
	for i := range 60 {
		s.order(fmt.Sprint("o", i%25), fmt.Sprint("c", i%7), i%5, 10*i)
	}
	s.Quiet(k)
	s.check("half of the answers were lost")
}

// A batch that means much is cut at changes; a partition that says that its commit
// would be too large gets less at a time.
func TestI5_IntervalsAreCut(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*shop){
		"by size": func(s *shop) { s.cfg.FoldBytesMax = 300 },
		"by the target": func(*shop) {
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			spoil(s)
			for i := range 200 {
				s.order(fmt.Sprint("o", i%90), fmt.Sprint("c", i%17), i%5, 10*i)
			}
			k := s.start(s.cfg)
			var most, folds atomic.Int64
			k.Tap.Refuse(func(r *store.Request) *store.Error {
				if r.Fold == nil || r.Fold.Ask {
					return nil
				}
				folds.Add(1)
				if name == "by the target" && len(r.Fold.Delta) > 400 {
					return store.Refuse(store.StatusTooLarge, "too much for one commit")
				}
				most.Store(max(most.Load(), int64(len(r.Fold.Delta))))
				return nil
			})
			s.Quiet(k)
			s.check("cut")
			// One change is never cut: it may mean two groups.
			if n := most.Load(); n > 800 {
				t.Errorf("a request has %d bytes", n)
			}
			t.Logf("%d requests, the largest of %d bytes", folds.Load(), most.Load())
			k.Stop()
			s.setBack()
			s.cfg.FoldBytesMax = 0
			before := s.ends()
			k = s.start(s.cfg)
			s.Quiet(k)
			s.check("again, cut otherwise")
			if n := s.changes(before); n != 0 {
				t.Errorf("%d changes where none were due", n)
			}
		})
	}
}

// One change is refused for ever: the Host finds it, and the others are folded.
func TestABadChangeIsGivenUpAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	k := s.start(s.cfg)
	k.Tap.Refuse(func(r *store.Request) *store.Error {
		if r.Fold != nil && strings.Contains(string(r.Fold.Delta), "bad") {
			return store.Refuse(store.StatusBadRequest, "not this group")
		}
		return nil
	})
	for i := range 40 {
		c := fmt.Sprint("c", i%7)
		if i == 23 {
			c = "bad"
		}
		s.order(fmt.Sprint("o", i), c, i%5, 10*i)
	}
	poll.Until(t, func() error {
		parked := 0
		for _, a := range k.Host.Activities() {
			parked += len(a.Checkpoint.Parked)
		}
		return poll.Unless(parked == 1, fmt.Sprintf("%d items are parked", parked))
	})
	s.Quiet(k)
	orders, customers := s.state()
	want := recount(slices.DeleteFunc(orders, func(m member) bool { return m.Customer == "bad" }))
	for c, w := range want {
		if got := customers[c]; got.Orders != w.Orders || got.Total != w.Total {
			t.Errorf("%s says %+v, want %+v", c, got, w)
		}
	}
	deadLetters, err := s.DeadLetters.List(t.Context(), s.cfg.Pipeline, 10)
	if err != nil || len(deadLetters) != 1 || deadLetters[0].Item != `["o23"]/o23` || deadLetters[0].Status != int(store.StatusBadRequest) {
		t.Errorf("dead letters %+v, %v", deadLetters, err)
	}
}

// A customer that is too large for its fields goes to the dead letters, with the
// order that was in the way, and its accumulator is right.
func TestATargetThatRefuses(t *testing.T) {
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
	s.order("o3", "d", 2, 1)
	s.Quiet(k)
	deadLetters, err := s.DeadLetters.List(t.Context(), s.cfg.Pipeline, 10)
	if err != nil || len(deadLetters) != 1 || deadLetters[0].Item != `["o2"]/o2` || deadLetters[0].Target != `["c"]/c` ||
		deadLetters[0].Status != int(store.StatusTooLarge) || deadLetters[0].Position.IsZero() {
		t.Fatalf("dead letters %+v, %v", deadLetters, err)
	}
	var total processors.Counts
	for _, a := range k.Host.Activities() {
		total.DeadLetters += a.Checkpoint.Counts.DeadLetters
		total.Copies += a.Checkpoint.Counts.Copies
	}
	if total.DeadLetters != 1 || total.Copies < 3 {
		t.Errorf("counts %+v", total)
	}
	s.put(s.cfg.Target, map[string]any{"id": "c", "customerId": "c", "type": "customer"})
	s.check("there is room again")
}

// A partition that has folded less than it had says so, and nothing is lost: the
// changes wait until the pipeline is set back.
func TestI5_ATargetRestoredOlderIsSaid(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.cfg.RecordInterval = 20 * time.Millisecond
	k := s.start(s.cfg)
	for i := range 20 {
		s.order(fmt.Sprint("o", i), fmt.Sprint("c", i), 1, 10)
	}
	s.Quiet(k)
	resource := k.Leases[0].Resource
	poll.Until(t, func() error {
		cp := s.checkpoint(resource)
		return poll.Unless(!cp.Recorded.IsZero(), fmt.Sprintf("the checkpoint is %+v", cp))
	})
	k.Stop()
	older := s.cfg.Target.Partitions()[1]
	k = s.start(s.cfg)
	k.Tap.Answer(func(r *store.Request, resp *store.Response) *store.Response {
		if r.Fold != nil && r.Fold.Ask && r.Partition == older && resp.Fold != nil {
			resp.Fold.Position = feed.Position{LSN: 1}
		}
		return resp
	})
	for i := range 20 {
		s.order(fmt.Sprint("p", i), fmt.Sprint("c", i), 1, 10)
	}
	poll.Until(t, func() error {
		for _, a := range k.Host.Activities() {
			if strings.Contains(a.Checkpoint.LastError, "restored older") && strings.Contains(a.Checkpoint.LastError, older.String()) {
				return nil
			}
		}
		return errors.New("nobody says that a partition is behind")
	})
	if deadLetters, err := s.DeadLetters.List(t.Context(), s.cfg.Pipeline, 10); err != nil || len(deadLetters) > 0 {
		t.Errorf("dead letters %+v, %v", deadLetters, err)
	}
	k.Tap.Answer(nil)
	s.Quiet(k)
	s.check("after all")
	var err error = &aggregate.BehindError{}
	if !errors.Is(err, store.ErrUnavailable) {
		t.Error("the changes would not wait")
	}
}

// Where nothing was sent for a while the position is recorded, so that the least
// one follows the feed; and it is not recorded again while nothing happens.
func TestPositionsOfIdleTargetsAreRecorded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.cfg.RecordInterval = 10 * time.Millisecond
	k := s.start(s.cfg)
	for i := range 9 {
		s.order(fmt.Sprint("o", i), "one", 1, 10)
	}
	s.Quiet(k)
	s.recorded(k)
	before, looks := s.ends(), 0
	poll.Until(t, func() error {
		now := s.ends()
		if looks++; !maps.Equal(before, now) {
			before, looks = now, 0
		}
		return poll.Unless(looks == 10, "the targets grow while nothing happens")
	})
	s.check("recorded")
}

// The mode is switched to and fro while clients write: nothing counts twice and
// nothing is left out.
func TestI5_SwitchUnderLoad(t *testing.T) {
	t.Parallel()
	s := newLocal(t)
	k := s.start(s.cfg)
	stop := make(chan struct{})
	wait := s.hammer(6, 1, stop)
	for i := range 6 {
		s.written(50)
		s.want(s.cfg, i%2 == 0, true)
		if i == 3 {
			k.Crash()
			s.setBack()
			k = s.start(s.cfg)
		}
	}
	s.written(50)
	close(stop)
	wait()
	s.settle(k)
	s.check("switched six times")
}

// Transactional, with a worker that finds nothing to do.
func TestTransactional_TheProcessorHasNothingToDo(t *testing.T) {
	t.Parallel()
	s := newLocal(t)
	s.want(s.cfg, true, true)
	k := s.start(s.cfg)
	var folds atomic.Int64
	k.Tap.Refuse(func(r *store.Request) *store.Error {
		if r.Fold != nil {
			folds.Add(1)
		}
		return nil
	})
	for i := range 30 {
		s.order(fmt.Sprint("o", i), fmt.Sprint("c", i%4), i%5, 10)
	}
	s.check("before any processor")
	s.Quiet(k)
	s.check("after it")
	if n := folds.Load(); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// Customers that the aggregate makes are members of it themselves.
func TestI5_TargetsThatAreMembers(t *testing.T) {
	t.Parallel()
	s := newLocal(t)
	s.cfg.Pipeline, s.cfg.Spec = "all", byCustomer()
	s.cfg.Spec.SourceWhere = `IS_DEFINED(customerId)`
	s.cfg.Spec.Set = s.cfg.Spec.Set[1:2] // orders: a count
	if err := s.Catalog.DropRule(t.Context(), "default", "customer", "by-customer"); err != nil {
		t.Fatal(err)
	}
	for i, source := range []bool{false, true, false} {
		s.want(s.cfg, source, true)
		k := s.start(s.cfg)
		for n := range 8 {
			s.order(fmt.Sprintf("o%d-%d", i, n), fmt.Sprintf("c%d", n%3), 1, 1)
			s.order(fmt.Sprintf("o%d-%d", i, n), fmt.Sprintf("c%d-%d", i, n), 1, 1)
		}
		s.Quiet(k)
		orders, customers := s.state()
		want := map[string]int{}
		for _, o := range orders {
			want[o.Customer]++
		}
		for c, got := range customers {
			if got.Orders != want[c]+1 { // itself
				t.Errorf("step %d: %s counts %d, want %d", i, c, got.Orders, want[c]+1)
			}
		}
		k.Stop()
	}
}

// Clients do everything at once while workers die, leases are stolen and the feed
// comes again.
func TestI5_Storm(t *testing.T) {
	for name, build := range map[string]func(*testing.T, ...func(*owner.Config)) *shop{"another container": newShop, "the same": newLocal} {
		t.Run(name, func(t *testing.T) {
			s := build(t)
			s.cfg.FoldBytesMax = 2000
			k := s.start(s.cfg)
			stop := make(chan struct{})
			wait := s.hammer(4, 2, stop)
			var dying sync.WaitGroup
			for i := range 8 {
				s.written(30)
				old := k
				switch i % 4 {
				case 0:
					dying.Go(old.Crash)
					k = s.start(s.cfg)
				case 1:
					k = s.start(s.cfg)
					dying.Go(old.Crash)
				case 2:
					old.Crash()
					s.setBack()
					k = s.start(s.cfg)
				case 3:
					old.Tap.Hold(func(r *store.Request) bool { return r.Fold != nil && !r.Fold.Ask })
					s.written(5)
					k = s.start(s.cfg)
					s.written(15)
					dying.Go(old.Crash)
				}
			}
			close(stop)
			wait()
			dying.Wait()
			s.settle(k)
			s.check("after the storm")
		})
	}
}
