package cascade

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// Limits of a check.
const (
	repairItemsMax = 1000    // of one request; the store's limit
	repairBytesMax = 1 << 20 // of the copies in one request
)

// Checker is the processor that compares the copies in created and replaced
// items of one target partition with their sources, and repairs those that
// differ. Beside that it does so with items that are there, if it is asked to.
type Checker struct {
	c        *Cascade
	term     *processors.Term
	fanOuts  feed.Producer // of the fan-outs whose pages need one comparison; Source is empty
	repairer feed.Producer // of the repairs; never that of fan-outs, see repairPart
	backfill *processors.Backfiller
	// Of one that a fan-out has made, see FanOut.examine: the one source whose copies are looked
	// at, and what the dead letters of all items have in common. Else nil.
	only   *store.ItemRef
	letter *processors.DeadLetter

	copies, checked, dangling, deadLetters atomic.Int64
}

// Check returns a processor of the cascade's target partition, for one term.
func (c *Cascade) Check(feed.Partition) processors.Processor {
	k := &Checker{c: c}
	k.backfill = processors.NewBackfiller(c.cfg.Backfill, c.cfg.Target, k.checkPage)
	return k
}

// Open takes over the counts of the checkpoint.
func (k *Checker) Open(_ context.Context, t *processors.Term, state processors.State) error {
	k.term = t
	k.fanOuts, k.repairer = t.Producer(), t.Producer()
	k.copies.Store(state.Counts.Copies)
	k.checked.Store(state.Counts.Checked)
	k.dangling.Store(state.Counts.Dangling)
	k.deadLetters.Store(state.Counts.DeadLetters)
	k.backfill.Open(t, state.Backfill)
	return nil
}

// State returns the counts, and how far the check of what was there is.
func (k *Checker) State() processors.State {
	s := processors.State{Counts: processors.Counts{
		Copies: k.copies.Load(), Checked: k.checked.Load(), Dangling: k.dangling.Load(), DeadLetters: k.deadLetters.Load(),
	}}
	k.backfill.State(&s)
	return s
}

