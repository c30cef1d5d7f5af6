package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store"
)

// rowReplay tells from the log what the pipeline has made of the rows of some items.
// What an item is does not tell it where rows stay though their item has expired, or
// where the generation began with what changed from then on.
//
// It reads the logs of the items from where they begin now, so it is asked only of rows that
// differ from what their items say, or whose items expire. What a log has lost comes in by
// the first change that it still has of an item, since a change tells what was before it.
type rowReplay struct {
	j     *rowJudge
	ids   map[string]bool          // of items, which tell most others apart soon
	items map[string]*replayedItem // by source
	logs  map[feed.Partition]*replayedLog
}

// replayedLog is the log of one partition.
type replayedLog struct {
	*history
	partial bool     // it has lost its beginning
	from    feed.LSN // behind which the generation's feed began
}

// replayedItem is what the log tells of one item.
type replayedItem struct {
	seen bool     // the log has a change of it
	last feed.LSN // of the last change that its rows could follow; 0 for none
	rows map[string]*replayedRow
}

// replayedRow is a row or reject as the pipeline wrote it last.
type replayedRow struct {
	row    *project.Row
	reject *project.Reject
	digest uint64
	// loose says that it is of before the generation began: it may be there, from an
	// earlier one, or not.
	loose bool
	// stays says that its item has expired since.
	stays bool
}

// newRowReplay begins to replay what became of items. The caller closes it.
func (j *rowJudge) newRowReplay(sources []string) *rowReplay {
	r := &rowReplay{j: j, ids: map[string]bool{}, items: map[string]*replayedItem{}, logs: map[feed.Partition]*replayedLog{}}
	for _, source := range sources {
		r.items[source] = &replayedItem{rows: map[string]*replayedRow{}}
		if j.other[source] {
			continue
		}
		r.ids[j.items[source].ID] = true
		if partition := j.partitionOf(source); r.logs[partition] == nil {
			r.logs[partition] = &replayedLog{
				history: j.check.run.history(j.check.p.Source, partition),
				from:    j.check.p.beganAt(partition).LSN,
			}
		}
	}
	return r
}

// partitionOf returns the partition of a source, which is an item.
func (j *rowJudge) partitionOf(source string) feed.Partition {
	return j.check.p.Source.PartitionFor(j.items[source].Key)
}

func (r *rowReplay) close() {
	for _, l := range r.logs {
		l.close()
	}
}

