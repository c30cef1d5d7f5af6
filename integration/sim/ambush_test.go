package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// splitStep is a step of a split that stands in a log.
type splitStep string

const (
	prepares splitStep = "a split is prepared"
	ends     splitStep = "a split commit is stored"
	begins   splitStep = "a child's log is begun"
)

// ambush is a fault that befalls who takes a step of a split, before it learns that the step is done. Faults at drawn
// times meet such a moment once in many seeds.
type ambush struct {
	Step splitStep
	Nth  int // of such steps in the run, from 1
	Kind faultKind
	For  time.Duration
}

// ambushed is a host that is to be killed.
type ambushed struct {
	host *host
	ambush
}

func ambushesOf(rng *rand.Rand, splits int) (all []ambush) {
	if splits == 0 || rng.IntN(2) == 0 {
		return nil
	}
	steps, kinds := []splitStep{prepares, ends, ends, begins}, []faultKind{kills, loses, silences, jams, jams}
	for range 1 + rng.IntN(3) {
		all = append(all, ambush{steps[rng.IntN(len(steps))], 1 + rng.IntN(2), kinds[rng.IntN(len(kinds))], upTo(rng, 8*time.Second)})
	}
	return all
}

// stepOf returns the step of a split that a message of a log is; "" if it is none.
func stepOf(m *message) splitStep {
	c, err := feed.DecodeCommit(m.data)
	if err != nil {
		return ""
	}
	for i := range c.Transactions {
		k := c.Transactions[i].Control
		switch {
		case k == nil:
		case k.Kind == feed.ControlPrepareSplit:
			return prepares
		case k.Kind == feed.ControlSplit:
			return ends
		case k.Kind == store.ControlParent:
			return begins
		}
	}
	return ""
}

// stored looks whether an ambush waits for what a host has done.
func (w *world) stored(h *host, m *message) {
	step := stepOf(m)
	if step == "" {
		return
	}
	if w.steps == nil {
		w.steps = map[splitStep]int{}
	}
	w.steps[step]++
	w.net.trace.add(h.name, fmt.Sprintf("%s, at %d", step, m.seq))
	for _, a := range w.plan.Ambushes {
		if a.Step != step || a.Nth != w.steps[step] {
			continue
		}
		w.net.trace.add(h.name, "ambush: "+string(a.Kind))
		switch until := time.Now().Add(a.For); a.Kind {
		case silences:
			h.until = until
		case jams:
			h.jammed = until
		default:
			select {
			case w.ambushed <- ambushed{h, a}:
			default:
			}
		}
	}
}

// ambush kills the hosts that are to be, unless something befalls a node at that moment, until done.
func (w *world) ambush(done <-chan struct{}) {
	for {
		var at ambushed
		select {
		case at = <-w.ambushed:
		case <-done:
			return
		}
		select {
		case w.turn <- struct{}{}:
		default:
			continue
		}
		for _, n := range w.nodes {
			if n.run == nil || n.run.host != at.host {
				continue
			}
			n.kill(at.Kind == loses)
			elapse(at.For)
			n.start()
		}
		<-w.turn
	}
}
