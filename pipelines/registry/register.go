package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/query"
)

// ApplyPipeline registers a pipeline, or changes it.
//
// The record comes first and what the containers are to do for it follows from
// the record alone, so whoever finds one without the other, this function when it
// is called again or the reconciler, puts it right.
func (r *Registry) ApplyPipeline(ctx context.Context, d *spec.Pipeline, opts *ApplyOptions) (Outcome, error) {
	o := Outcome{Kind: spec.KindPipeline, Database: d.Metadata.Database, Name: d.Metadata.Name}
	b, err := r.bind(ctx, d)
	if err != nil {
		return o, err
	}
	for {
		there, err := r.Get(ctx, o.Database, o.Name)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return o, err
		}
		// In each try, as what follows: the record may be another one than Apply has looked at.
		if err := outsideError(opts.Bounds.pipeline(d, &there)); err != nil {
			return o, err
		}
		what := there.Change(&d.Spec, &b, opts)
		// What was harmless then may begin a generation now.
		if reason := opts.Refusal(&there, d, what); reason != "" { // it has changed since Apply looked
			return o, &RefusedError{spec.Findings{{Place: d.At("spec"), Message: reason}}}
		}
		next := there.Next(d, &b, what, opts, &o)
		if o.Generation = next.Generation; next.Generation != there.Generation {
			if err := r.begin(ctx, &next, &b, opts); err != nil {
				return o, fmt.Errorf("pipeline %s: %w", d.Metadata, err)
			}
		}
		// Before the record, so that the index is being built when workers take up
		// the new generation.
		index, err := r.wantIndex(ctx, &next, &b)
		if err != nil {
			return o, err
		}
		if index != "" && next.Generation != there.Generation && !HasIndex(b.Target, index) {
			o.Notes = append(o.Notes, fmt.Sprintf("index %s is added to container %s", index, b.Target.Name))
		}
		if o.Action != Unchanged {
			err = r.put(ctx, &next, there.Revision)
			if errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
				// Somebody else has changed the record. Begin from theirs: positions,
				// generation and notes of this try mean nothing any more.
				o.Notes = nil
				continue
			}
			if err != nil {
				return o, err
			}
			r.registered(ctx, &there, &next, &b)
		}
		if next.Generation != there.Generation {
			held, err := r.holdLogs(ctx, next, &b, opts)
			if err != nil {
				return o, fmt.Errorf("pipeline %s: %w", d.Metadata, err)
			}
			if held.Generation != next.Generation {
				o.Generation, o.Notes = held.Generation, append(o.Notes, fmt.Sprintf(begunAnew, held.Generation))
			}
			next = held
		}
		// After the record, and also if it did not change: a try that died between
		// the two has left the catalog without the rule.
		return o, r.Agree(ctx, &there, &next)
	}
}

// bind finds the containers that a declaration names.
func (r *Registry) bind(ctx context.Context, d *spec.Pipeline) (Bound, error) {
	var all []store.ContainerInfo
	for _, name := range d.Spec.Containers() {
		info, err := r.client.Catalog().Get(ctx, d.Metadata.Database, name)
		if err != nil {
			return Bound{}, fmt.Errorf("pipeline %s: %w", d.Metadata, err)
		}
		all = append(all, info)
	}
	b, gone := BoundBy(d, all)
	if gone != "" {
		return b, fmt.Errorf("pipeline %s: %w", d.Metadata, &store.NoContainerError{Database: d.Metadata.Database, Name: gone})
	}
	return b, nil
}

// BoundBy finds the containers that a declaration names among all; gone is the name
// of one that is not there.
func BoundBy(d *spec.Pipeline, all []store.ContainerInfo) (b Bound, gone string) {
	find := func(name string) *store.ContainerInfo {
		at := slices.IndexFunc(all, func(c store.ContainerInfo) bool {
			return c.Database == d.Metadata.Database && c.Name == name && c.State == store.ContainerReady
		})
		if at < 0 {
			if gone == "" {
				gone = name
			}
			return nil
		}
		return &all[at]
	}
	b.Source = find(d.Spec.Source.Container)
	if name := d.Spec.Target(); name != "" {
		b.Target = find(name)
	}
	for _, name := range d.Spec.Tables() {
		b.Tables = append(b.Tables, find(name))
	}
	return b, gone
}

