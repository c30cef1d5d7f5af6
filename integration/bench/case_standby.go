//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/integration/bench/crowd"
	"github.com/millrace/millrace/integration/bench/measure"
)

const (
	standbyBar = 0.9 // times the writes without one

	besideStandby  = "writes, with a standby"
	withoutStandby = "writes, without"
)

// standby is the case of what a standby costs who writes.
func (b *bench) standby(ctx context.Context) error {
	t := b.table("standby", "What a standby costs", fmt.Sprintf(
		"%d stores, each a process, over one NATS server that is another process, on one machine; a container with %d partitions, and up to %s items of 1 KiB. "+
			"%d writers replace items drawn at random, each after its last write was answered, by the client of Go over loopback, in turns with standbys: 1 and standbys: 0. "+
			"The times are those of processors, of all stores together, of the NATS server, and of the writers.",
		takeoverStores, takeoverPartitions, measure.Number(takeoverItems), takeoverPartitions*takeoverWriters))
	t.Columns = []string{"writes/s", "times without", "stores µs/write", "NATS µs/write", "clients µs/write"}
	return b.withStores(ctx, t, func(o *takeovers) error {
		if err := o.beside(ctx, b.cfg.rounds); err != nil {
			return err
		}
		t.AtLeast("writes with a standby, beside none", t.Ratio(besideStandby, withoutStandby, "writes/s"), standbyBar, "times", b.cfg.judged())
		return nil
	})
}

// beside measures what a standby costs who writes, on a machine that has both.
func (o *takeovers) beside(ctx context.Context, rounds int) error {
	writers := crowd.Crowd{Writers: takeoverPartitions * takeoverWriters, Write: func(ctx context.Context, writer, n int) error {
		p := int(uint64(writer*1_000_003+n*7919) % uint64(o.set.Products()))
		_, err := o.writers.into.Upsert(ctx, o.set.AppendProduct(nil, p))
		return err
	}}
	for round := range rounds {
		pair := []int{0, 1}
		if round%2 == 1 {
			slices.Reverse(pair)
		}
		for _, standbys := range pair {
			if err := o.declare(ctx, standbys); err != nil {
				return err
			}
			if err := o.b.quiet(ctx); err != nil {
				return err
			}
			if err := o.besideOnce(ctx, writers, []string{withoutStandby, besideStandby}[standbys]); err != nil {
				return err
			}
		}
	}
	o.table.Beside(besideStandby, withoutStandby, "writes/s", "times without")
	return nil
}

// besideOnce measures writes, and what processors spend on them in each kind of process.
func (o *takeovers) besideOnce(ctx context.Context, writers crowd.Crowd, row string) error {
	run := o.b.start(ctx, writers)
	if err := run.Wait(o.b.cfg.warmup); err != nil {
		return run.StopWith(err)
	}
	run.Measure()
	before := o.fleet.spent()
	if err := run.Wait(o.b.cfg.writeTime); err != nil {
		return run.StopWith(err)
	}
	after := o.fleet.spent()
	d, err := run.Stop()
	if err != nil {
		return err
	}
	r := o.table.Row(row)
	r.Add("writes/s", d.PerSecond)
	var said strings.Builder
	for _, kind := range []string{"stores", "NATS", "clients"} {
		each := float64(after[kind]-before[kind]) / float64(time.Microsecond) / float64(max(len(d.Latencies), 1))
		r.Add(kind+" µs/write", each)
		fmt.Fprintf(&said, ", %s %.0f µs", kind, each)
	}
	o.table.Others = append(o.table.Others, d.Others)
	o.b.say("  %s: %s/s%s a write", row, measure.Number(d.PerSecond), said.String())
	return nil
}

// spent is the processors' time that each kind of process of a fleet has had.
func (f *fleet) spent() map[string]time.Duration {
	spent := map[string]time.Duration{"clients": measure.CPUOf(os.Getpid())}
	for _, s := range f.stores {
		spent["stores"] += measure.CPUOf(s.pid())
	}
	for _, n := range f.servers {
		spent["NATS"] += measure.CPUOf(n.cmd.Process.Pid)
	}
	return spent
}
