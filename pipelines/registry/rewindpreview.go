package registry

import (
	"cmp"
	"context"
	"fmt"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/spec"
)

// RewindPreview is what a Rewind would do now.
type RewindPreview struct {
	Record     Record   `json:"-"` // as it is
	Generation uint32   `json:"generation"`
	Says       []string `json:"says"`
}

// PreviewRewind tells what Rewind would do with the same arguments, and does nothing: it takes the
// same decisions, but pins no snapshot. The error is that of Rewind, apart from errors that only a
// pin shows. Beginning tells with what a new generation begins. It knows less of a log of middle
// size than Rewind: without a snapshot it cannot weigh the log against what its partition holds,
// and names both the log and the items.
func (r *Registry) PreviewRewind(ctx context.Context, database, name string, to RewindTo, bucket string) (RewindPreview, error) {
	p := RewindPreview{}
	rec, err := r.Get(ctx, database, name)
	if err != nil {
		return p, err
	}
	b, err := r.containersOf(ctx, &rec)
	if err != nil {
		return p, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
	}
	at, _, err := ReadCheckpoints(ctx, r.JetStream, bucket)
	if err == nil {
		at, err = r.withRefusals(ctx, &rec, to, at)
	}
	if err != nil {
		return p, err
	}
	next, begins, err := r.wouldRewind(ctx, &rec, &b, to, at)
	if err != nil {
		return p, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
	}
	p.Record, p.Generation, p.Says = rec, next.Generation, []string{begins, rec.rewindMeans(to, &next)}
	return p, nil
}

// wouldRewind returns the record that Rewind would write, and with what it begins.
func (r *Registry) wouldRewind(ctx context.Context, rec *Record, b *Bound, to RewindTo, at Checkpoints) (Record, string, error) {
	if to.Kind == rewindBeginning && rec.Spec.Kind() != spec.CascadeKind {
		if anew, err := r.beginsAnew(ctx, rec, b); err != nil {
			return *rec, "", err
		} else if anew { // not by rewound, which pins
			next := *rec
			next.succeed(rec, &ApplyOptions{DiscardExpired: to.DiscardExpired})
			next.Generation++
			begins, err := r.Beginning(ctx, &next, b)
			return next, begins, err
		}
	}
	next, err := r.rewound(ctx, rec, b, to, at)
	if err != nil {
		return next, "", err
	}
	if to.Kind == RewindTime || to.Kind == rewindLSN {
		if out, err := r.outrun(ctx, &next, b); err != nil || out {
			return next, "", cmp.Or(err, errOutrun)
		}
	}
	if walk, err := r.rewindWalks(ctx, rec, b, to); err != nil {
		return next, "", err
	} else if walk {
		items, err := r.itemsOf(ctx, b.Target)
		return next, fmt.Sprintf("it begins with %s of container %s", items, b.Target.Name), err
	}
	commits := uint64(0)
	for _, reader := range next.present(b) {
		if reader.Partition.Container == b.Source.ID {
			_, total := next.Backfilled(reader, next.Begin(reader))
			commits += total
		}
	}
	return next, fmt.Sprintf("it reads %s of the log of container %s again", format.Plural(int64(commits), "commit", "commits"), b.Source.Name), nil
}

// rewindMeans says what becomes of what a pipeline has written.
func (r *Record) rewindMeans(to RewindTo, next *Record) string {
	if next.Generation == r.Generation {
		return fmt.Sprintf("it goes on as generation %d; what it has folded it passes over, so nothing is counted twice", next.Generation)
	}
	means := fmt.Sprintf("it goes on as generation %d, and ", next.Generation)
	switch kind := r.Spec.Kind(); {
	case to.Kind != rewindBeginning && next.Backfills > r.Backfills:
		return means + "sets the rows of all items again, among those that are there: a container forgets the rows that wait for a key"
	case to.Kind == RewindNow:
		return means + "leaves out what it has not done yet"
	case kind == spec.CascadeKind:
		return means + "sets its copies again"
	case kind == spec.AggregateKind:
		return means + "folds all of its members anew; its fields stay as they are until that is done"
	case to.Kind == rewindBeginning:
		return means + "builds its rows beside those that are there, and then replaces them"
	}
	return means + "sets its rows again, among those that are there"
}
