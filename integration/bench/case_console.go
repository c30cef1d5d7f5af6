//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"

	"github.com/millrace/millrace/integration/bench/crowd"
	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
)

const (
	// consoleViewers is the number of browsers that look at once.
	consoleViewers = 5
	// consoleWrites is the rate of the writes, in items a second, beside which some of the figures are taken.
	consoleWrites = 1000
	// seenMax bounds the wait for one rename to be on every screen.
	seenMax = time.Minute
)

// The states of the process in which the console's cost is measured, as rows name them.
const (
	nobodyLooks = "nobody looks"
	fiveLook    = "five look"
)

// console is the case of browsers that look at what millrace up shows.
func (b *bench) console(ctx context.Context) error {
	set, err := b.dataset(false)
	if err != nil {
		return err
	}
	t := b.table("console", "Console", fmt.Sprintf(
		"millrace up with %s products and both cascades, and clients that do over loopback what a browser does: they ask for the overview and all "+
			"that it names (first screen; nobody looked before), or %d of them listen to /events and fetch their page at each. A category of "+
			"one product is renamed: the time counts from the rename's acknowledgement until its copy stands in the product's page, of each of "+
			"the %d. The process's time on the processors is taken while they look at the overview, beside the time while nobody does; the clients' own is "+
			"not in it, nor is what a browser needs to draw.", measure.Number(float64(set.Products())), consoleViewers, consoleViewers))
	err = b.withUp(ctx, "console", func(c *child, s session) error {
		b.say("  loading %s products", measure.Number(float64(set.Products())))
		cat, err := loadCatalogue(ctx, s, set, fmt.Sprintf(containers, b.cfg.partitions))
		if err != nil {
			return err
		}
		l := &looking{b: b, set: set, cat: cat, c: c, table: t, dice: rand.New(rand.NewPCG(b.cfg.seed, 0))}
		for round := range b.cfg.rounds {
			b.say("  round %d of %d", round+1, b.cfg.rounds)
			for _, part := range []func(context.Context) error{l.firstScreen, l.idle, l.busy, l.renames} {
				if err := part(ctx); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	judged := b.cfg.judged()
	t.AtMost("first screen", t.Series("first screen", "ms"), 200, "ms", judged)
	t.AtMost("all that the first screen loads", t.Series("first screen", "kB"), 150, "kB", judged)
	t.AtMost("a copy on screen, p50", t.Series("a rename", "on screen p50 ms"), 300, "ms", judged)
	t.AtMost("a copy on screen, p99", t.Series("a rename", "on screen p99 ms"), 600, "ms", judged)
	t.AtMost("what five who look cost while nothing is written", t.Series(fiveLook, "for them %"), 2, "% of a processor", judged)
	return nil
}

// looking is a process whose console is looked at. One goroutine uses it.
type looking struct {
	b       *bench
	set     *dataset.Set
	cat     *catalogue
	c       *child
	table   *measure.Table
	dice    *rand.Rand
	renamed int // how many renames there were
}

// firstScreen measures what somebody waits who opens the console.
func (l *looking) firstScreen(ctx context.Context) error {
	v, err := newViewer(ctx, l.c.home)
	if err != nil {
		return err
	}
	defer v.close()
	start := time.Now()
	size := 0
	for _, path := range []string{"/", "/static/console.css", "/static/console.js", "/static/icon.svg"} {
		body, err := v.get(ctx, path, false)
		if err != nil {
			return err
		}
		size += len(body)
	}
	r := l.table.Row("first screen")
	r.Add("ms", measure.Milliseconds(time.Since(start)))
	r.Add("kB", float64(size)/1000)
	return nil
}

// idle measures what those who look cost while nothing is written.
func (l *looking) idle(ctx context.Context) error {
	if err := l.b.quiet(ctx); err != nil {
		return err
	}
	return l.cost(ctx, "")
}

// busy measures it beside writes.
func (l *looking) busy(ctx context.Context) error {
	began := time.Now()
	run := l.b.start(ctx, crowd.Paced(began, consoleWrites, l.b.cfg.foreground, func(ctx context.Context, writer, n int) error {
		return l.cat.replace(ctx, (writer*7919+n)%l.set.Products())
	}))
	if err := run.Wait(l.b.cfg.warmup); err != nil {
		return run.StopWith(err)
	}
	run.Measure()
	if err := l.cost(ctx, ", "+measure.Number(consoleWrites)+" writes/s"); err != nil {
		return run.StopWith(err)
	}
	d, err := run.Stop()
	if err != nil {
		return err
	}
	l.b.say("  %s writes/s", measure.Number(d.PerSecond))
	return l.cat.awaitIdle(ctx)
}

// cost measures the processor time of the process while nobody looks, and then while viewers do.
func (l *looking) cost(ctx context.Context, beside string) error {
	alone, err := l.used(ctx)
	if err != nil {
		return err
	}
	crowd, err := lookAt(ctx, l.c.home, "/", func(int, []byte) {})
	if err != nil {
		return err
	}
	looked, err := l.used(ctx)
	if err := errors.Join(err, crowd.leave()); err != nil {
		return err
	}
	l.table.Row(nobodyLooks+beside).Add("CPU %", alone)
	r := l.table.Row(fiveLook + beside)
	r.Add("CPU %", looked)
	r.Add("for them %", max(looked-alone, 0))
	l.b.say("  %s%s: %.2f %% of a processor, %s: %.2f", nobodyLooks, beside, alone, fiveLook, looked)
	return nil
}

// used is the process's time on the processors for a while, in per cent of one.
func (l *looking) used(ctx context.Context) (float64, error) {
	start, before := time.Now(), measure.CPUOf(l.c.cmd.Process.Pid)
	if err := wait(ctx, 4*l.b.cfg.writeTime); err != nil {
		return 0, err
	}
	return 100 * float64(measure.CPUOf(l.c.cmd.Process.Pid)-before) / float64(time.Since(start)), nil
}

// renames measures when the copies of renames are on the screens.
func (l *looking) renames(ctx context.Context) (err error) {
	category := l.set.Category(0, 0)
	var product string
	for p := range l.set.InCategory(0) {
		product = l.set.ProductID(p)
	}
	type sight struct {
		viewer int
		at     time.Time
		page   []byte
	}
	sights := make(chan sight, consoleViewers)
	page := "/containers/" + database + "/product/item?" + url.Values{"id": {product}, "key": {category.ID}}.Encode()
	running, cancel := context.WithTimeout(ctx, seenMax*time.Duration(1+l.b.cfg.renames))
	defer cancel()
	crowd, err := lookAt(running, l.c.home, page, func(viewer int, body []byte) {
		select {
		case sights <- sight{viewer, time.Now(), body}:
		case <-running.Done():
		}
	})
	if err != nil {
		return err
	}
	defer func() { cancel(); err = errors.Join(err, crowd.leave()) }()
	var seen measure.Latencies
	for range max(1, l.b.cfg.renames/10) {
		// At any moment between two samples: at once, it would always be just behind one.
		if err := wait(ctx, time.Duration(l.dice.Int64N(int64(500*time.Millisecond)))); err != nil {
			return err
		}
		l.renamed++
		source := l.set.Category(0, l.renamed)
		if err := l.cat.rename(ctx, source); err != nil {
			return err
		}
		acknowledged := time.Now()
		waiting := map[int]bool{}
		for i := range consoleViewers {
			waiting[i] = true
		}
		for late := time.After(seenMax); len(waiting) > 0; {
			select {
			case s := <-sights:
				if waiting[s.viewer] && bytes.Contains(s.page, []byte(source.Name)) {
					delete(waiting, s.viewer)
					seen = append(seen, s.at.Sub(acknowledged))
				}
			case <-late:
				return fmt.Errorf("%q is not on all screens after %s", source.Name, seenMax)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	r := l.table.Row("a rename")
	r.Add("on screen p50 ms", measure.Milliseconds(seen.Quantile(0.5)))
	r.Add("on screen p99 ms", measure.Milliseconds(seen.Quantile(0.99)))
	l.b.say("  a rename is on screen after %.0f ms at the median, %.0f ms at p99", measure.Milliseconds(seen.Quantile(0.5)), measure.Milliseconds(seen.Quantile(0.99)))
	return l.cat.awaitIdle(ctx)
}