// Run checks what was there, if that is asked for, and waits: what changes is checked
// in Process.
func (k *Checker) Run(ctx context.Context) error {
	if err := k.backfill.Run(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// newRound begins a round of what k looks at.
func (k *Checker) newRound() *round {
	r := newRound(k.c)
	r.only = k.only
	return r
}

// checkPage checks the items that follow. It is a check like that of a change, so what comes
// beside it, a fan-out or a check by the feed, does it no harm.
func (k *Checker) checkPage(ctx context.Context, next *processors.Backfill) error {
	r := k.newRound()
	if _, err := k.backfill.Scan(ctx, next, func(item *store.Item) {
		r.addItem(store.ItemRef{Key: item.Key, ID: item.ID}, item, "")
	}); err != nil {
		return err
	}
	repaired, err := k.checkAndRepair(ctx, r)
	next.Changed += repaired
	return err
}

// Process checks the items that the batch created or replaced.
func (k *Checker) Process(ctx context.Context, b *processors.Batch) error {
	r := k.newRound()
	var pages []*processors.Part
	for i := range b.Parts {
		p := &b.Parts[i]
		switch interestIn(p.Transaction, &k.fanOuts) {
		case checkNothing:
		case checkOnce:
			pages = append(pages, p)
			r.addPage(p.Transaction.Page)
		case checkEach:
			for j := range p.Changes {
				k.addChange(r, p, j)
			}
		}
	}
	if len(r.sources) == 0 { // no item of the batch copies anything
		return nil
	}
	if err := r.readSources(ctx); err != nil {
		return err
	}
	// What neither is as the source says nor has a fan-out to come is checked item by item, in
	// the same round.
	for _, p := range pages {
		if r.pageStands(p.Transaction.Page) {
			continue
		}
		for j := range p.Changes {
			k.addChange(r, p, j)
		}
	}
	_, err := k.checkAndRepair(ctx, r)
	return err
}

// interest says how closely a transaction has to be looked at.
type interest uint8

const (
	checkNothing interest = iota
	checkOnce             // a page of this cascade: one comparison stands for all its items
	checkEach
)

// interestIn tells what the transaction can have done to this cascade's copies. What rules make
// of a page is in the page's transaction, beside what the page names: a total that an aggregate
// creates may be an item with copies, and the fields that it sets may be matched on.
func interestIn(t *feed.Transaction, own *feed.Producer) interest {
	switch {
	case t.Page == nil || t.Effect == nil:
		return checkEach
	case t.Effect.Producer.Pipeline != own.Pipeline || t.Effect.Producer.Generation != own.Generation:
		return checkEach
	case len(t.Folds) > 0:
		return checkEach
	case store.CopyAction(t.Page.Action) == store.CopyDelete:
		return checkNothing
	}
	return checkOnce
}

// addChange takes one changed item into the round, unless it needs no check.
func (k *Checker) addChange(r *round, p *processors.Part, i int) {
	ch := &p.Changes[i]
	if !k.needsCheck(p, ch) {
		return
	}
	item := &store.Item{Body: ch.After, ETag: store.ETag(p.At(i)), Modified: ch.Modified}
	r.addItem(store.ItemRef{Key: ch.Key, ID: ch.ID}, item, p.Transaction.TraceParent)
}

// needsCheck says whether a change left an item, and may have touched something on which its
// copies rest.
func (k *Checker) needsCheck(p *processors.Part, ch *feed.Change) bool {
	// A client's write moves the item behind the fence of a source's deletion, where the
	// deletion's pages do not touch it, whatever the write changed: the check has to clear
	// or delete it.
	//
	//	fence at 90   item last written at 80: the pages reach it
	//	              a client patches another field at 95: the pages pass it over
	mayEscape := p.Transaction.Effect == nil && k.c.action() != store.CopySet
	return ch.After != nil && (ch.Op != feed.OpReplace || mayEscape || ch.Touches(k.c.touchesTarget))
}

// Supersedes says whether the item was checked after the change, or is gone. A page of the
// cascade's own fan-out set the copies of one source, and the item may have others.
func (k *Checker) Supersedes(p *processors.Part, i int) bool {
	ch := &p.Changes[i]
	return ch.After == nil || interestIn(p.Transaction, &k.fanOuts) == checkEach && k.needsCheck(p, ch)
}

// checkAndRepair compares what the round has collected, repairs what differs, and returns
// how many items it repaired. An item that has changed since it was read is checked again
// here, with its sources read anew. The feed cannot be trusted to bring it back: its newer
// change may be one that addChange leaves out, because it touched no field of the cascade.
func (k *Checker) checkAndRepair(ctx context.Context, r *round) (repaired int64, err error) {
	for rounds := 0; ; rounds++ {
		if err := r.readSources(ctx); err != nil {
			return repaired, err
		}
		repairs := r.compare()
		k.checked.Add(int64(r.checked))
		k.dangling.Add(int64(r.dangling))
		meters.checked.Add(ctx, int64(r.checked), k.c.measured("check"))
		meters.dangling.Add(ctx, int64(r.dangling), k.c.measured("check"))
		if len(repairs) == 0 {
			return repaired, nil
		}
		changed, n, err := k.repair(ctx, repairs)
		repaired += n
		if err != nil || len(changed) == 0 {
			return repaired, err
		}
		if rounds == processors.RepairAttemptsMax {
			return repaired, processors.ItemChanges(len(changed), changed[0].Ref.String())
		}
		if r, err = k.reread(ctx, changed); err != nil {
			return repaired, err
		}
		k.term.Heartbeat()
	}
}

// reread begins a round with the present state of items.
func (k *Checker) reread(ctx context.Context, repairs []itemRepair) (*round, error) {
	refs := make([]store.ItemRef, len(repairs))
	for i := range repairs {
		refs[i] = repairs[i].Ref
	}
	items, err := k.c.cfg.Target.ReadMany(ctx, refs, true)
	if err != nil {
		return nil, err
	}
	// An item that is gone needs no repair. Its sources are read anew, see round.
	r := k.newRound()
	for i := range items {
		if items[i].ETag != (store.ETag{}) {
			r.addItem(refs[i], &items[i], repairs[i].trace)
		}
	}
	return r, nil
}

// repair sends repairs and returns those whose items have changed since they
// were looked at, and how many were repaired.
func (k *Checker) repair(ctx context.Context, repairs []itemRepair) (changed []itemRepair, repaired int64, err error) {
	// The items of one partition may be in its children by now.
	slices.SortStableFunc(repairs, func(a, b itemRepair) int { return cmp.Compare(k.partitionOf(&a).Number, k.partitionOf(&b).Number) })
	most := len(repairs)
	for len(repairs) > 0 {
		n, partition := min(requestLen(repairs), most), k.partitionOf(&repairs[0])
		if others := slices.IndexFunc(repairs[:n], func(r itemRepair) bool { return k.partitionOf(&r) != partition }); others >= 0 {
			n = others
		}
		r := &store.Repair{Producer: k.repairer, Epoch: k.term.Epoch}
		for i := range repairs[:n] {
			r.Items = append(r.Items, repairs[i].RepairItem)
		}
		result, err := k.c.cfg.Target.Repair(ctx, partition, r)
		// What aggregates in the same transaction make of the repairs is the owner's to add,
		// so only it can tell that they are too many for one.
		if errors.Is(err, store.ErrTooLarge) && n > 1 {
			most = n / 2
			continue
		}
		if errors.Is(err, store.ErrTooLarge) {
			result, err = &store.RepairResult{Statuses: []store.Status{store.StatusTooLarge}, Reasons: []string{err.Error()}}, nil
		}
		if err != nil {
			return nil, repaired, err
		}
		for i, status := range result.Statuses {
			switch status {
			case store.StatusOK:
				repaired++
				k.copies.Add(1)
				meters.copies.Add(ctx, 1, k.c.measured("repair"))
			case store.StatusNotModified, store.StatusNotFound: // right already, or gone
			case store.StatusPreconditionFailed:
				changed = append(changed, repairs[i])
			default:
				if err := k.writeDeadLetter(ctx, &repairs[i], status, result.Reasons[i]); err != nil {
					return nil, repaired, err
				}
			}
		}
		repairs = repairs[n:]
	}
	return changed, repaired, nil
}

// partitionOf is the partition that holds an item now.
func (k *Checker) partitionOf(r *itemRepair) feed.Partition {
	return k.c.cfg.Target.PartitionFor(r.Ref.Key)
}

// writeDeadLetter writes the dead letter of an item that could not take its copies. The
// others go on.
func (k *Checker) writeDeadLetter(ctx context.Context, m *itemRepair, status store.Status, reason string) error {
	k.deadLetters.Add(1)
	l := processors.DeadLetter{Item: m.Ref.String(), Position: feed.Position(m.IfMatch), Trace: m.trace}
	if k.letter != nil {
		l = *k.letter
	}
	l.Target, l.Status, l.Reason = m.Ref.String(), int(status), reason
	return k.term.DeadLetter(ctx, l)
}

// requestLen is how many repairs fit into one request.
func requestLen(repairs []itemRepair) int {
	bytes := 0
	for i := range repairs {
		for _, c := range repairs[i].Copies {
			for _, f := range c.Set {
				bytes += len(f.Path) + len(f.Value)
			}
			for _, f := range c.Match {
				bytes += len(f.Path) + len(f.Value)
			}
			bytes += len(c.Where)
		}
		if i > 0 && (i == repairItemsMax || bytes > repairBytesMax) {
			return i
		}
	}
	return len(repairs)
}