// Next returns the record that follows r, zero if there is none, when d is
// applied, and tells of it in o. A new generation has yet to begin.
func (r *Record) Next(d *spec.Pipeline, b *Bound, what change, opts *ApplyOptions, o *Outcome) Record {
	next := *r
	next.Spec = d.Spec.Clone()
	next.Source, next.Target, next.Tables = b.Source.ID, idOf(b.Target), idsOf(b.Tables)
	o.Action = Changed
	switch what {
	case ChangeNew:
		o.Action = Created
		next.ID, next.Database, next.Name, next.Created = newID(d.Metadata.Name), d.Metadata.Database, d.Metadata.Name, now()
		next.Generation, next.Changed, next.Expressions = 1, next.Created, query.MeaningNow
		if opts.FromNow {
			o.Notes = append(o.Notes, "it begins with what changes from now on")
		}
		return next
	case ChangeNone:
		o.Action = Unchanged
		return next
	case changeCosmetic:
		o.Notes = append(o.Notes, "it means the same, so nothing is copied anew")
		return next
	case changeOnline:
		next.InForce = false
		next.Unverified = r.Unverified || r.Spec.Switches(&next.Spec)
		if next.Spec.Project != nil && spec.GainsColumns(r.Spec.Project, next.Spec.Project) {
			next.Backfills++
			next.BackfillScope = BackfillScope{}
		}
		o.Notes = append(o.Notes, onlineNotes(&r.Spec, &next.Spec)...)
		return next
	case changeContainers, changeMeaning, changeExpressions:
	}
	next.Generation++
	next.Expressions = query.MeaningNow
	next.Changed = now()
	next.succeed(r, opts)
	o.Notes = append(o.Notes, fmt.Sprintf("generation %d: %s", next.Generation, anew(&next.Spec, opts, next.Shadow)))
	return next
}

// succeed makes next a new generation that comes after r.
func (next *Record) succeed(r *Record, opts *ApplyOptions) {
	next.Published, next.InForce, next.Unverified, next.Rewinds, next.Backfills = false, false, false, 0, 0
	next.BackfillScope, next.RowsFrom = BackfillScope{}, nil
	next.Shadow, next.Swapping, next.SwapRefused, next.Former, next.Between = false, false, "", nil, nil
	project, was := next.Spec.Project, r.Spec.Project
	//	r                   rows that readers see   the next one is built beside
	//	in force            r's                     r's
	//	itself being built  those of its former     those of its former
	//	swapping            of one of the two       both, until the sink has told which it is
	if r.Former != nil {
		was = r.Former.Spec.Project // r's own rows were never read
	}
	if project == nil || was == nil || opts.FromNow || project.Sink.Container != nil {
		return // there is nothing to take the place of, or no room beside it
	}
	// In another place too: an earlier generation may have left rows there, which this one would go on with.
	next.Shadow = true
	switch {
	case r.Source != next.Source, !project.SameSink(was): // nothing to read for the former one
	case r.Shadow:
		// An earlier swap that is in doubt stays so, until the reconciler has asked the sink.
		next.Former, next.Between = r.Former, r.Between
		if r.swapOpen() {
			next.Between = r.asFormer()
		}
	default:
		next.Former = r.asFormer()
	}
}

// onlineNotes tell what becomes of a pipeline that goes on in another way.
func onlineNotes(s, next *spec.PipelineSpec) []string {
	var notes []string
	if s.Switches(next) {
		notes = append(notes, fmt.Sprintf("it is %s from a commit in each partition on; nothing is computed anew", next.Aggregate.Consistency))
	}
	if s.Project != nil && spec.GainsColumns(s.Project, next.Project) {
		notes = append(notes, "the new columns are filled in the rows that are there, beside what changes; see millrace status")
	}
	if len(notes) == 0 {
		notes = []string{"it goes on where it stands"}
	}
	return notes
}

// anew tells how a new generation begins.
func anew(s *spec.PipelineSpec, opts *ApplyOptions, shadow bool) string {
	switch {
	case opts.FromNow:
		return "it begins with what changes from now on"
	case s.Kind() == spec.AggregateKind:
		return "its fields stay as they are until all is computed anew"
	case shadow:
		return "its rows are built anew and then take the place of those that are there"
	case s.Kind() == spec.ProjectKind && s.Project.Sink.Container != nil:
		return "its rows are written anew over those that are there, for a sink of containers has no room beside them; millrace repair then removes those that are no longer rows"
	case s.Kind() == spec.ProjectKind:
		return "its rows are built anew"
	}
	return "every copy is set again where it differs"
}

