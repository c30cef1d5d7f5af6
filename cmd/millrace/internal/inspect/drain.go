package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// Drain is how far a node is that is to drain.
type Drain struct {
	Node string `json:"node"`
	// Drains says that it is to drain, Heard that all its processes that live know.
	Drains bool `json:"drains"`
	Heard  bool `json:"heard"`
	// Left are the leases that it has.
	Left []Left `json:"left"`
	// Others are the nodes that drain too, in the groups where nobody else takes what it has: each waits for the others.
	Others []string `json:"others,omitempty"`

	running bool
	alone   []string // groups in which nobody else takes leases
	known   []string // the nodes that there are
}

// Left is a lease that a node has still.
type Left struct {
	Group    string  `json:"group"`
	Resource string  `json:"resource"`
	Why      WhyLeft `json:"why"`
}

// WhyLeft is why a node has a lease still.
type WhyLeft string

// The reasons why a node has a lease still.
const (
	LeftMoves WhyLeft = "it is about to move"
	// LeftCold is of a partition whose container wants copies: it does not move where it would have to be loaded.
	LeftCold  WhyLeft = "no other store has a copy that is ready"
	LeftAlone WhyLeft = "no other node takes it"
	LeftBound WhyLeft = "no other node can do anything with it; see millrace describe container"
)

// Drain tells how far a node is that is to drain. It asks nobody but NATS.
func (i *Inspector) Drain(ctx context.Context, node string) (*Drain, error) {
	processes, err := leases.Known(ctx, i.cfg.JetStream, i.cfg.Replicas.Leases)
	if err != nil {
		return nil, err
	}
	held, err := leases.List(ctx, i.cfg.JetStream, i.cfg.Replicas.Leases)
	if err != nil {
		return nil, err // what cannot be read may be the node's
	}
	containers, err := i.cfg.Client.Catalog().List(ctx)
	if err != nil {
		return nil, err
	}
	return drainOf(node, processes, held, containers), nil
}

func drainOf(node string, processes []leases.Process, held []leases.Lease, containers []store.ContainerInfo) *Drain {
	d := &Drain{Node: node, Heard: true, Left: []Left{}}
	takers, others := map[string][]*leases.Process{}, map[string][]string{} // by group
	for k := range processes {
		p := &processes[k]
		lives := p.State == leases.ProcessUp || p.State == leases.ProcessClosed
		if lives || p.Node == node {
			d.known = append(d.known, p.Node)
		}
		switch {
		case p.Node == node:
			d.Drains = d.Drains || p.Drains
			d.running = d.running || lives
			d.Heard = d.Heard && p.State != leases.ProcessUp
		case p.State == leases.ProcessUp && !p.Drains:
			takers[p.Group] = append(takers[p.Group], p)
		case lives && p.Drains:
			others[p.Group] = append(others[p.Group], p.Node)
		}
	}
	slices.Sort(d.known)
	d.known = slices.Compact(d.known)
	for k := range processes {
		if p := &processes[k]; p.Node == node && p.State != leases.ProcessLeft && len(takers[p.Group]) == 0 {
			d.alone = append(d.alone, p.Group)
			d.Others = append(d.Others, others[p.Group]...)
		}
	}
	slices.Sort(d.Others)
	d.Others = slices.Compact(d.Others)
	copied := map[string]bool{}
	for k := range containers {
		for _, p := range containers[k].Partitions {
			copied[owner.LeaseResource(feed.Partition{Container: containers[k].ID, Number: p.Number})] = containers[k].Spec.Standbys > 0
		}
	}
	for k := range held {
		if l := &held[k]; nodeOf(l.Owner) == node {
			d.Left = append(d.Left, Left{l.Group, l.Resource, whyLeft(l, takers[l.Group], copied)})
		}
	}
	return d
}