// advance replays what the logs have by now that was not replayed yet.
func (r *rowReplay) advance(ctx context.Context) error {
	for _, l := range r.logs {
		if !l.begun {
			first, _, err := l.replayAll(ctx)
			if err != nil {
				return err
			}
			l.partial = first > 1
		}
		last, err := l.logEnd(ctx)
		if err != nil {
			return err
		}
		container := r.j.check.p.Source.Info().Name
		err = l.follow(ctx, last, func(e *event) error {
			// Most changes are of other items. To compare the id costs less than to
			// write the name of the source, of which partition key and id are parts.
			if !r.ids[e.ID] {
				return nil
			}
			if source := project.SourceOf(container, e.Key, e.ID); r.items[source] != nil {
				return r.applyChange(l, source, e)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("how its rows came about: %w", err)
		}
	}
	return nil
}

// applyChange does to rows what the pipeline does.
func (r *rowReplay) applyChange(l *replayedLog, source string, e *event) error {
	one := r.items[source]
	body, err := e.BeforeBody()
	if err != nil {
		return err
	}
	before := r.rowsOf(e.Key, e.ID, body)
	if !one.seen {
		// The first change of a log that was trimmed tells what the item had by then.
		// Which of the changes that made it so were before the generation began is lost.
		for name, row := range before {
			row.loose = l.from > 0
			one.rows[name] = row
		}
	}
	one.seen = true
	if r.j.check.p.leavesRows(l.partition, e) {
		for name := range before {
			if row := one.rows[name]; row != nil {
				row.stays = true
			}
		}
		return nil
	}
	one.last = e.at.LSN
	after := r.rowsOf(e.Key, e.ID, e.After)
	// As the pipeline: what the item had and has no more goes, what differs is
	// put. A row that was there before the generation began and did not change
	// is touched by neither.
	for name := range before {
		if _, stays := after[name]; !stays {
			delete(one.rows, name)
		}
	}
	for name, row := range after {
		if was, ok := before[name]; !ok || was.digest != row.digest {
			row.loose = e.at.LSN <= l.from
			one.rows[name] = row
		}
	}
	return nil
}

// rowsOf returns the rows and rejects of an item by their names.
func (r *rowReplay) rowsOf(key feed.PartitionKey, id string, body []byte) map[string]*replayedRow {
	rows, rejects := r.j.check.p.Projection.RowsOf(key, id, body)
	digests := newRowSums(r.j.check.p.Projection, r.j.check.keeps)
	all := make(map[string]*replayedRow, len(rows)+len(rejects))
	for i := range rows {
		all[differenceName(&rowDifference{row: &rows[i]})] = &replayedRow{row: &rows[i], digest: digests.rowDigest(&rows[i])}
	}
	for i := range rejects {
		all[differenceName(&rowDifference{reject: &rejects[i]})] = &replayedRow{reject: &rejects[i], digest: digests.rejectDigest(&rejects[i])}
	}
	return all
}

// differenceName tells the rows and rejects of an item apart.
func differenceName(d *rowDifference) string {
	if d.row != nil {
		return "\x00" + rowName(d.row.Table, d.row.Key)
	}
	return "\x01" + rejectName(d.reject)
}

// needsReplay says whether a difference may follow from what came before, where items
// do not expire.
func (j *rowJudge) needsReplay(d *rowDifference) bool {
	// A row too many is right if rows stay and its item has expired while items did. A row
	// that is missing can only be explained by a beginning that was not the log's.
	if d.Surplus && !j.check.p.dropsExpired() {
		return true
	}
	return !d.Surplus && !j.check.p.beganAt(j.partitionOf(d.Source)).IsZero()
}

// replayed returns those of found that the log does not explain.
func (j *rowJudge) replayed(ctx context.Context, found []rowDifference) (left []rowDifference, err error) {
	var sources []string
	for i := range found {
		sources = append(sources, found[i].Source)
	}
	r := j.newRowReplay(sources)
	defer r.close()
	if err := r.advance(ctx); err != nil {
		return nil, err
	}
	digests := newRowSums(j.check.p.Projection, j.check.keeps)
	for _, d := range found {
		made := r.items[d.Source].rows[differenceName(&d)]
		switch {
		case !d.Surplus && (made == nil || made.loose): // it was never written, nor had to be
		case d.Surplus && made != nil && made.digest == d.digest(digests):
			if !j.check.p.dropsExpired() {
				j.check.run.countKept(j.check.p)
			}
		// The log no longer has what made the row or took it away. To call it drift
		// would let a repair delete a row that may be the last trace of its item.
		case d.Surplus && made == nil && r.logs[j.partitionOf(d.Source)].partial:
			d.Kind, d.Note = DifferenceUnjudged, noteForgotten
			left = append(left, d)
		default:
			left = append(left, d)
		}
	}
	return left, nil
}

// digest is that of the row or reject of a difference, 0 for a row without values.
func (d *rowDifference) digest(digests *rowSums) uint64 {
	switch {
	case d.row == nil:
		return digests.rejectDigest(d.reject)
	case d.row.Values == nil:
		return 0
	}
	return digests.rowDigest(d.row)
}

// expected are the rows and rejects of an item by their names: those that must be there, and,
// loose, those that may be.
type expected struct {
	made map[string]*replayedRow
	// whole says that there are no others. Otherwise the item may have left some when it
	// expired, of which no log tells any more.
	whole bool
	// fading says that the item is there for the pipeline, or may be, and not shown any more:
	// its time to live has passed.
	fading bool
}

// must returns what must be there.
func (e *expected) must() *examinedItem {
	one := &examinedItem{}
	for _, name := range slices.Sorted(maps.Keys(e.made)) {
		switch made := e.made[name]; {
		case made.loose:
		case made.row != nil:
			one.rows = append(one.rows, *made.row)
		default:
			one.rejects = append(one.rejects, *made.reject)
		}
	}
	return one
}

// expected returns what an item must have, which was read now, as of the last advance.
func (r *rowReplay) expected(source string, item *store.Item) *expected {
	if r.j.other[source] {
		return &expected{whole: true}
	}
	l, one, p := r.logs[r.j.partitionOf(source)], r.items[source], r.j.check.p
	shown := item.ETag != (store.ETag{})
	switch {
	case one.seen || !l.partial:
		x := &expected{made: maps.Clone(one.rows), whole: !l.partial || p.dropsExpired(), fading: !shown && p.dropsExpired() && len(one.rows) > 0}
		for _, made := range one.rows {
			// Rows that stayed before their table gained columns are not made anew.
			x.whole = x.whole && !r.mayBeOlder(made)
		}
		return x
	// The log tells nothing of it, so it is as it was when the log's beginning was trimmed.
	case shown:
		x := &expected{made: r.rowsOf(item.Key, item.ID, item.Body), whole: p.dropsExpired()}
		for _, made := range x.made {
			made.loose = item.ETag.LSN <= l.from
		}
		return x
	default:
		return &expected{fading: p.dropsExpired()}
	}
}

// mayBeOlder says that a row may rightly be as it was before tables or columns were added.
func (r *rowReplay) mayBeOlder(made *replayedRow) bool {
	return made.stays && r.j.check.p.Record.Backfills > 0
}

// explain leaves out differences that are none, and says which nobody can judge.
func (r *rowReplay) explain(x *expected, found []rowDifference) (left []rowDifference) {
	for _, d := range found {
		made := x.made[differenceName(&d)]
		switch {
		case d.Surplus && made != nil && made.loose:
			continue // either is right until the item changes
		case d.Surplus && !x.whole:
			d.Kind, d.Note = DifferenceUnjudged, noteForgotten
		// A backfill writes the rows of the items that are there, so these lack what was
		// added since; when that was is not known.
		case made != nil && r.mayBeOlder(made) && (d.Missing || !slices.ContainsFunc(d.Fields, func(f FieldDifference) bool { return f.Has != nil })):
			d.Kind, d.Note = DifferenceUnjudged, "its item has expired, perhaps before this was added"
			r.j.check.grown = true
		}
		left = append(left, d)
	}
	return left
}
