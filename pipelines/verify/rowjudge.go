package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// rowJudge looks at single items whose rows seem not to be as they must.
//
// Items are read, then it is waited until the pipeline has passed that, then the
// sink is read, then the items again. One that is the same is what it was while the
// sink was read, and all that the pipeline ever wrote of it was there: what differs
// differs for no reason. One that has changed is looked at again.
//
// Where items expire, what they are does not tell what rows there must be: those of one that
// is gone go if it was deleted, and may stay if it expired. There the log is replayed in the
// place of reading the items (rowReplay), and what the log does not tell any more is unjudged.
type rowJudge struct {
	check     *rowCheck
	items     map[string]store.ItemRef // by source, as rows name it
	other     map[string]bool          // sources that are no items of the container
	differing int                      // rows that are there and not found equal
}

// judgeItemsMax bounds the items that are looked at in one reading of the sink.
const judgeItemsMax = 5000

// judgeItems looks at the items of sums.
func (c *rowCheck) judgeItems(ctx context.Context, suspects map[uint64]bool) error {
	j := &rowJudge{check: c, items: map[string]store.ItemRef{}, other: map[string]bool{}}
	if err := j.resolveSources(ctx, suspects); err != nil {
		return err
	}
	// In order, so that two runs judge alike, and in chunks: each round reads the
	// whole sink, but holds only the rows of these items.
	for some := range slices.Chunk(slices.Sorted(maps.Keys(j.items)), judgeItemsMax) {
		if err := j.judgeSome(ctx, some); err != nil {
			return err
		}
	}
	// All rows that no judgement has named are equal. They were counted before the
	// judging, so that rows which came since can make the difference negative.
	c.run.countEqual(c.p, max(c.rows-j.differing, 0))
	return nil
}

// judgeSome judges items until all of them are.
func (j *rowJudge) judgeSome(ctx context.Context, sources []string) (err error) {
	judge := j.judgeRound
	if j.mayExpire() {
		r := j.newRowReplay(sources)
		defer r.close()
		judge = r.judgeRound
	}
	for round := 0; len(sources) > 0 && j.check.reason == ""; round++ {
		if sources, err = judge(ctx, sources, round); err != nil {
			return err
		}
	}
	return nil
}

// judgeRound judges items that are not changed meanwhile, and returns the others; in the
// last round it says of these that they keep changing.
func (j *rowJudge) judgeRound(ctx context.Context, sources []string, round int) (again []string, err error) {
	// What is judged here:
	//
	//	item before   item after   rows differ   then
	//	etag 7        etag 7       yes           drift, or a reason is found
	//	etag 7        etag 8       yes           again: the sink may show either
	//	etag 7        etag 8       no            equal
	//
	// The wait between the two readings is for the pipeline to have written
	// etag 7, so that "not yet" is no explanation any more.
	before, err := j.readItems(ctx, sources)
	if err != nil {
		return nil, err
	}
	if j.check.reason, err = j.awaitPassed(ctx, sources); err != nil || j.check.reason != "" {
		return nil, err
	}
	x := newExamined(j, j.itemsAsRead(sources, before))
	if err := x.readSink(ctx); err != nil {
		return nil, err
	}
	after, err := j.readItems(ctx, sources)
	if err != nil {
		return nil, err
	}
	var found []rowDifference
	for _, source := range sources {
		differences := x.differences(source)
		switch {
		case len(differences) == 0:
		case before[source].ETag == after[source].ETag:
			found = append(found, differences...)
		case round == judgeRoundsMax:
			found = append(found, keepsChanging(differences)...)
		default:
			again = append(again, source)
		}
	}
	// Reasons are asked for after the rows were read, and only if any differ: a
	// change that is given up meanwhile is a reason too, and checkpoints of all
	// readers are many.
	if found, err = j.unexplained(ctx, found); err != nil {
		return nil, err
	}
	return again, j.addDifferences(ctx, found)
}

// keepsChanging says of the differences of an item why they are none that can be judged. It
// changed in each of the rounds. That it is wrong cannot be said, and not that it is right.
func keepsChanging(differences []rowDifference) []rowDifference {
	for i := range differences {
		differences[i].Kind, differences[i].Reason = DifferenceBehind, "its item keeps changing"
	}
	return differences
}

