//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/integration/bench/chart"
	"github.com/millrace/millrace/integration/bench/measure"
)

// outages lets parts of a fleet go away under writers, and notes what clients see of it.
type outages struct {
	b          *bench
	fleet      *fleet
	table      *measure.Table
	writers    *steadyWriters
	partitions int
	after      time.Duration // how long an event is drawn for
	done       []happened
}

// outage is an event: something goes away, and comes back.
type outage struct {
	event string
	// victim is the store whose partitions the gap is of.
	victim func(before *share) *fleetMember
	// leave lets it go away, and returns when it is to come back.
	leave func(ctx context.Context, victim *fleetMember, before *share) error
	back  func(ctx context.Context, victim *fleetMember) error
	times int // how often it happens

	p50, longest float64 // bars, in s; 0 is none
	judgedAt     int     // how often it has to happen for them to be judged
}

// happened is one event, and what clients saw of it.
type happened struct {
	event       string
	gap, back   gap
	rest        gap   // of the partitions of the other stores, before the return
	of, others  []int // acknowledgements in each step of the picture, of the store's partitions and of the others
	failed      int
	returnAfter time.Duration // of the store, counted from the event
}

// pictureBefore is how long before an event its picture begins.
const pictureBefore = 2 * time.Second

// happen lets each event happen as often as it is to, in turns; those that happen more often than others go on alone.
func (o *outages) happen(ctx context.Context, events []outage) error {
	for n, more := 0, true; more; n++ {
		more = false
		for i := range events {
			e := &events[i]
			if n >= e.times {
				continue
			}
			if err := o.once(ctx, e, n+1); err != nil {
				return fmt.Errorf("%s %d: %w", e.event, n+1, err)
			}
			more = true
		}
	}
	return nil
}

// once lets an event happen while everything has an owner and a warm standby.
func (o *outages) once(ctx context.Context, e *outage, n int) error {
	before, err := o.fleet.awaitWhole(ctx, o.partitions, true)
	if err != nil {
		return err
	}
	victim, acks := e.victim(&before), o.writers.acks
	its := before.of(victim.node)
	from := acks.now()
	if err := e.leave(ctx, victim, &before); err != nil {
		return err
	}
	back := acks.now()
	err = e.back(ctx, victim)
	if err == nil {
		err = o.fleet.awaitTaken(ctx, &before, victim.node)
	}
	if err == nil {
		_, err = o.fleet.awaitWhole(ctx, o.partitions, true)
	}
	if err != nil {
		return err
	}
	if err := wait(ctx, from+o.after-acks.now()); err != nil { // the picture goes so far
		return err
	}
	until := acks.now()
	gap := acks.longest(its, from, back)
	h := happened{
		event: e.event, gap: gap, back: acks.longest(before.all(), max(back, gap.to+1), until),
		rest:   acks.longest(before.except(victim.node), from, back),
		failed: len(acks.failed(from, until)), returnAfter: back - from,
	}
	h.of, h.others = acks.counts(its, from-pictureBefore, chart.Step, int((pictureBefore+o.after)/chart.Step))
	o.done = append(o.done, h)
	o.b.say("  %s %d of %s at %s, back at %s; %d errors", e.event, n, victim.name, acks.clock(from), acks.clock(back), h.failed)
	for _, resource := range its {
		g := acks.longest([]string{resource}, from, back)
		o.b.say("    no write to %s for %.3f s, until %s", resource, g.length().Seconds(), acks.clock(g.to))
	}
	o.b.say("    to the others: no write to %s for %.3f s, until %s", h.rest.partition, h.rest.length().Seconds(), acks.clock(h.rest.to))
	o.b.say("    on return: no write to %s for %.3f s, until %s", h.back.partition, h.back.length().Seconds(), acks.clock(h.back.to))
	return nil
}

// gapColumns are those that report fills.
var gapColumns = []string{"events", "gap p50 s", "gap p95 s", "gap max s", "others max s", "gap on return max s", "errors"}

// report puts the events of a kind into their row, and adds its bars.
func (o *outages) report(e *outage) {
	judged := e.times >= e.judgedAt
	var gaps, backs, rests measure.Latencies
	failed := 0
	for i := range o.done {
		if h := &o.done[i]; h.event == e.event {
			gaps, backs, rests, failed = append(gaps, h.gap.length()), append(backs, h.back.length()), append(rests, h.rest.length()), failed+h.failed
		}
	}
	r := o.table.Row(e.event)
	r.Add("events", float64(len(gaps)))
	for _, q := range []struct {
		column string
		at     float64
	}{{"gap p50 s", 0.5}, {"gap p95 s", 0.95}, {"gap max s", 1}} {
		r.Add(q.column, gaps.Quantile(q.at).Seconds())
	}
	r.Add("gap on return max s", backs.Quantile(1).Seconds())
	r.Add("others max s", rests.Quantile(1).Seconds())
	r.Add("errors", float64(failed))
	if e.p50 > 0 {
		o.table.AtMost(e.event+", p50", o.table.Series(e.event, "gap p50 s"), e.p50, "s", judged)
	}
	if e.longest > 0 {
		o.table.AtMost(e.event+", the longest", o.table.Series(e.event, "gap max s"), e.longest, "s", judged)
	}
}

// picture draws the acknowledgements around one event of each kind, the one whose gap is the median: those of the partitions
// of the store that goes away, and those of the others.
func (o *outages) picture(label string, events []outage) *chart.Chart {
	c := &chart.Chart{
		Label:  label,
		Legend: "seconds from the event; writes acknowledged in each 100 ms",
		Before: pictureBefore, After: o.after,
		Colors: []chart.Colored{{Color: chart.ColorHit, What: "the partitions of the store that goes away"}, {Color: chart.ColorOther, What: "those of the others"}},
	}
	for i := range events {
		var all []happened
		for j := range o.done {
			if o.done[j].event == events[i].event {
				all = append(all, o.done[j])
			}
		}
		if len(all) > 0 {
			slices.SortFunc(all, func(a, b happened) int { return byLength(a.gap, b.gap) })
			c.Panels = append(c.Panels, all[(len(all)-1)/2].panel(o.after))
		}
	}
	return c
}

func (h *happened) panel(after time.Duration) chart.Panel {
	p := chart.Panel{
		Title: fmt.Sprintf("%s: no write for %.2f s", h.event, h.gap.length().Seconds()),
		Lines: []chart.Line{{Color: chart.ColorOther, Counts: h.others}, {Color: chart.ColorHit, Counts: h.of}},
		Marks: []chart.Mark{{}},
	}
	if h.returnAfter < after {
		back := chart.Mark{At: h.returnAfter}
		if h.returnAfter > pictureBefore { // else it would stand in the title
			back.Text = "it comes back"
		}
		p.Marks = append(p.Marks, back)
	}
	return p
}
