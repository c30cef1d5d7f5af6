package right

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/integration/raced"
)

var seeds = flag.Int("right.seeds", raced.Rounds(20, 60), "runs of TestRandomFaults")

// TestRandomFaults plays nodes that renew, depose each other, are stopped, suspended and killed, begin anew, are cut off, lose
// replies, send late, are told what was, and have clocks that run as unequally as they may. Whenever the wait of a successor is
// over, the right of the incarnation that it deposed does not hold, and does not hold any more. When the faults end all
// who were not deposed hold, and those who were know it.
func TestRandomFaults(t *testing.T) {
	var tally tally
	for seed := range *seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{t: t, server: newFakeServer(t), r: rand.New(rand.NewPCG(uint64(seed), 11)), live: map[string]*proc{}, fallen: map[*Right]bool{}}
				w.play()
				tally.add(&w.tally)
			})
		})
	}
	t.Logf("%+v", tally)
	// A run that takes nothing over, or from nobody who could have answered, proves nothing.
	if *seeds >= 20 && (tally.Deposed < *seeds || tally.Holding < *seeds/2 || tally.Succeeded == 0 || tally.Unknown == 0) {
		t.Errorf("too little has happened: %+v", tally)
	}
}

// tally counts what deposers met.
type tally struct {
	Deposed   int // deposings that were acknowledged
	Holding   int // of these, of nodes whose right held then
	Succeeded int // keys that were another incarnation's
	Unknown   int // deposings that were given up
}

func (t *tally) add(o *tally) {
	t.Deposed, t.Holding = t.Deposed+o.Deposed, t.Holding+o.Holding
	t.Succeeded, t.Unknown = t.Succeeded+o.Succeeded, t.Unknown+o.Unknown
}

// world is a group under random faults. All but what mu guards belongs to the test's goroutine.
type world struct {
	t      *testing.T
	server fakeServer
	r      *rand.Rand
	live   map[string]*proc
	tasks  sync.WaitGroup

	mu     sync.Mutex
	all    []*Right
	fallen map[*Right]bool // whose successor has waited
	tally  tally
}

var worldNodes = []string{"a", "b", "c", "d"}

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.r.Int64N(int64(d))) }

// start starts a process of a locked node.
func (w *world) start(node string) {
	w.t.Helper()
	p := prepare(w.t, w.server, node, func(p *proc) {
		p.rate = 1 + (w.r.Float64()*2-1)/14
		if w.r.IntN(4) == 0 {
			p.cfg.Trust = time.Second
		}
	})
	w.live[node] = p.open().run()
	w.mu.Lock()
	w.all = append(w.all, p.r)
	w.mu.Unlock()
}

// kill ends a process. What it sent is under way.
func (w *world) kill(node string) {
	w.live[node].r.end(errors.New("killed"))
	w.live[node].end()
	delete(w.live, node)
}

// depose lets p take over from a victim, and looks whether that holds its right at the end of the wait.
func (w *world) depose(p *proc, victim *Right) {
	w.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Second)
		defer cancel()
		err := p.s.Depose(ctx, victim.cfg.Node, victim.incarnation, p.r.Holder(), "suspected")
		_, succeeded := errors.AsType[*SucceededError](err)
		w.mu.Lock()
		switch {
		case succeeded:
			w.tally.Succeeded++
		case err != nil:
			w.tally.Unknown++
		default:
			w.tally.Deposed++
			if victim.Holds() {
				w.tally.Holding++
			}
		}
		w.mu.Unlock()
		if err != nil && !succeeded {
			return
		}
		if !succeeded {
			if err := waitOut(w.t.Context(), p.cfg.Now, p.s.Wait()); err != nil {
				w.t.Error(err)
			}
		}
		if victim.Holds() {
			w.t.Errorf("%s holds its right when %s serves; succeeded: %v", victim.Holder(), p.r.Holder(), succeeded)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fallen[victim] = true
	})
}

// pass lets time pass, and looks at those who have fallen.
func (w *world) pass(d time.Duration) {
	watchHolds(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for r := range w.fallen {
			if r.Holds() {
				w.t.Fatalf("%s holds its right again", r.Holder())
			}
		}
	})
}

func (w *world) play() {
	w.t.Helper()
	for _, node := range worldNodes {
		w.start(node)
	}
	for range 80 {
		w.step()
		w.pass(w.upTo(400 * time.Millisecond))
	}
	for _, p := range w.live {
		p.client.Resume()
		p.client.Set(func(f *faults) { *f = faults{} })
	}
	w.pass(4 * time.Second)
	w.tasks.Wait()
	w.pass(2 * time.Second)
	for _, node := range worldNodes {
		w.settled(node)
	}
}

// step makes one fault, mends one, or lets a node suspect another.
func (w *world) step() {
	node := worldNodes[w.r.IntN(len(worldNodes))]
	p := w.live[node]
	set := p.client.Set
	switch w.r.IntN(14) {
	case 0:
		w.kill(node)
		w.start(node)
	case 1: // it was deposed, and comes back
		if p.r.Deposed().Err() != nil {
			w.kill(node)
			w.start(node)
		}
	case 2:
		set(func(f *faults) { f.Down = true })
	case 3, 4:
		p.client.Resume()
		set(func(f *faults) { *f = faults{} })
	case 5:
		set(func(f *faults) { f.Lose = 1 + w.r.IntN(4) })
	case 6:
		d := w.upTo(900 * time.Millisecond)
		set(func(f *faults) { f.Delay = d })
	case 7:
		set(func(f *faults) { f.Mute = true })
	case 8:
		p.client.Spoil(func(watch *fakeWatch) { watch.Broken = true })
	case 9:
		p.client.Pause()
	case 10:
		p.skew.Add(int64(w.upTo(2 * time.Second)))
	case 11:
		then := w.server.State()
		set(func(f *faults) { f.Stale = then })
	default:
		w.mu.Lock()
		victim := w.live[worldNodes[w.r.IntN(len(worldNodes))]].r
		if w.r.IntN(4) == 0 { // an incarnation of before, as the log may name it
			victim = w.all[w.r.IntN(len(w.all))]
		}
		w.mu.Unlock()
		if victim.cfg.Node != node {
			w.depose(p, victim)
		}
	}
}

// settled fails unless a node holds its right, or knows by whom it was deposed.
func (w *world) settled(node string) {
	w.t.Helper()
	p, rec := w.live[node], w.server.key(w.t, node)
	cause := context.Cause(p.r.Deposed())
	_, told := errors.AsType[*DeposedError](cause)
	switch {
	case cause == nil:
		if !p.r.Holds() || rec.Incarnation != p.r.Incarnation() || rec.Deposed != nil {
			w.t.Errorf("%s holds %v, key %+v", p.r.Holder(), p.r.Holds(), rec)
		}
	case !told || p.r.Holds():
		w.t.Errorf("%s ended with %v, holds %v", p.r.Holder(), cause, p.r.Holds())
	case rec.Incarnation == p.r.Incarnation() && rec.Deposed == nil:
		w.t.Errorf("%s ended with %v, and its key does not say so: %+v", p.r.Holder(), cause, rec)
	}
	w.kill(node)
}
