package owner

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/tombstone"
)

// pastBytesMax bounds the tombstones that one control transaction brings, and those
// that are held in memory.
const pastBytesMax = 64 << 10

// backfillTombstones makes the tombstones of items that went before their kind was in
// force. It reads the log up to that commit and writes what it finds into the log, in
// steps; clients write between two steps. So state stays a function of the log, however
// much of its past the log still has. A step may be repeated, and may be out of date: its
// application leaves an existing item, and a later tombstone, as they are.
func (p *Partition) backfillTombstones(ctx context.Context, kind *store.TombstoneSetting) error {
	rule, err := tombstone.Compile(kind.Wish)
	if err != nil {
		return err
	}
	first, _, err := p.feed.Bounds(ctx)
	if err != nil {
		return fmt.Errorf("tombstones of the past: %w", err)
	}
	if first >= kind.Since {
		return nil
	}
	began := time.Now()
	tail, err := p.feed.Tail(ctx, max(first, 1), feed.TailOptions{})
	if err != nil {
		return fmt.Errorf("tombstones of the past: %w", err)
	}
	defer tail.Close()
	x := &tombstoneBackfill{p: p, rule: rule, number: kind.Number, found: map[string][]byte{}}
	for at := feed.LSN(0); at+1 < kind.Since; {
		c, err := tail.Next(ctx)
		if ctx.Err() != nil {
			return errStopped
		}
		if err != nil {
			return fmt.Errorf("tombstones of the past: %w", err)
		}
		at = c.LSN
		if at >= kind.Since {
			break
		}
		if err := x.collect(ctx, c); err != nil {
			return err
		}
	}
	if err := x.flush(ctx); err != nil {
		return err
	}
	p.log.Info("tombstones of the past were brought from the log", "where", kind.Where, "tombstones", x.brought,
		"up to", uint64(kind.Since), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// tombstoneBackfill collects tombstones from a log.
type tombstoneBackfill struct {
	p       *Partition
	rule    *tombstone.Rule
	number  uint32
	found   map[string][]byte // by item key; of items made again they are left out
	bytes   int
	brought int
}

func (x *tombstoneBackfill) collect(ctx context.Context, c *feed.Commit) error {
	index := uint32(0)
	for i := range c.Transactions {
		for j := range c.Transactions[i].Changes {
			ch := &c.Transactions[i].Changes[j]
			at := feed.Position{LSN: c.LSN, Index: index}
			index++
			outcome, before, err := x.rule.Of(ch)
			if err != nil {
				return fmt.Errorf("tombstones of the past: change %s: %w", at, err)
			}
			if outcome == tombstone.Nothing {
				continue
			}
			// Of an item that went twice the later tombstone counts, and of one that was made
			// again none.
			key := string(engine.ItemKey(ch.Key, ch.ID))
			if old, ok := x.found[key]; ok {
				x.bytes -= len(key) + len(old)
				delete(x.found, key)
			}
			if outcome == tombstone.Made {
				stone := x.rule.Stone(before, at, c.Time).Append(nil)
				x.found[key] = stone
				x.bytes += len(key) + len(stone)
			}
		}
	}
	if x.bytes < pastBytesMax {
		return nil
	}
	return x.flush(ctx)
}

// flush writes what was found into the log, in parts that fit.
func (x *tombstoneBackfill) flush(ctx context.Context) error {
	// In parts, each a commit of its own: clients' writes go on between two of them. In
	// order, so that a step that comes again has the same bytes.
	past := store.TombstonesPast{Number: x.number}
	size := 0
	keys := make([]string, 0, len(x.found))
	for key := range x.found {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for i, key := range keys {
		past.Tombstones = append(past.Tombstones, store.PastTombstone{Item: []byte(key), Stone: x.found[key]})
		if size += len(key) + len(x.found[key]); size < pastBytesMax && i+1 < len(keys) {
			continue
		}
		if err := x.p.commitPastTombstones(ctx, &past); err != nil {
			return err
		}
		x.brought += len(past.Tombstones)
		past.Tombstones, size = nil, 0
	}
	clear(x.found)
	x.bytes = 0
	return nil
}

// commitPastTombstones commits a step and waits until it is applied.
func (p *Partition) commitPastTombstones(ctx context.Context, past *store.TombstonesPast) error {
	data, err := json.Marshal(past)
	if err != nil {
		return fmt.Errorf("tombstones of the past: %w", err)
	}
	var lsn feed.LSN
	var generation uint64
	if !p.onDecider(ctx, func(d *decider) {
		d.dropLost()
		t := newTxn(d.view(), d.draft)
		t.control = &feed.Control{Kind: store.ControlTombstones, Data: data}
		t.bytes += len(data)
		d.draft.add(t, nil)
		lsn, generation = d.decided(), d.generation
	}) {
		return errStopped
	}
	return p.waitApplied(ctx, lsn, generation)
}
