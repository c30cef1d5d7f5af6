//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/bench/measure"
	"github.com/millrace/millrace/store"
)

const (
	fullAge   = 100_000 // items that the bar is about
	fullTimes = 50      // how often the items of the old container were written
	ageBar    = 1.2     // times the time over the young container
	ageGroup  = store.BatchOpsMax
)

const ageContainers = `
apiVersion: millrace/v1
kind: Container
metadata: {name: things%[1]d}
spec: {partitionKey: [/group], indexes: [/group]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: groups%[1]d}
spec: {partitionKey: [/id]}
`

// agePipelines has a pipeline of each kind. %[1]d is how often the items of its containers
// were written, %[2]q where its sink is.
var agePipelines = []struct{ kind, text string }{
	{"aggregate", `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: age-aggregate%[1]d}
spec:
  source: {container: things%[1]d}
  aggregate:
    into: groups%[1]d
    match: {id: group}
    set: {count: {count: true}, sum: {sum: n}}
    consistency: eventual
`},
	{"projection into Parquet files", `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: age-rows%[1]d}
spec:
  source: {container: things%[1]d}
  project:
    sink: {parquet: {path: %[2]q, commitInterval: 1s}}
    tables:
      things:
        key: [group, id]
        columns: {group: group, id: id, n: n, pad: pad}
`},
	{"cascade", `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: age-names%[1]d}
spec:
  source: {container: groups%[1]d}
  cascade:
    into: things%[1]d
    match: {group: id}
    set: {groupName: name}
`},
}

// age is the case of new pipelines over items that were written once, and over items that
// were written many times.
func (b *bench) age(ctx context.Context) (err error) {
	many := cmp.Or(b.cfg.times, fullTimes)
	t := b.table("age", "New pipelines over what was written often", fmt.Sprintf(
		"A pipeline of each kind is applied over %s items of 400 bytes in groups of %d, which were written once, or %d times; the groups, which the cascade copies "+
			"from, likewise. The time counts from apply until nothing is left to do; then all is verified, and the pipeline deleted. In the first round a cascade "+
			"writes every item. Before, a snapshot of the items is asked for, whose time is a column of its own: with it is what a pipeline takes where "+
			"there is none.", measure.Number(float64(b.cfg.items)), ageGroup, many))
	dir, err := b.scratch("age")
	if err != nil {
		return err
	}
	defer b.remove(dir)
	m, err := openMillrace(ctx, filepath.Join(dir, "millrace"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	for _, times := range []int{1, many} {
		b.say("  writing %s items %d times", measure.Number(float64(b.cfg.items)), times)
		if err := m.writeThings(ctx, b.cfg.items, times); err != nil {
			return err
		}
	}
	for round := range b.cfg.rounds {
		b.say("  round %d of %d", round+1, b.cfg.rounds)
		for _, p := range agePipelines {
			for _, times := range []int{1, many} {
				sink := filepath.Join(dir, fmt.Sprintf("rows-%d-%d", times, round))
				if err := b.agePipeline(ctx, m, t, p.kind, fmt.Sprintf(p.text, times, sink), times); err != nil {
					return err
				}
				b.remove(sink)
			}
		}
	}
	judged := b.cfg.items >= fullAge && many >= fullTimes
	for _, p := range agePipelines {
		t.Beside(aged(p.kind, many), aged(p.kind, 1), "s", "times written once")
		t.AtMost(p.kind+" over items that were written often", t.Ratio(aged(p.kind, many), aged(p.kind, 1), "s"), ageBar, "times", judged)
	}
	return nil
}

// aged names a row.
func aged(kind string, times int) string { return fmt.Sprintf("%s, written %d times", kind, times) }

// writeThings makes the containers of a number of times, and writes each item, and the group
// that it belongs to, as often.
func (m *millrace) writeThings(ctx context.Context, items, times int) error {
	if err := m.apply(ctx, fmt.Sprintf(ageContainers, times)); err != nil {
		return err
	}
	things, err := m.client.Container(ctx, database, fmt.Sprintf("things%d", times))
	if err != nil {
		return err
	}
	groups, err := m.client.Container(ctx, database, fmt.Sprintf("groups%d", times))
	if err != nil {
		return err
	}
	pad := strings.Repeat("x", 300)
	for n := range times {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(loaders / 8)
		for first := 0; first < items; first += ageGroup {
			g.Go(func() error {
				group := fmt.Sprintf("g%06d", first/ageGroup)
				key, err := feed.NewPartitionKey(group)
				if err != nil {
					return err
				}
				ops := make([]store.Operation, 0, ageGroup)
				for i := first; i < min(first+ageGroup, items); i++ {
					ops = append(ops, store.Operation{Kind: store.OpUpsert, Body: fmt.Appendf(nil, `{"id":"i%08d","group":%q,"n":%d,"pad":%q}`, i, group, n+i, pad)})
				}
				if _, err := things.Batch(ctx, key, ops, ""); err != nil {
					return err
				}
				_, err = groups.Upsert(ctx, fmt.Appendf(nil, `{"id":%q,"name":"name %d of %s"}`, group, n, group))
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return fmt.Errorf("write items: %w", err)
		}
	}
	return nil
}

// agePipeline measures one pipeline from apply until it has nothing left to do, verifies its
// copies and deletes it.
func (b *bench) agePipeline(ctx context.Context, m *millrace, t *measure.Table, kind, text string, times int) error {
	took, err := m.haveSnapshot(ctx, fmt.Sprintf("things%d", times))
	if err != nil {
		return err
	}
	if err := b.quiet(ctx); err != nil {
		return err
	}
	watch, start := b.watch(), time.Now()
	err = b.profiled(aged(kind, times), func() error {
		if err := m.apply(ctx, text); err != nil {
			return err
		}
		return m.awaitIdle(ctx)
	})
	if err != nil {
		return err
	}
	seconds, items := time.Since(start).Seconds(), float64(b.cfg.items)
	r := t.Row(aged(kind, times))
	r.Add("s", seconds)
	r.Add("items/s", items/seconds)
	r.Add("CPU s", watch.Ours().Seconds())
	r.Add("snapshot s", took.Seconds())
	t.Others = append(t.Others, watch.Others())
	records, err := m.registry.List(ctx)
	if err != nil {
		return err
	}
	// The one before was deleted, so records[0] is the pipeline that was measured.
	begins := "the log"
	if len(records[0].Walks) > 0 || records[0].Backfills > 0 {
		begins = "items"
	}
	b.say("  %s: %.3f s from %s, %.2f s of CPU, snapshot %.3f s", r.Name, seconds, begins, watch.Ours().Seconds(), took.Seconds())
	if _, err := m.verify(ctx); err != nil {
		return err
	}
	return m.registry.Delete(ctx, database, records[0].Name)
}

// haveSnapshot asks for a snapshot of a container, as a pipeline does that begins with its items. It
// returns the time that this took: next to nothing where a snapshot is young enough.
func (s *session) haveSnapshot(ctx context.Context, container string) (time.Duration, error) {
	c, err := s.client.Container(ctx, database, container)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	for _, p := range c.Partitions() {
		if _, err := c.PinSnapshot(ctx, p, store.PinSnapshot{Holder: "bench"}); err != nil {
			return 0, err
		}
	}
	took := time.Since(start)
	for _, p := range c.Partitions() {
		if _, err := c.PinSnapshot(ctx, p, store.PinSnapshot{Holder: "bench", Release: true}); err != nil {
			return 0, err
		}
	}
	return took, nil
}