func whyLeft(l *leases.Lease, takers []*leases.Process, copied map[string]bool) WhyLeft {
	warm := slices.ContainsFunc(takers, func(p *leases.Process) bool {
		_, warm := p.Warm[l.Resource]
		return warm
	})
	switch {
	case l.Bound:
		return LeftBound
	case len(takers) == 0:
		return LeftAlone
	case l.Group == owner.LeaseGroup && copied[l.Resource] && !warm:
		return LeftCold
	}
	return LeftMoves
}

// Done says that the node has nothing and takes nothing.
func (d *Drain) Done() bool { return d.Drains && d.Heard && len(d.Left) == 0 }

// Runs says that a process of the node lives.
func (d *Drain) Runs() bool { return d.running }

// DrainAway is how long a node that is to drain is waited for while it does not run: it may start again, and the wish
// outlives its process.
const DrainAway = time.Minute

// DrainWait tells when the wait for a drain is over. The zero value has not begun.
type DrainWait struct {
	seen bool      // that it is to drain: then it is not any more where it is not
	away time.Time // since when it does not run; zero while it does
}

// Over reports whether the wait is over: the node has drained, is not to drain any more, or is gone.
//
//	it runs, it is to drain        until it has nothing
//	it does not run                for DrainAway; what it had goes to others, or comes back to it
//	somebody has taken it back     over
func (w *DrainWait) Over(d *Drain, now time.Time) bool {
	w.seen = w.seen || d.Drains
	switch {
	case w.seen && !d.Drains:
		return true
	case d.running:
		w.away = time.Time{}
		return d.Done()
	case w.away.IsZero():
		w.away = now
	}
	return now.Sub(w.away) >= DrainAway
}

// Known returns an error that names the nodes there are if this one is none of them.
func (d *Drain) Known() error {
	if slices.Contains(d.known, d.Node) {
		return nil
	}
	if len(d.known) == 0 {
		return fmt.Errorf("there is no node %s, and no other: no store and no worker runs", d.Node)
	}
	return fmt.Errorf("there is no node %s; there are %s", d.Node, strings.Join(d.known, ", "))
}

// May returns why the node cannot be asked to drain, nil if it can.
func (d *Drain) May() error {
	switch {
	case d.Known() != nil:
		return d.Known()
	case !d.running:
		return fmt.Errorf("node %s does not run, so it has nothing to give up", d.Node)
	case len(d.alone) > 0 && !d.Drains:
		said := fmt.Sprintf("node %s is the only %s that takes anything: nobody would serve what it gives up; start another one first", d.Node, strings.Join(d.alone, " and the only "))
		if len(d.Others) > 0 {
			said += fmt.Sprintf(", or let one that drains take its share again: millrace drain %s --undo", strings.Join(d.Others, " --undo, millrace drain "))
		}
		return errors.New(said)
	}
	return nil
}

// String says in a line what is left and why.
func (d *Drain) String() string {
	switch {
	case !d.Drains:
		return fmt.Sprintf("node %s is not to drain", d.Node)
	case !d.running:
		return fmt.Sprintf("node %s does not run, and is waited for", d.Node)
	case !d.Heard:
		return fmt.Sprintf("node %s has not heard of it yet, and has %s", d.Node, format.Plural(len(d.Left), "lease", "leases"))
	}
	counts := map[WhyLeft]int{}
	for k := range d.Left {
		counts[d.Left[k].Why]++
	}
	var said []string
	for _, why := range []WhyLeft{LeftMoves, LeftCold, LeftAlone, LeftBound} {
		if counts[why] > 0 {
			said = append(said, fmt.Sprintf("%d: %s", counts[why], why))
		}
	}
	if len(said) == 0 {
		return fmt.Sprintf("node %s has nothing", d.Node)
	}
	text := fmt.Sprintf("node %s has %s left (%s)", d.Node, format.Plural(len(d.Left), "lease", "leases"), strings.Join(said, "; "))
	if counts[LeftAlone] > 0 && len(d.Others) > 0 {
		text += fmt.Sprintf("; %s drains too, and each waits for the other: start another node, or let one take its share again with millrace drain %s --undo",
			strings.Join(d.Others, ", "), d.Others[0])
	}
	return text
}
