//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/bench/crowd"
	"github.com/millrace/millrace/integration/bench/measure"
)

const (
	// lagProbes is the number of customers by whom the lag is measured. Nobody else orders for
	// them: each places an order, reads its count until the order is in it, and places the next.
	lagProbes = 4
	// lagPause is the time between two reads of a count: a lag is measured too long by as much. Reads a quarter of a
	// millisecond apart took a tenth of the processors.
	lagPause = time.Millisecond
	lagBar   = 20 // ms
	// lagShare is the part of the reached rate at which the lag is judged.
	lagShare = 0.8
)

// The rates of the case of lag, as rows name them.
const (
	atFull  = "as many orders as can be placed"
	atShare = "four fifths as many"
)

// lag is the case of orders that are counted after their commit.
func (b *bench) lag(ctx context.Context) error {
	t := b.table("lag", "Lag of eventual counts", fmt.Sprintf(
		"As above, with consistency: eventual: a worker counts behind the commit. %d clients first place as many orders as they can, then four "+
			"fifths as many a second. Meanwhile %d more place an order each and read their customer, every %s, until it is counted: the lag is the time "+
			"from the order's acknowledgement. In PostgreSQL a trigger has no lag and holds the writer instead: see orders.",
		crowdOfClients, lagProbes, lagPause))
	s, err := b.openShop(ctx)
	if err != nil {
		return err
	}
	run := func() error {
		probes, err := s.openProbes(ctx)
		if err != nil {
			return err
		}
		if err := s.declare(ctx, fmt.Sprintf(shopCount, eventual)); err != nil {
			return err
		}
		for round := range b.cfg.rounds {
			b.say("  round %d of %d", round+1, b.cfg.rounds)
			full, err := s.lagAt(ctx, t, atFull, probes, 0)
			if err != nil {
				return err
			}
			err = b.profiled("lag", func() error {
				_, err := s.lagAt(ctx, t, atShare, probes, full*lagShare)
				return err
			})
			if err != nil {
				return err
			}
		}
		_, err = s.verify(ctx)
		return err
	}
	if err := errors.Join(run(), s.close()); err != nil {
		return err
	}
	t.AtMost("lag, p99, "+atShare, t.Series(atShare, "lag p99 ms"), lagBar, "ms", b.cfg.judgedShop())
	return nil
}

// lagAt measures the lag while perSecond orders are placed each second, or as many as clients
// can place if it is 0. It returns the rate that was reached.
func (s *shop) lagAt(ctx context.Context, t *measure.Table, name string, probes []*probe, perSecond float64) (float64, error) {
	if err := s.b.quiet(ctx); err != nil {
		return 0, err
	}
	place := func(ctx context.Context, _, _ int) error { return s.place(ctx, drawn) }
	clients := crowd.Crowd{Writers: crowdOfClients, Write: place}
	if perSecond > 0 {
		clients = crowd.Paced(time.Now(), perSecond, crowdOfClients, place)
	}
	var seen measure.Latencies
	var done atomic.Bool
	var mu sync.Mutex
	g, probing := errgroup.WithContext(ctx)
	for _, p := range probes {
		g.Go(func() error {
			lags, err := p.run(probing, s, &done)
			mu.Lock()
			seen = append(seen, lags...)
			mu.Unlock()
			return err
		})
	}
	d, err := s.b.drive(probing, clients, s.b.cfg.warmup, s.b.cfg.writeTime)
	done.Store(true)
	if err = errors.Join(g.Wait(), err); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := s.awaitIdle(ctx); err != nil {
		return 0, err
	}
	r := t.Row(name)
	r.Add("orders/s", d.PerSecond)
	r.Add("CPU µs/order", float64(d.CPU)/float64(time.Microsecond))
	for _, q := range []struct {
		column string
		at     float64
	}{{"lag p50 ms", 0.5}, {"lag p99 ms", 0.99}, {"lag max ms", 1}} {
		r.Add(q.column, measure.Milliseconds(seen.Quantile(q.at)))
	}
	r.Add("counted after the last order s", time.Since(start).Seconds())
	t.Others = append(t.Others, d.Others)
	s.b.say("  %s: %s orders/s, lag p50 %.3f ms, p99 %.3f ms of %d", name, measure.Number(d.PerSecond),
		measure.Milliseconds(seen.Quantile(0.5)), measure.Milliseconds(seen.Quantile(0.99)), len(seen))
	return d.PerSecond, nil
}

// probe is a customer by whom the lag is measured.
type probe struct {
	customer int
	key      feed.PartitionKey
	placed   int
}

// openProbes stores the customers of the probes, who follow those of the shop.
func (s *shop) openProbes(ctx context.Context) ([]*probe, error) {
	var all []*probe
	for i := range lagProbes {
		p := &probe{customer: s.data.Customers() + i}
		var err error
		if p.key, err = feed.NewPartitionKey(s.data.CustomerID(p.customer)); err != nil {
			return nil, err
		}
		if _, err := s.items.Create(ctx, s.data.AppendCustomer(nil, p.customer)); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// run places orders until done and returns the lag of each.
func (p *probe) run(ctx context.Context, s *shop, done *atomic.Bool) (lags measure.Latencies, err error) {
	for !done.Load() {
		if err := s.place(ctx, p.customer); err != nil {
			return nil, err
		}
		acknowledged := time.Now()
		p.placed++
		for {
			item, err := s.items.Read(ctx, p.key, s.data.CustomerID(p.customer))
			if err != nil {
				return nil, err
			}
			if orderCount(item.Body) >= p.placed {
				break
			}
			if err := wait(ctx, lagPause); err != nil {
				return nil, err
			}
		}
		lags = append(lags, time.Since(acknowledged))
	}
	return lags, nil
}

// orderCount returns the count in a customer, 0 if there is none yet.
func orderCount(customer []byte) int {
	_, rest, _ := bytes.Cut(customer, []byte(`"salesOrderCount":`))
	end := bytes.IndexAny(rest, ",}")
	if end < 0 {
		return 0
	}
	n, err := strconv.Atoi(string(rest[:end]))
	if err != nil {
		return 0
	}
	return n
}