// begin notes where a new generation begins to read.
func (r *Registry) begin(ctx context.Context, rec *Record, b *Bound, opts *ApplyOptions) (err error) {
	// The snapshots first, so that the ends of the logs do not lie before them:
	//
	//	snapshot as of 40, end 52   items as of 40, then 41 to 52, which is the backfill
	//	end 52, snapshot as of 60   the backfill would end inside the snapshot
	if err = r.pinItems(ctx, rec, b, opts); err != nil {
		return err
	}
	if rec.Heads, err = r.positions(ctx, b.Source, feed.StartNow()); err != nil {
		return err
	}
	rec.From, rec.Starts, rec.Rule = nil, nil, nil
	if opts.FromNow {
		rec.From = rec.Heads
	}
	switch rec.Spec.Kind() {
	case spec.CascadeKind:
		walk := false
		if !opts.FromNow {
			if walk, err = r.walks(ctx, b.Source); err != nil {
				return err
			}
		}
		if walk {
			return r.beginWalk(ctx, rec, b)
		}
		rec.Starts, err = r.positions(ctx, b.Target, feed.StartNow())
	case spec.AggregateKind:
		rule := spec.AggregateSpec(&rec.Spec)
		rec.Rule = &rule
	case spec.ProjectKind:
	}
	return err
}

// positions returns where start is in each log of a container.
func (r *Registry) positions(ctx context.Context, c *store.ContainerInfo, start feed.Start) ([]Start, error) {
	starts := make([]Start, 0, len(c.Partitions))
	for _, p := range c.Partitions {
		partition := feed.Partition{Container: c.ID, Number: p.Number}
		after, err := r.position(ctx, partition, start)
		if err != nil {
			return nil, err
		}
		starts = append(starts, Start{p.Number, after})
	}
	return starts, nil
}

const (
	// noLogMax is for how long a log that the catalog names, and JetStream does not, is looked for: a server that has just
	// become the leader of JetStream's own state may say so of one that was made a moment ago.
	noLogMax   = 3 * time.Second
	noLogPause = 100 * time.Millisecond
)

// position returns where start is in one log.
func (r *Registry) position(ctx context.Context, p feed.Partition, start feed.Start) (feed.Position, error) {
	for began := time.Now(); ; {
		at, err := r.positionNow(ctx, p, start)
		if !errors.Is(err, feed.ErrNoLog) || time.Since(began) > noLogMax {
			return at, err
		}
		select {
		case <-time.After(noLogPause):
		case <-ctx.Done():
			return at, err
		}
	}
}

// positionNow is position as JetStream tells it now. The error is *feed.TrimmedError also if the log
// still holds what lies behind it, and may be trimmed beyond it at any moment: nobody
// registers below a trim point.
func (r *Registry) positionNow(ctx context.Context, p feed.Partition, start feed.Start) (feed.Position, error) {
	log, err := feed.OpenLog(ctx, r.JetStream, p, r.cfg.Log)
	if err != nil {
		return feed.Position{}, fmt.Errorf("open the log of %s: %w", p, err)
	}
	defer log.Close()
	after, err := log.Resolve(ctx, start)
	if err == nil {
		var shape *feed.Shape
		if shape, err = log.Shape(ctx); err == nil && after.LSN < shape.Trimmed {
			err = &feed.TrimmedError{Partition: p, Want: after.LSN + 1, First: shape.Trimmed + 1}
		}
	}
	if err != nil {
		return feed.Position{}, fmt.Errorf("find a position in the log of %s: %w", p, err)
	}
	return after, nil
}

// put writes a record if its revision, 0 for none, is still the present one;
// otherwise the error is jetstream.ErrKeyExists or
// jetstream.ErrKeyRevisionMismatch.
func (r *Registry) put(ctx context.Context, rec *Record, revision uint64) error {
	key, err := registryKey(rec.Metadata()), error(nil)
	if revision == 0 {
		_, err = r.KV.Create(ctx, key, rec.encode())
	} else {
		_, err = r.KV.Update(ctx, key, rec.encode(), revision)
	}
	if err != nil {
		return fmt.Errorf("register pipeline %s: %w", rec.Metadata(), err)
	}
	r.copy(ctx, rec.Metadata())
	return nil
}
