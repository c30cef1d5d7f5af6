package leases

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestLateProcess_AloneKeepsItsLeases lets a process that is alone stand still for far
// longer than its leases last. They are not valid when it wakes, and soon they are
// again: in the same epoch, with the work that was going on.
func TestLateProcess_AloneKeepsItsLeases(t *testing.T) {
	for _, stood := range []time.Duration{6500 * time.Millisecond, 8 * time.Second, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t)
			defer g.stop()
			resources := resourceNames(3)
			a := g.start("a", resources, nil)
			g.until("hold", time.Second, resources, g.whole(resources))
			g.pass(5*time.Second, resources)
			runs := g.runs()
			a.suspend(stood)
			if n := a.count(resources); n != 0 {
				t.Errorf("%d leases are valid right after waking up", n)
			}
			g.until("be sure again", a.m.cfg.RenewInterval, resources, g.whole(resources))
			g.pass(30*time.Second, resources)
			for _, resource := range resources {
				if rec, err := g.server.lease(resource); err != nil || rec.Epoch != 1 || rec.Owner != a.m.Holder() {
					t.Errorf("%s: epoch %d of %s, %v", resource, rec.Epoch, rec.Owner, err)
				}
			}
			if n := g.runs() - runs; n != 0 {
				t.Errorf("%d runs of work begun anew after standing still for %v", n, stood)
			}
		})
	}
}

// TestLateProcess_FindsThatAnotherHasItsLease has the record taken while the process
// stands still: it never finds its lease valid again.
func TestLateProcess_FindsThatAnotherHasItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		held := make(chan *Held, 9)
		a := g.start("a", []string{"r"}, func(p *proc, _ *Config) {
			p.work = func(ctx context.Context, h *Held) error { held <- h; return idle(ctx, h) }
		})
		h := <-held
		g.pass(5*time.Second, []string{"r"})
		a.suspend(8 * time.Second)
		e := g.server.Get(leaseKey("g", "r"))
		rec, err := decodeLease(e.Key, e.Value)
		if err != nil {
			t.Fatal(err)
		}
		rec.Owner, rec.Epoch, rec.Write = "b/other", rec.Epoch+1, 1
		if _, err := g.server.Put(e.Key, encode(rec), e.Revision); err != nil {
			t.Fatal(err)
		}
		for begun := time.Now(); h.Trust().Err() == nil; time.Sleep(time.Millisecond) {
			if h.Valid() {
				t.Fatal("valid though another holds the lease")
			}
			if time.Since(begun) > 3*time.Second {
				t.Fatal("Trust does not end")
			}
		}
		if !errors.Is(context.Cause(h.Trust()), ErrLost) || h.Valid() {
			t.Errorf("ended with %v, valid %v", context.Cause(h.Trust()), h.Valid())
		}
	})
}

// TestI5_WhoWasSucceededRaisesNoEpoch has work that meets the fence of a later holder before its
// process knows of that one. The record, and the epoch in it, stay the later holder's.
func TestI5_WhoWasSucceededRaisesNoEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		said := &errorLog{}
		held, fenced := make(chan *Held, 9), make(chan struct{})
		a := g.start("a", []string{"r"}, func(p *proc, cfg *Config) {
			cfg.Log = slog.New(said)
			p.work = func(ctx context.Context, h *Held) error {
				held <- h
				if h.Epoch() > 1 {
					return idle(ctx, h)
				}
				<-fenced
				return &EpochBehindError{Seen: 2}
			}
		})
		h := <-held
		g.pass(time.Second, []string{"r"})
		a.client.Set(func(c *faults) { c.Mute = true })
		e := g.server.Get(leaseKey("g", "r"))
		rec, err := decodeLease(e.Key, e.Value)
		if err != nil {
			t.Fatal(err)
		}
		rec.Owner, rec.Epoch, rec.Write = "b/other", 2, 1
		if _, err := g.server.Put(e.Key, encode(rec), e.Revision); err != nil {
			t.Fatal(err)
		}
		if h.ctx.Err() != nil {
			t.Fatal("the holder has been told before it was fenced")
		}
		close(fenced)
		<-h.Trust().Done()
		time.Sleep(a.m.cfg.RenewInterval)
		if now, err := g.server.lease("r"); err != nil || now.Owner != "b/other" || now.Epoch != 2 || now.Write != 1 {
			t.Errorf("the later holder's record: %+v, %v", now, err)
		}
		if n := said.count.Load(); n != 0 {
			t.Errorf("%d errors are told of a lease that was lost", n)
		}
		a.client.Set(func(c *faults) { c.Mute = false })
		if next := <-held; next.Epoch() != 3 {
			t.Errorf("when the later holder is gone, the next epoch is %d", next.Epoch())
		}
	})
}

