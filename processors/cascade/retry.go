package cascade

import (
	"cmp"
	"context"

	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// Retry begins a fan-out again that was given up, with its source as it is now; or
// brings its copies to the one item that refused them. A fan-out that a newer
// change has begun again meanwhile is left alone.
func (f *FanOut) Retry(ctx context.Context, p *processors.Parked) error {
	if p.Target != "" {
		return f.c.repairItem(ctx, f.term, p.Target)
	}
	// What was given up is not needed: the source is read.
	source := p.Item
	// Looked at before a token is taken: with all of them in use a retry would wait for
	// nothing, and Process with it.
	if !f.isParked(source) {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-f.slots:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fo := f.open[source]
	if fo == nil || !fo.job.Parked {
		f.slots <- struct{}{} // never full
		return nil
	}
	f.parked--
	// The version that was given up may be old, and a checkpoint may have kept it without
	// its values: the source is read.
	fo.unread, fo.slot = true, true
	fo.job.Parked, fo.job.Attempts, fo.job.LastError = false, 0, ""
	f.queue <- fo // never full: it has room for every token
	return nil
}

func (f *FanOut) isParked(source string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fo := f.open[source]
	return fo != nil && fo.job.Parked
}

// Retry checks an item again that could not take its copies.
func (k *Checker) Retry(ctx context.Context, p *processors.Parked) error {
	return k.c.repairItem(ctx, k.term, cmp.Or(p.Target, p.Item))
}

// repairItem brings one item's copies to what their sources are now. An item that
// refuses them is the error.
func (c *Cascade) repairItem(ctx context.Context, term *processors.Term, target string) error {
	return processors.RepairItem(target, func(ref store.ItemRef) (bool, error) { return c.repairOnce(ctx, term, ref) })
}

// repairOnce is one attempt; done is false if the item has changed meanwhile.
func (c *Cascade) repairOnce(ctx context.Context, term *processors.Term, ref store.ItemRef) (done bool, err error) {
	items, err := c.cfg.Target.ReadMany(ctx, []store.ItemRef{ref}, true)
	if err != nil || items[0].ETag == (store.ETag{}) {
		return true, err
	}
	r := newRound(c)
	r.addItem(ref, &items[0], "")
	if err := r.readSources(ctx); err != nil {
		return false, err
	}
	repairs := r.compare()
	if len(repairs) == 0 {
		return true, nil
	}
	result, err := c.cfg.Target.Repair(ctx, c.cfg.Target.PartitionFor(ref.Key), &store.Repair{
		Producer: term.Producer(), Epoch: term.Epoch, Items: []store.RepairItem{repairs[0].RepairItem},
	})
	if err != nil {
		return false, err
	}
	return processors.RepairOutcome(ref, result)
}
