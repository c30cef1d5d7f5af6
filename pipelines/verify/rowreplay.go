package verify

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors/project"
)

// rowReplay tells from the log what the pipeline has made of the rows of some items.
// What an item is does not tell it where rows stay though their item has expired, or
// where the generation began with what changed from then on.
//
// It reads the logs of the items from where the generation began, or from the start,
// so it is asked only of rows that differ from what their items say.
type rowReplay struct {
	j       *rowJudge
	ids     map[string]bool // of items, which tell most others apart soon
	items   map[string]bool // sources
	rows    map[string]uint64
	digests *rowSums
	partial bool // the log has lost its beginning
}

// needsReplay says whether a difference may follow from what came before.
func (j *rowJudge) needsReplay(d *rowDifference) bool {
	// A row too many is right if its item has expired and rows stay, or if the
	// expiry is not in the log yet. A row that is missing can only be explained
	// by a beginning that was not the log's.
	if d.Surplus && (j.mayExpire() || !j.check.p.dropsExpired()) {
		return true
	}
	from := registry.PositionOf(j.check.p.Record.From, j.check.p.Source.PartitionFor(j.items[d.Source].Key).Number)
	return !d.Surplus && !from.IsZero()
}

// replayed returns those of found that the log does not explain.
func (j *rowJudge) replayed(ctx context.Context, found []rowDifference) (left []rowDifference, err error) {
	r := &rowReplay{j: j, ids: map[string]bool{}, items: map[string]bool{}, rows: map[string]uint64{}, digests: newRowSums(j.check.p.Projection, j.check.keeps)}
	partitions := map[feed.Partition]bool{}
	for i := range found {
		source := found[i].Source
		r.items[source], r.ids[j.items[source].ID] = true, true
		partitions[j.check.p.Source.PartitionFor(j.items[source].Key)] = true
	}
	for partition := range partitions {
		if err := r.readLog(ctx, partition); err != nil {
			return nil, err
		}
	}
	for _, d := range found {
		name, digest := r.nameAndDigest(&d)
		made, known := r.rows[name]
		switch {
		// r.rows is what the pipeline would have in its sink, had it written by the
		// log alone from where the generation began.
		case !d.Surplus && !known: // it was never written, nor had to be
		case d.Surplus && known && made == digest:
			if !j.check.p.dropsExpired() {
				j.check.run.countKept(j.check.p)
			}
		// The log no longer has what made the row or took it away. To call it drift
		// would let a repair delete a row that may be the last trace of its item.
		case d.Surplus && r.partial && !known:
			d.Kind, d.Note = DifferenceDangling, "its item is gone; the log does not reach back to how"
			left = append(left, d)
		default:
			left = append(left, d)
		}
	}
	return left, nil
}

// nameAndDigest names the row or reject of a difference, and tells what is there.
func (r *rowReplay) nameAndDigest(d *rowDifference) (name string, digest uint64) {
	if d.row != nil {
		if d.row.Values != nil {
			digest = r.digests.rowDigest(d.row)
		}
		return d.Source + "\x00" + rowName(d.row.Table, d.row.Key), digest
	}
	return d.Source + "\x01" + rejectName(d.reject), r.digests.rejectDigest(d.reject)
}

// readLog reads the log of one partition.
func (r *rowReplay) readLog(ctx context.Context, partition feed.Partition) error {
	h := r.j.check.run.history(r.j.check.p.Source, partition)
	defer h.close()
	if err := h.openLog(ctx); err != nil {
		return err
	}
	first, last, err := h.log.Bounds(ctx)
	if err != nil {
		return err
	}
	from := registry.PositionOf(r.j.check.p.Record.From, partition.Number).LSN
	// Read from what there is: most items have changed since.
	if first > from+1 {
		from, r.partial = first-1, true
	}
	h.beginAfter(from)
	h.complete = true
	container := r.j.check.p.Source.Info().Name
	err = h.follow(ctx, last, func(e *event) error {
		// Most changes are of other items. To compare the id costs less than to
		// write the name of the source, of which partition key and id are parts.
		if !r.ids[e.ID] {
			return nil
		}
		if source := project.SourceOf(container, e.Key, e.ID); r.items[source] {
			return r.applyChange(source, e)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("how its rows came about: %w", err)
	}
	return nil
}

// applyChange does to rows what the pipeline does.
func (r *rowReplay) applyChange(source string, e *event) error {
	if e.Op == feed.OpExpire && !r.j.check.p.dropsExpired() {
		return nil
	}
	body, err := e.BeforeBody()
	if err != nil {
		return err
	}
	before, after := r.rowsOf(source, e, body), r.rowsOf(source, e, e.After)
	// As the pipeline: what the item had and has no more goes, what differs is
	// put. A row that was there before the generation began and did not change
	// is touched by neither.
	for name := range before {
		if _, stays := after[name]; !stays {
			delete(r.rows, name)
		}
	}
	for name, digest := range after {
		if was, ok := before[name]; !ok || was != digest {
			r.rows[name] = digest
		}
	}
	return nil
}

// rowsOf returns the rows and rejects of an item by their names.
func (r *rowReplay) rowsOf(source string, e *event, body []byte) map[string]uint64 {
	rows, rejects := r.j.check.p.Projection.RowsOf(e.Key, e.ID, body)
	all := make(map[string]uint64, len(rows)+len(rejects))
	for i := range rows {
		all[source+"\x00"+rowName(rows[i].Table, rows[i].Key)] = r.digests.rowDigest(&rows[i])
	}
	for i := range rejects {
		all[source+"\x01"+rejectName(&rejects[i])] = r.digests.rejectDigest(&rejects[i])
	}
	return all
}
