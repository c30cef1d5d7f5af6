package owner

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/heat"
	"github.com/millrace/millrace/store/tombstone"
)

// stones is a compiled store.TombstoneSetting.
type stones struct {
	*store.TombstoneSetting
	*tombstone.Rule
	prefix []byte // of the keys of its records
}

func compileStones(s *store.TombstoneSetting) (*stones, error) {
	rule, err := tombstone.Compile(s.Wish)
	if err != nil {
		return nil, err
	}
	return &stones{s, rule, binary.BigEndian.AppendUint32(nil, s.Number)}, nil
}

func (k *stones) key(itemKey []byte) []byte { return slices.Concat(k.prefix, itemKey) }

func (k *stones) timeKey(time int64, itemKey []byte) []byte {
	return append(binary.BigEndian.AppendUint64(slices.Clone(k.prefix), uint64(time)), itemKey...)
}

// applyTombstones makes or removes the tombstones that a change calls for.
func (a *applier) applyTombstones(b *engine.Batch, c *feed.Change, at feed.Position, time int64) error {
	for _, k := range a.schema.stones {
		outcome, before, err := k.Of(c)
		if err != nil {
			return fmt.Errorf("change %s: %w", at, err)
		}
		switch outcome {
		case tombstone.Nothing:
		case tombstone.Made:
			err = a.putStone(b, k, engine.ItemKey(c.Key, c.ID), k.Stone(before, at, time))
		case tombstone.Removed:
			var may bool
			if may, err = a.mayHave(k); may && err == nil {
				// Its entry by time stays until its time comes and says nothing then.
				err = b.DeleteRecord(recordTombstone, k.key(engine.ItemKey(c.Key, c.ID)))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *applier) putStone(b *engine.Batch, k *stones, itemKey []byte, s *tombstone.Stone) error {
	if a.stones == nil {
		a.stones = map[uint32]bool{}
	}
	a.stones[k.Number] = true
	return errors.Join(
		b.PutRecord(recordTombstone, k.key(itemKey), s.Append(nil)),
		b.PutRecord(recordTombTime, k.timeKey(s.Time, itemKey), nil))
}

// mayHave says whether there may be tombstones of a kind: the creation of an item need
// not look for what cannot be there.
func (a *applier) mayHave(k *stones) (bool, error) {
	if may, known := a.stones[k.Number]; known {
		return may, nil
	}
	may := false
	snap := a.p.Snapshot()
	defer snap.Close()
	for _, err := range snap.Records(recordTombstone, k.prefix) {
		if err != nil {
			return false, err
		}
		may = true
		break
	}
	if a.stones == nil {
		a.stones = map[uint32]bool{}
	}
	a.stones[k.Number] = may
	return may, nil
}

// forgetStones drops tombstones that are older than they are kept, by the time of the
// commit that is applied, once a minute of the log's own time.
func (a *applier) forgetStones(b *engine.Batch, now int64) error {
	if a.schema == nil || len(a.schema.stones) == 0 || !forgets(a.last.time, now) {
		return nil
	}
	snap := a.p.Snapshot()
	defer snap.Close()
	limit, count := max(now-a.schema.settings.TombstonesKept, 0), 0
	for _, k := range a.schema.stones {
		for r, err := range snap.Records(recordTombTime, k.prefix) {
			if err != nil {
				return err
			}
			time := int64(binary.BigEndian.Uint64(r.Key[len(k.prefix):]))
			if time >= limit {
				break
			}
			itemKey := slices.Clone(r.Key[len(k.prefix)+8:])
			if err := a.forgetStone(b, snap, k, time, itemKey); err != nil {
				return err
			}
			count++
			if err := a.forgot(b, count); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetStone drops one, unless the item has gone again since.
func (a *applier) forgetStone(b *engine.Batch, snap *engine.Snapshot, k *stones, time int64, itemKey []byte) error {
	// The creation of an item takes its tombstone back, and leaves the entry by time:
	//
	//	gone at 5, created, gone at 9   entries 5 and 9, one tombstone, of 9
	//	5 is too old                    its entry goes; the tombstone stays until 9 is too old
	s, err := stoneOf(snap, k, itemKey)
	if err != nil {
		return err
	}
	if s != nil && s.Time == time {
		if err := b.DeleteRecord(recordTombstone, k.key(itemKey)); err != nil {
			return err
		}
	}
	// Last, since by it the rest is found after a crash that left a part of the batch.
	return b.DeleteRecord(recordTombTime, k.timeKey(time, itemKey))
}

func stoneOf(snap *engine.Snapshot, k *stones, itemKey []byte) (*tombstone.Stone, error) {
	value, ok, err := snap.Record(recordTombstone, k.key(itemKey))
	if err != nil || !ok {
		return nil, err
	}
	return tombstone.Decode(value)
}

// dropStones drops the kinds that the next settings do not have.
func (a *applier) dropStones(old, next *schema) error {
	for _, k := range old.stones {
		if slices.ContainsFunc(next.stones, func(n *stones) bool { return n.Number == k.Number }) {
			continue
		}
		if err := errors.Join(a.p.DropRecords(recordTombstone, k.prefix), a.p.DropRecords(recordTombTime, k.prefix)); err != nil {
			return fmt.Errorf("drop the tombstones of %q: %w", k.Where, err)
		}
	}
	return nil
}

// applyPastTombstones takes in tombstones from before the setting. What stands before the control
// transaction is applied.
func (a *applier) applyPastTombstones(data []byte, now int64) error {
	var past store.TombstonesPast
	if err := json.Unmarshal(data, &past); err != nil {
		return fmt.Errorf("tombstones in the log: %w", err)
	}
	at := slices.IndexFunc(a.schema.stones, func(k *stones) bool { return k.Number == past.Number })
	if at < 0 {
		return nil // nobody asks for them any more
	}
	k := a.schema.stones[at]
	snap := a.p.Snapshot()
	defer snap.Close()
	for i := range past.Tombstones {
		s, err := tombstone.Decode(past.Tombstones[i].Stone)
		if err != nil {
			return fmt.Errorf("tombstones in the log: %w", err)
		}
		itemKey := past.Tombstones[i].Item
		key, id, err := engine.ParseItemKey(itemKey)
		if err != nil {
			return fmt.Errorf("tombstones in the log: %w", err)
		}
		item, there, err := snap.Get(key, id)
		if err != nil {
			return err
		}
		later, err := stoneOf(snap, k, itemKey)
		if err != nil {
			return err
		}
		// It would be forgotten before anybody could ask.
		if s.Time < now-a.schema.settings.TombstonesKept {
			continue
		}
		// In a replay the engine may show what later commits did: then they do it again.
		// So the entry by time, which none of them takes back, rests on nothing shown.
		if err := a.batch.PutRecord(recordTombTime, k.timeKey(s.Time, itemKey), nil); err != nil {
			return err
		}
		if there && k.Selects(item.Body) || later != nil && s.Position.Before(later.Position) {
			continue
		}
		if err := a.putStone(a.batch, k, itemKey, s); err != nil {
			return err
		}
	}
	return nil
}

var sourcesHandler = handler{
	read: func(_ context.Context, p *Partition, r *store.Request) *store.Response {
		return p.sources(r.Sources)
	},
	barrier: always,
	heat: func(_ *Partition, r *store.Request, resp *store.Response) heat.Work {
		work := heat.Work{Keys: keysOf(r.Sources.Refs)}
		if resp.Sources != nil {
			for i := range resp.Sources.Sources {
				work.Bytes += len(resp.Sources.Sources[i].Body)
			}
		}
		return work
	},
}

// sources answers what pipelines follow: items, and what is left of them.
func (p *Partition) sources(r *store.ReadSources) *store.Response {
	if len(r.Refs) > store.ReadManyMax {
		return &store.Response{Err: store.Refuse(store.StatusBadRequest, "a read has at most %d items, this one has %d", store.ReadManyMax, len(r.Refs))}
	}
	snap, s := p.snapshot()
	defer snap.Close()
	result := &store.SourcesResult{Sources: make([]store.Source, len(r.Refs))}
	var kind *stones
	for _, k := range s.schema.stones {
		if k.Equal(r.Wish) {
			kind, result.InForce = k, k.Ready
		}
	}
	now := p.now()
	for i, ref := range r.Refs {
		source, err := sourceOf(snap, kind, ref, now)
		if err != nil {
			return p.readFailed(err)
		}
		result.Sources[i] = source
	}
	if !p.lease.Valid() {
		return &store.Response{Err: p.notOwner()}
	}
	return &store.Response{Sources: result}
}

// sourceOf reads one source; kind is nil if no tombstones of its kind are kept. An item
// whose time has passed is gone, and its tombstone is still to be made: until then the
// item itself says what was copied of it.
func sourceOf(snap *engine.Snapshot, kind *stones, ref store.ItemRef, now int64) (source store.Source, err error) {
	item, there, err := snap.Get(ref.Key, ref.ID)
	if err != nil {
		return source, err
	}
	if there && !expired(&item, now) {
		source.Item = itemOf(&item)
	}
	switch {
	case kind == nil:
	case there && kind.Selects(item.Body):
		if expired(&item, now) {
			source.Gone, source.Expiring = kind.Stone(item.Body, item.Position, item.Expires), true
		}
	default:
		source.Gone, err = stoneOf(snap, kind, engine.ItemKey(ref.Key, ref.ID))
	}
	return source, err
}

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