// mayExpire says that an item which is not there may have expired, or may be there for the
// pipeline: its time to live has passed, and the log is yet to say so.
func (j *rowJudge) mayExpire() bool { return j.check.p.Source.Info().Spec.TTL != 0 }

// readItems reads the items of sources, settled; those that are no items are not
// there.
func (j *rowJudge) readItems(ctx context.Context, sources []string) (map[string]store.Item, error) {
	items := make(map[string]store.Item, len(sources))
	var refs []store.ItemRef
	var names []string
	for _, source := range sources {
		if items[source] = (store.Item{}); !j.other[source] {
			refs, names = append(refs, j.items[source]), append(names, source)
		}
	}
	read, err := j.check.p.Source.ReadMany(ctx, refs, true)
	if err != nil {
		return nil, fmt.Errorf("read items whose rows differ: %w", err)
	}
	for i := range read {
		items[names[i]] = read[i]
	}
	return items, nil
}

// awaitPassed waits until the pipeline has passed what the items of sources are.
func (j *rowJudge) awaitPassed(ctx context.Context, sources []string) (reason string, err error) {
	goals := map[feed.Partition]feed.LSN{}
	for _, source := range sources {
		if !j.other[source] {
			goals[j.check.p.Source.PartitionFor(j.items[source].Key)] = 0
		}
	}
	// Applied, not the item's own LSN: an item that is not there has none, and
	// its delete lies somewhere up to here.
	for partition := range goals {
		status, err := j.check.p.Source.Status(ctx, partition)
		if err != nil {
			return "", fmt.Errorf("partition %s: %w", partition, err)
		}
		goals[partition] = status.Applied
	}
	_, reason, err = j.check.run.awaitSources(ctx, j.check.p, goals)
	return reason, err
}

// unexplained leaves out the differences that have a reason, or says which: a change
// that was given up, rows that stay when their item expires, rows of before the
// generation began.
func (j *rowJudge) unexplained(ctx context.Context, found []rowDifference) ([]rowDifference, error) {
	found, err := j.explainGivenUp(ctx, found)
	if err != nil {
		return nil, err
	}
	var ask, left []rowDifference
	for _, d := range found {
		// To replay reads logs from their beginning, so it is the last thing to be
		// tried, and one reading serves all that ask.
		if d.Kind == DifferenceDrift && !j.other[d.Source] && j.needsReplay(&d) {
			ask = append(ask, d)
		} else {
			left = append(left, d)
		}
	}
	if len(ask) == 0 {
		return left, nil
	}
	kept, err := j.replayed(ctx, ask)
	return append(left, kept...), err
}

// explainGivenUp says of which differences the reason is a change that was given up.
func (j *rowJudge) explainGivenUp(ctx context.Context, found []rowDifference) ([]rowDifference, error) {
	if len(found) == 0 {
		return nil, nil
	}
	at, err := j.check.run.checkpoints(ctx)
	if err != nil {
		return nil, err
	}
	parked := map[string]string{} // reasons, by item
	source := j.check.p.Source.Info()
	for _, reader := range j.check.p.Record.SourceReaders(&source, at) {
		for _, job := range at.Of(&j.check.p.Record, processors.RoleSource, reader.Partition).Parked {
			parked[job.Source] = "a change of its item was given up: " + job.LastError
		}
	}
	for i := range found {
		if reason := parked[j.items[found[i].Source].String()]; reason != "" && found[i].Kind == DifferenceDrift {
			found[i].Kind, found[i].Reason = DifferenceBehind, reason
		}
	}
	return found, nil
}

// addDifferences reports differences, and repairs those that are drift in a repair.
func (j *rowJudge) addDifferences(ctx context.Context, found []rowDifference) error {
	for i := range found {
		// What is missing was never among the rows that were counted.
		if !found[i].Missing {
			j.differing++
		}
	}
	if j.check.run.repair != nil {
		var err error
		if found, err = j.check.run.repair.repairRows(ctx, j, found); err != nil {
			return err
		}
	}
	for i := range found {
		j.check.run.addDifference(j.check.p, found[i].Difference)
	}
	return nil
}
