package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store"
)

// rowWriters write rows for a repair: one for each partition of a projection's
// source, as its pipeline has.
type rowWriters struct {
	open map[string]*rowWriter // by producer
}

// rowWriter is an open writer, and the position up to which it has counted its
// writes.
type rowWriter struct {
	project.Writer
	at feed.Position
}

// close ends the terms.
func (w *rowWriters) close() error {
	var errs []error
	for _, one := range w.open {
		errs = append(errs, one.Close())
	}
	w.open = nil
	return errors.Join(errs...)
}

// openWriter opens the writer for a partition of the source.
func (r *repair) openWriter(ctx context.Context, p *Verified, partition feed.Partition) (*rowWriter, error) {
	producer := r.producer(p, partition)
	if w := r.open[producer.String()]; w != nil {
		return w, nil
	}
	w, at, err := p.Projection.Sink().Open(ctx, p.Projection.Schema(), project.Term{Producer: producer, Epoch: r.epoch})
	if err != nil {
		return nil, fmt.Errorf("open the sink: %w", err)
	}
	if r.open == nil {
		r.open = map[string]*rowWriter{}
	}
	r.open[producer.String()] = &rowWriter{w, at}
	return r.open[producer.String()], nil
}

// repairRows repairs rows that differ, and returns those that it leaves alone, which are
// behind.
func (r *repair) repairRows(ctx context.Context, j *rowJudge, found []rowDifference) (left []rowDifference, err error) {
	// Collected by item, because a repair reads the item, writes all of its rows, and reads
	// the item again.
	items := map[string]*project.ItemToRepair{} // by source
	parts := map[feed.Partition][]string{}
	for i := range found {
		d := &found[i]
		if d.Kind != DifferenceDrift {
			left = append(left, *d)
			continue
		}
		was := items[d.Source]
		if was == nil {
			was = &project.ItemToRepair{ItemRef: j.items[d.Source]}
			// A row whose source is no item of the container belongs to no partition; any
			// writer can take it away, and the first is always there.
			partition := j.check.p.Source.Partitions()[0]
			if j.other[d.Source] {
				was.ItemRef = store.ItemRef{Key: nobody, ID: nobodyID}
			} else {
				partition = j.check.p.Source.PartitionFor(was.Key)
			}
			items[d.Source] = was
			parts[partition] = append(parts[partition], d.Source)
		}
		switch {
		case d.kept && d.row != nil:
			was.KeptRows = append(was.KeptRows, *d.row)
		case d.kept:
			was.KeptRejects = append(was.KeptRejects, *d.reject)
		case !d.Surplus:
		case d.row != nil:
			was.Rows = append(was.Rows, *d.row)
		default:
			was.Rejects = append(was.Rejects, *d.reject)
		}
	}
	for partition, sources := range parts {
		all := make([]project.ItemToRepair, 0, len(sources))
		for _, source := range sources {
			all = append(all, *items[source])
		}
		w, err := r.openWriter(ctx, j.check.p, partition)
		if err != nil {
			return nil, err
		}
		if w.at, err = j.check.p.Projection.Repair(ctx, w, w.at, all); err != nil {
			return nil, r.writeError("rows", err)
		}
	}
	for i := range found {
		if found[i].Kind == DifferenceDrift {
			j.check.run.repaired(j.check.p, found[i].Difference)
		}
	}
	return left, nil
}

// nobody stands for the item of a row whose source is no item of the container: it
// is not there, so that nothing is written in the place of the row.
var nobody = func() feed.PartitionKey {
	key, err := feed.NewPartitionKey("\x00")
	if err != nil {
		panic(err)
	}
	return key
}()

const nobodyID = "\x00"
