package verify

import (
	"context"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// judgeRound judges items by what the log says of them, as far as it says nothing new
// meanwhile, and returns the others.
func (r *rowReplay) judgeRound(ctx context.Context, sources []string, round int) (again []string, err error) {
	// As rowJudge.judgeRound, with the log in the place of the items:
	//
	//	replay up to 40   wait until 40 is passed   read the sink   replay up to 43
	//
	// What an item must have as of 40 is there, unless it changed in 41 to 43.
	if err := r.advance(ctx); err != nil {
		return nil, err
	}
	goals := map[feed.Partition]feed.LSN{}
	for partition, l := range r.logs {
		goals[partition] = l.at
	}
	items, err := r.j.readItems(ctx, sources)
	if err != nil {
		return nil, err
	}
	expect, must := map[string]*expected{}, map[string]*examinedItem{}
	for _, source := range sources {
		item := items[source]
		expect[source] = r.expected(source, &item)
		must[source] = expect[source].must()
	}
	if _, r.j.check.reason, err = r.j.check.run.awaitSources(ctx, r.j.check.p, goals); err != nil || r.j.check.reason != "" {
		return nil, err
	}
	x := newExamined(r.j, must)
	if err := x.readSink(ctx); err != nil {
		return nil, err
	}
	if err := r.advance(ctx); err != nil {
		return nil, err
	}
	found, again, fading := r.compare(x, expect, goals, sources, round)
	if fading {
		// Without a pause all rounds could be over before the owner has written that
		// the item has expired.
		if err := r.j.check.run.wait(ctx, time.Second); err != nil {
			return nil, err
		}
	}
	if found, err = r.j.explainGivenUp(ctx, found); err != nil {
		return nil, err
	}
	r.markKept(items, found)
	return again, r.j.addDifferences(ctx, found)
}

// compare compares what items must have as of goals with what is there, and returns those that
// are to be looked at again; fading says that it may be the time that makes the difference.
func (r *rowReplay) compare(x *examined, expect map[string]*expected, goals map[feed.Partition]feed.LSN, sources []string, round int) (found []rowDifference, again []string, fading bool) {
	for _, source := range sources {
		differences := r.explain(expect[source], x.differences(source))
		changed := !r.j.other[source] && r.items[source].last > goals[r.j.partitionOf(source)]
		switch {
		case len(differences) == 0:
			r.countKept(expect[source])
		case changed && round == judgeRoundsMax:
			found = append(found, keepsChanging(differences)...)
		case changed:
			again = append(again, source)
		// The owner hides an item when its time has passed, and writes the expiry
		// into the log a little later. Until then its rows are rightly there.
		case expect[source].fading && round < suspectRounds:
			again, fading = append(again, source), true
		default:
			found = append(found, differences...)
		}
	}
	return found, again, fading
}

// countKept counts the rows that are there, as they must be, of items that have expired.
func (r *rowReplay) countKept(x *expected) {
	for _, made := range x.made {
		if made.stays && made.row != nil && !made.loose {
			r.j.check.run.countKept(r.j.check.p)
		}
	}
}

// markKept marks the rows that a repair cannot make of their items as they were read.
func (r *rowReplay) markKept(items map[string]store.Item, found []rowDifference) {
	if r.j.check.p.dropsExpired() {
		return
	}
	for i := range found {
		d := &found[i]
		if d.Surplus {
			continue
		}
		var own map[string]*replayedRow
		if item := items[d.Source]; item.ETag != (store.ETag{}) {
			own = r.rowsOf(item.Key, item.ID, item.Body)
		}
		d.kept = own[differenceName(d)] == nil
	}
}
