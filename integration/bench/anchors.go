//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/integration/bench/anchor"
	"github.com/millrace/millrace/integration/bench/measure"
)

// anchors are the other stores, behind their program.
type anchors struct {
	b       *bench
	program *anchor.Program
	skipped map[string]bool // which are not to be had here, of whom that was said
}

// openAnchors builds the program. It returns nil where that was not asked for.
func (b *bench) openAnchors(ctx context.Context) (*anchors, error) {
	if b.cfg.anchors == "" {
		return nil, nil //nolint:nilnil // a nil *anchors measures nothing
	}
	b.say("  building the program of the other stores")
	program, err := anchor.Build(ctx, b.cfg.anchors, b.dir)
	if err != nil {
		return nil, err
	}
	return &anchors{b, program, map[string]bool{}}, nil
}

// orders measures all stores that are to be had here.
func (a *anchors) orders(ctx context.Context, t *measure.Table, all []workload) error {
	if a == nil {
		return nil
	}
	task := anchor.Task{Seed: a.b.cfg.seed, Customers: a.b.cfg.customers, Warmup: a.b.cfg.warmup, Window: a.b.cfg.writeTime}
	for _, w := range all {
		task.Workloads = append(task.Workloads, anchor.Workload{Name: w.name, Clients: w.clients, Customer: w.customer})
	}
	for _, store := range anchor.Stores() {
		if err := a.b.quiet(ctx); err != nil {
			return err
		}
		if err := a.ordersOf(ctx, t, store, task); err != nil {
			return err
		}
	}
	return nil
}

// ordersOf measures one store.
func (a *anchors) ordersOf(ctx context.Context, t *measure.Table, store string, task anchor.Task) (err error) {
	task.Store = store
	if task.Dir, err = a.b.scratch("anchor"); err != nil {
		return err
	}
	defer a.b.remove(task.Dir)
	results, err := a.program.Run(ctx, &task)
	if skip, ok := errors.AsType[*anchor.SkippedError](err); ok {
		if !a.skipped[store] {
			a.skipped[store] = true
			a.b.say("  skipped: %v", skip)
		}
		return nil
	}
	if err != nil {
		return err
	}
	for _, m := range results {
		name := m.Workload + ": " + store
		r := t.Row(name)
		r.Add("orders/s", m.PerSecond)
		r.Add("p50 ms", measure.Milliseconds(m.P50))
		r.Add("p99 ms", measure.Milliseconds(m.P99))
		r.Add("CPU µs/order", float64(m.CPU)/float64(time.Microsecond))
		if m.Flushes >= 0 {
			r.Add("flushes/order", m.Flushes)
		}
		t.Others = append(t.Others, m.Others)
		a.b.say("  %s: %s orders/s, p50 %.3f ms, p99 %.3f ms, CPU %.1f µs", name, measure.Number(m.PerSecond), measure.Milliseconds(m.P50),
			measure.Milliseconds(m.P99), m.CPU.Seconds()*1e6)
	}
	return nil
}

// joins measures the renames of categories in Kafka Streams, if it is to be had here. It does so after the rounds of the others, not between
// them: a broker that is at rest still polls.
func (w *world) joins(ctx context.Context, t *measure.Table, categories []subject) (err error) {
	b := w.b
	if b.cfg.anchors == "" {
		return nil
	}
	b.say("  fetching and compiling the program of Kafka Streams")
	program, err := anchor.BuildKafka(ctx, filepath.Join(b.cfg.anchors, "kafka"), b.dir)
	if skip, ok := errors.AsType[*anchor.SkippedError](err); ok {
		b.say("  skipped: %v", skip)
		return nil
	}
	if err != nil {
		return err
	}
	b.mode(anchor.KafkaMode)
	dir, err := b.scratch("kafka")
	if err != nil {
		return err
	}
	defer b.remove(dir)
	var kafka *anchor.Kafka
	err = w.loaded(ctx, anchor.KafkaJoin, func() (err error) {
		kafka, err = program.Open(ctx, dir, w.set)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kafka.Close()) }()
	for range b.cfg.rounds {
		for _, s := range categories {
			if err := w.join(ctx, t, kafka, s); err != nil {
				return err
			}
		}
	}
	for _, s := range categories {
		name := s.what + ": " + anchor.KafkaJoin
		t.Beside(name, s.what+": "+ofMillrace, "copies/s", "times Millrace")
		t.Beside(name, s.what+": "+ofJSONB, "copies/s", "times jsonb")
	}
	return kafka.Verify()
}

// join renames a category in Kafka Streams.
func (w *world) join(ctx context.Context, t *measure.Table, kafka *anchor.Kafka, s subject) error {
	source, flushes := w.rename(s), 0.0
	err := w.measured(ctx, t, s, anchor.KafkaJoin, func() (cost, error) {
		return w.timed(func() (err error) {
			flushes, err = kafka.Rename(source, len(s.products))
			return err
		})
	})
	if err == nil && flushes >= 0 {
		t.Row(s.what+": "+anchor.KafkaJoin).Add("flushes", flushes)
	}
	return err
}

// checkAnchors says what is wrong with the directory of the other stores' module, if one is named.
func checkAnchors(dir string) error {
	if dir == "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil || !strings.Contains(string(text), "integration/bench/anchors") {
		return fmt.Errorf("-anchors %s: that is not the module integration/bench/anchors", dir)
	}
	return nil
}
