package aggregate_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/aggregate"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// often has an owner take a snapshot whenever something was written and somebody asks.
func often(c *owner.Config) { c.Snapshots.LogBytes, c.Snapshots.SharePercent = 1, 100 }

// walks are the snapshots with which the readers of a generation begin.
type walks map[feed.Partition]processors.Walk

func (s *shop) resource(p feed.Partition) processors.Resource {
	return processors.Resource{Pipeline: s.cfg.Pipeline, Generation: s.cfg.Generation, Role: processors.RoleSource, Partition: p}
}

// pin pins a snapshot of each partition of the source.
func (s *shop) pin() walks {
	s.t.Helper()
	all := walks{}
	for _, p := range s.cfg.Source.Partitions() {
		all[p] = *s.Walk(s.cfg.Source, s.resource(p))
	}
	return all
}

// take pins newer snapshots, for nobody: those that are pinned are not the newest then.
func (s *shop) take() {
	s.t.Helper()
	for _, p := range s.cfg.Source.Partitions() {
		if _, err := s.cfg.Source.PinSnapshot(s.t.Context(), p, store.PinSnapshot{Holder: fmt.Sprint("nobody", s.End(p))}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// walk takes the leases of the aggregate, whose readers begin with items.
func (s *shop) walk(all walks) *storetest.Worker {
	s.t.Helper()
	k := s.Worker()
	cfg := s.cfg
	cfg.Source, cfg.Target = k.Own(cfg.Source), k.Own(cfg.Target)
	a, err := aggregate.Compile(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, p := range a.Source().Partitions() {
		walk := all[p]
		walk.Container = cfg.Source
		k.Run(processors.Task{Resource: s.resource(p), Processor: a.Fold(p), Walk: &walk})
	}
	return k
}

// released waits until nobody keeps a snapshot for the generation.
func (s *shop) released() {
	s.t.Helper()
	for _, p := range s.cfg.Source.Partitions() {
		poll.Until(s.t, func() error {
			status, err := s.cfg.Source.Status(s.t.Context(), p)
			if err != nil {
				return err
			}
			for _, pin := range status.Pins {
				if pin.Holder == s.resource(p).PinHolder() {
					return fmt.Errorf("%s pins LSN %s", pin.Holder, pin.LSN)
				}
			}
			return nil
		})
	}
}

// TestI6_AWalkEndsAsTheLogDoes: items that were written often, moved, deleted and are to
// expire before the snapshot, and again behind it while the walk is held up, are folded once.
func TestI6_AWalkEndsAsTheLogDoes(t *testing.T) {
	t.Parallel()
	s := newShop(t, often)
	change := func(round int) {
		for i := range 30 {
			switch (i + round) % 6 {
			case 0:
				_ = s.cfg.Source.Delete(t.Context(), keyOf(t, fmt.Sprint("o", i)), fmt.Sprint("o", i)) // it may not be there
			case 1:
				o := order(fmt.Sprint("o", i), fmt.Sprint("c", i%5), i, i)
				o.TTL = 1
				s.put(s.cfg.Source, o)
			default:
				s.order(fmt.Sprint("o", i), fmt.Sprint("c", (i+round)%5), i%7, 10*i+round)
			}
		}
	}
	for round := range 8 {
		change(round)
	}
	all := s.pin()
	change(8)
	s.take()
	k := s.Worker()
	k.Stop()
	k = s.walk(all)
	change(9)
	s.settle(k)
	s.check("walked")
	s.released()
	for _, l := range k.Leases {
		if at := s.checkpoint(l.Resource).Position; at.LSN < all[l.Resource.Partition].LSN {
			t.Errorf("%s ends at %s", l.Resource, at)
		}
	}
}

// TestI5_ACrashBetweenTwoTargetsOfAWalk leaves them at different places among the items.
// Whoever goes on, after more writes, newer snapshots and with another owner, folds for each
// what it lacks. A late worker is refused.
func TestI5_ACrashBetweenTwoTargetsOfAWalk(t *testing.T) {
	t.Parallel()
	for _, another := range []bool{false, true} {
		t.Run(fmt.Sprintf("owner=%t", another), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, often)
			s.cfg.FoldBytesMax = 1 // an interval for each member
			s.Processors = processors.Config{BatchItemsMax: 4, CheckpointBusyInterval: time.Millisecond, CheckpointInterval: time.Millisecond}
			for i := range 60 {
				s.order(fmt.Sprint("o", i), fmt.Sprint("c", i%5), i%7, i)
				s.order(fmt.Sprint("o", i), fmt.Sprint("c", (i+1)%5), i%7, i)
			}
			all := s.pin()
			first := s.walk(all)
			var folds atomic.Int64
			there, let := first.Tap.Hold(func(r *store.Request) bool {
				return r.Fold != nil && !r.Fold.Ask && folds.Add(1) > 20
			})
			<-there
			poll.Until(t, func() error { // some are among the items
				for _, l := range first.Leases {
					if done, walking := s.checkpoint(l.Resource).Position.Walked(); walking && done < all[l.Resource.Partition].Items {
						return nil
					}
				}
				return errors.New("no reader has come anywhere")
			})
			for i := 0; i < 60; i += 2 { // behind the snapshot, and what it holds moves to other places
				s.order(fmt.Sprint("o", i), fmt.Sprint("c", (i+2)%5), i%7, 2*i)
				s.remove(s.cfg.Source, fmt.Sprint("o", i+1), fmt.Sprint("o", i+1))
				s.order(fmt.Sprint("n", i), "c1", 1, 1)
			}
			s.take()
			for _, l := range first.Leases {
				l.Die()
			}
			if another {
				go let() // its requests have no answer while nobody owns the partitions
				s.NewOwner()
				s.cfg.Source, s.cfg.Target = reopened(t, s, s.cfg.Source), reopened(t, s, s.cfg.Target)
			}
			second := s.walk(all)
			let()
			s.settle(second)
			first.Stop()
			s.check("walked by two")
		})
	}
}

func reopened(t testing.TB, s *shop, c *store.Container) *store.Container {
	t.Helper()
	again, err := s.Client.Open(c.Info())
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// TestI6_SwitchesWhileAWalkGoesOn: the owners fold, and do not, and fold, beside a reader
// that is among the items. The snapshot is pinned before they begin.
func TestI6_SwitchesWhileAWalkGoesOn(t *testing.T) {
	t.Parallel()
	s := newLocal(t, often)
	s.cfg.FoldBytesMax = 1
	for i := range 40 {
		s.order(fmt.Sprint("o", i), fmt.Sprint("c", i%5), i%7, i)
	}
	all := s.pin()
	k := s.walk(all)
	there, let := k.Tap.Hold(func(r *store.Request) bool { return r.Fold != nil && !r.Fold.Ask && r.Fold.UpTo.Index&7 == 5 })
	<-there
	for round, source := range []bool{true, false, true} {
		s.want(s.cfg, source, true)
		for i := range 20 {
			s.order(fmt.Sprint("o", i*2), fmt.Sprint("c", i*2%5), round, 100*round+i)
			if i%5 == round {
				s.remove(s.cfg.Source, fmt.Sprint("o", i*2), fmt.Sprint("c", i*2%5))
			}
		}
	}
	let()
	s.settle(k)
	s.check("switched")
}

// TestI6_WalksUnderRandomWrites writes at random, pins at some moment, crashes workers and
// owners at others, and compares with a recount.
func TestI6_WalksUnderRandomWrites(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 7))
			s := newShop(t, often)
			if seed%2 == 1 {
				s = newLocal(t, often)
			}
			s.cfg.FoldBytesMax = 1 + rng.IntN(400)
			s.Processors = processors.Config{BatchItemsMax: 1 + rng.IntN(8), CheckpointBusyInterval: time.Millisecond, CheckpointInterval: time.Millisecond}
			stop := make(chan struct{})
			wait := s.hammer(3, seed, stop)
			s.written(60 + rng.IntN(200))
			all := s.pin()
			for range 3 {
				k := s.walk(all)
				s.written(10 + rng.IntN(40))
				if rng.IntN(2) == 0 {
					s.take()
				}
				k.Crash()
			}
			close(stop)
			wait()
			k := s.walk(all)
			s.settle(k)
			s.check("walked")
		})
	}
}
