package verify

import (
	"context"
	"fmt"
	"maps"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store"
)

// rowResolver finds the items of sums that come to nothing nowhere. A sum is known by a hash;
// what it is of stands on four things, and none of them has all:
//
//	the rows of items that gave no sum      surplus rows of items that are not there
//	the items of the container              rows that are missing or wrong
//	the log, where items expire             rows of items that came and went
//	the rows of the sink, once more         of items that went while they were compared
type rowResolver struct {
	j        *rowJudge
	suspects map[uint64]bool
	left     map[uint64]bool // those of which the item is not known yet
}

// resolveSources finds the items of sums.
func (j *rowJudge) resolveSources(ctx context.Context, suspects map[uint64]bool) error {
	r := &rowResolver{j, suspects, maps.Clone(suspects)}
	if err := r.askItems(ctx); err != nil {
		return err
	}
	if j.mayExpire() {
		if err := r.askLog(ctx); err != nil {
			return err
		}
	}
	r.askUnknown()
	if len(r.left) == 0 {
		return nil
	}
	if err := r.askSink(ctx); err != nil {
		return err
	}
	// Nothing of these is in the sink, nor is there an item. Where items do not expire,
	// that is as it must be. Where they do, rows might have to be there.
	if j.mayExpire() {
		j.check.run.countUnjudged(j.check.p, len(r.left))
	}
	return nil
}

// suspected says whether a source has a sum that is looked for, and that it is found now.
func (r *rowResolver) suspected(source string) bool {
	found := false
	for table := range r.j.check.p.Projection.Schema().Tables {
		if name := sumName(table, source); r.suspects[name] {
			found = true
			delete(r.left, name)
		}
	}
	return found
}

// askItems looks among the items of the container.
func (r *rowResolver) askItems(ctx context.Context) error {
	p := r.j.check.p
	for _, partition := range p.Source.Partitions() {
		err := r.j.check.run.pages(ctx, p.Source, partition, func(items []store.Item) error {
			for i := range items {
				if source := project.SourceOf(p.Source.Info().Name, items[i].Key, items[i].ID); r.suspected(source) {
					r.j.items[source] = store.ItemRef{Key: items[i].Key, ID: items[i].ID}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// askLog looks among the items of which the log still tells.
func (r *rowResolver) askLog(ctx context.Context) error {
	for _, partition := range r.j.check.p.Source.Partitions() {
		if err := r.askLogOf(ctx, partition); err != nil {
			return fmt.Errorf("whose rows they are: %w", err)
		}
	}
	return nil
}

func (r *rowResolver) askLogOf(ctx context.Context, partition feed.Partition) error {
	p := r.j.check.p
	h := r.j.check.run.history(p.Source, partition)
	defer h.close()
	_, last, err := h.replayAll(ctx)
	if err != nil {
		return err
	}
	return h.follow(ctx, last, func(e *event) error {
		if source := project.SourceOf(p.Source.Info().Name, e.Key, e.ID); r.suspected(source) {
			r.j.items[source] = store.ItemRef{Key: e.Key, ID: e.ID}
		}
		return nil
	})
}

// askUnknown looks among the rows of items that gave no sum.
func (r *rowResolver) askUnknown() {
	for name, one := range r.j.check.unknown {
		if !r.suspects[name] {
			continue
		}
		if r.left[name] && r.isForgotten(one.source) {
			delete(r.left, name)
			r.j.forget(one)
			continue
		}
		r.addRowSource(one.source)
	}
}

// isForgotten says of a source that is no item, and of which the log does not tell, that its
// rows may be there because it has expired, before the log begins.
func (r *rowResolver) isForgotten(source string) bool {
	name, key, _, err := project.ParseSource(source)
	if err != nil || name != r.j.check.p.Source.Info().Name {
		return false
	}
	// By the partition, since each log is trimmed by itself. It would be judged as one of
	// a few, too; but in an archive these may be most rows, and each few cost a reading of
	// the whole sink.
	return r.j.check.forgetsExpired() && r.j.check.partial[r.j.check.p.Source.PartitionFor(key)]
}

// forget counts rows as unjudged of whose item nothing is known.
func (j *rowJudge) forget(one unknownRows) {
	j.differing += one.rows
	for range one.rows {
		j.check.run.addDifference(j.check.p, Difference{Kind: DifferenceUnjudged, Item: one.source, Element: -1, Source: one.source, Note: noteForgotten})
	}
}

// noteForgotten is said of a row that nobody can judge.
const noteForgotten = "its item is gone, and the log does not reach back to how"

// addRowSource takes the source of a row, as it stands there.
func (r *rowResolver) addRowSource(source string) {
	if !r.suspected(source) {
		return
	}
	name, key, id, err := project.ParseSource(source)
	r.j.items[source] = store.ItemRef{Key: key, ID: id}
	r.j.other[source] = err != nil || name != r.j.check.p.Source.Info().Name
}

// askSink looks among the rows and rejects that are there now.
func (r *rowResolver) askSink(ctx context.Context) error {
	see := func(table int, source string) {
		if r.left[sumName(table, source)] {
			r.addRowSource(source)
		}
	}
	return r.j.check.readSink(ctx, func(table int, row project.Row) {
		see(table, row.Source)
	}, func(table int, reject project.Reject) error {
		see(table, reject.Source)
		return nil
	})
}