// TestARenewalUnderWayKeepsNoFenceFromTheRecord ends work by a fence while a renewal is on its way that is stored, and whose
// reply nobody waits for. The record is the holder's, so the fence's epoch is written with the release.
func TestARenewalUnderWayKeepsNoFenceFromTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		puts, renewing := 0, make(chan struct{})
		epochs := make(chan uint64, 9)
		g.start("a", []string{"r"}, func(p *proc, _ *Config) {
			p.client.Set(func(f *faults) {
				f.Put = func(key string) {
					if key == leaseKey("g", "r") {
						if puts++; puts == 2 {
							close(renewing)
						}
					}
				}
			})
			p.work = func(ctx context.Context, h *Held) error {
				epochs <- h.Epoch()
				if h.Epoch() > 1 {
					return idle(ctx, h)
				}
				<-renewing
				time.Sleep(latency * 3 / 2) // stored, and the reply is under way
				return &EpochBehindError{Seen: 57}
			}
		})
		if first, next := <-epochs, <-epochs; first != 1 || next != 58 {
			t.Errorf("the holdings have the epochs %d and %d, want 1 and 58", first, next)
		}
	})
}

// errorLog counts what is told as an error.
type errorLog struct{ count atomic.Int64 }

func (l *errorLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }
func (l *errorLog) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *errorLog) WithGroup(string) slog.Handler                    { return l }
func (l *errorLog) Handle(context.Context, slog.Record) error {
	l.count.Add(1)
	return nil
}

// TestLateProcess_DoubtHasAnEnd keeps a process that stood still from the bucket.
func TestLateProcess_DoubtHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		held := make(chan *Held, 9)
		a := g.start("a", []string{"r"}, func(p *proc, _ *Config) {
			p.work = func(ctx context.Context, h *Held) error { held <- h; return idle(ctx, h) }
		})
		h := <-held
		g.pass(5*time.Second, []string{"r"})
		a.client.Set(func(c *faults) { c.Down = true })
		a.suspend(8 * time.Second)
		begun := time.Now()
		<-h.Trust().Done()
		if took := time.Since(begun); took > a.m.cfg.RenewInterval+time.Second {
			t.Errorf("in doubt for %v", took)
		}
		if !errors.Is(context.Cause(h.Trust()), ErrLost) || h.Valid() {
			t.Errorf("ended with %v, valid %v", context.Cause(h.Trust()), h.Valid())
		}
	})
}

// TestLateProcesses_NoLeaseHasTwoHolders suspends the machine of several processes at
// random moments, some of them cut off or slow, while pass checks who holds what: all
// wake at once with leases that others see expired too.
func TestLateProcesses_NoLeaseHasTwoHolders(t *testing.T) {
	for seed := range 10 {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(seed), 11))
				upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
				g := newGroup(t)
				defer g.stop()
				resources := resourceNames(6)
				var all []*proc
				for _, node := range []string{"a", "b", "c"} {
					all = append(all, g.start(node, resources, nil))
				}
				for range 60 {
					p := all[r.IntN(len(all))]
					switch r.IntN(5) {
					case 0, 1:
						g.suspend(upTo(12 * time.Second))
					case 2:
						p.client.Set(func(c *faults) { c.Down = true })
					case 3:
						p.client.Set(func(c *faults) { c.Down, c.Delay = false, 0 })
					case 4:
						p.client.Set(func(c *faults) { c.Delay = upTo(3 * time.Second) })
					}
					g.pass(upTo(5*time.Second), resources)
				}
				for _, p := range all {
					p.client.Set(func(c *faults) { c.Down, c.Delay = false, 0 })
				}
				g.until("be whole", 30*time.Second, resources, g.whole(resources))
				g.pass(5*time.Second, resources) // what is on the way arrives
			})
		})
	}
}

// suspend lets d pass for everybody's clock at once.
func (g *group) suspend(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.procs {
		p.skew += d
	}
}
