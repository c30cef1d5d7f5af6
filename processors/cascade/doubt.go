package cascade

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// examineItemsMax bounds the items of one read of an examination; it is the store's limit.
const examineItemsMax = 1000

// doubt notes that a partition may have carried out a page of fo of which no answer came, or
// whose refusals are not in the dead letters.
func (f *FanOut) doubt(fo *fanOut, partition feed.Partition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fo.doubted[partition] = true
}

// doubtOthers notes it too if somebody else may have sent pages of r's version there. It is called
// when the partition has answered r, a page of this term, with result.
func (f *FanOut) doubtOthers(ctx context.Context, fo *fanOut, partition feed.Partition, r *store.PatchMany, result *store.PatchManyResult) error {
	f.mu.Lock()
	to, known := f.sharedTo[partition]
	decided := fo.doubted[partition] || fo.begun[partition] == r.Position
	f.mu.Unlock()
	if !known {
		if err := f.retry(ctx, fo, func() (err error) {
			to, err = f.pagesOfOthers(ctx)
			return err
		}); err != nil {
			return err
		}
		f.mu.Lock()
		f.sharedTo[partition] = to
		f.mu.Unlock()
	}
	if decided || r.Position.LSN > to {
		return nil
	}
	ours, err := f.began(ctx, fo, partition, r, result)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if ours {
		fo.begun[partition] = r.Position
	} else {
		fo.doubted[partition] = true
	}
	return nil
}

// began says whether r, the first page of its version that the partition has answered to this term, was
// the first one there at all. Then nobody else has sent one: those before would have been the first, and
// those behind it are refused, because its commit has the term's epoch. To ask is a request
// that commits nothing, where to examine a large fan-out is to read all of its items.
func (f *FanOut) began(ctx context.Context, fo *fanOut, partition feed.Partition, r *store.PatchMany, result *store.PatchManyResult) (bool, error) {
	// What a term before has left under way under the same epoch is not refused. And an answer
	// that looked at no item may tell the LSN of another's commit.
	if !f.term.FirstOfLease || result.Scanned == 0 {
		return false, nil
	}
	plant := *r
	plant.Plant, plant.FinishedBelow = true, feed.Position{}
	var answer *store.PatchManyResult
	err := f.retry(ctx, fo, func() (err error) {
		answer, err = f.c.cfg.Target.PatchMany(ctx, partition, &plant)
		return err
	})
	if err != nil {
		return false, err
	}
	// The commit that recorded the version first. An owner puts one page into a commit, so no two
	// have the same.
	return !answer.Superseded && answer.LSN == result.LSN, nil
}

// pagesOfOthers returns the end of the source's log. An earlier term, or a worker that does not
// know that its lease has passed on, has read no further: asked when a partition has answered
// this term, that is, has recorded its epoch, none of them can send the partition a page any more.
//
//	source   4 ─ 5 ─ 6 ─ 7 ─ 8        the partition has this term's epoch when the end is 6:
//	                     │            pages of 4, 5 and 6 may be there that others have sent,
//	                     end          those of 7 and 8 are this term's
func (f *FanOut) pagesOfOthers(ctx context.Context) (feed.LSN, error) {
	// Behind the barrier: others may have read a commit that its owner has not applied yet.
	page, err := f.c.cfg.Source.Scan(ctx, f.partition, store.Scan{ItemsMax: 1, Barrier: true})
	if split, was := errors.AsType[*store.SplitError](err); was && split.Former.Last > 0 {
		return split.Former.Last, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find the end of %s: %w", f.partition, err)
	}
	return page.LSN, nil
}

// examine looks for items that refused v in a partition which is in doubt, and writes their dead
// letters. It comes when the partition says that the fan-out is done: from then on no page of v
// changes anything there, however late it comes, so what any page refused is in the items.
func (f *FanOut) examine(ctx context.Context, fo *fanOut, v *version, p *targets, partition feed.Partition) error {
	f.mu.Lock()
	doubted := fo.doubted[partition]
	f.mu.Unlock()
	if !doubted {
		return nil
	}
	k := &Checker{c: f.c, term: f.term, repairer: f.term.Producer().Of(repairPart), only: &fo.ref}
	// The same as the page's own: who has written that one already writes it again.
	k.letter = &processors.DeadLetter{Item: fo.source, Position: v.position, Trace: fo.job.Trace}
	scan := store.Scan{Scope: p.scope, ItemsMax: examineItemsMax, Barrier: true}
	for {
		if f.superseded(fo, v) { // the newer version goes over all items, and is in doubt too
			return nil
		}
		var next []byte
		err := f.retry(ctx, fo, func() error {
			page, err := f.c.cfg.Target.Scan(ctx, partition, scan)
			if err != nil {
				return err
			}
			r := k.newRound()
			for i := range page.Items {
				item := &page.Items[i]
				r.addItem(store.ItemRef{Key: item.Key, ID: item.ID}, item, fo.job.Trace)
			}
			next = page.Cursor
			_, err = k.checkAndRepair(ctx, r)
			return err
		})
		if err != nil {
			return err
		}
		f.term.Heartbeat()
		if scan.After = next; next == nil {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(fo.doubted, partition)
	f.counts.Copies += k.copies.Load()
	f.counts.DeadLetters += k.deadLetters.Load()
	return nil
}
