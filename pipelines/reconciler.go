package pipelines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

const (
	// reconcilerWeight is its cost beside a processor's: next to nothing.
	reconcilerWeight = 1.0 / 16
)

// ReconcilerConfig tunes the reconciler. Zero fields take their defaults.
type ReconcilerConfig struct {
	// Interval is the time between two rounds, at most: while a pipeline that was just declared comes
	// into force they follow more quickly. Default 1s.
	Interval time.Duration `yaml:"interval"`

	// Grace is for how long something must have been of no use before it is removed:
	// who applies a pipeline asks for what it needs a moment before it is
	// registered. Default 1m.
	Grace time.Duration `yaml:"grace"`
}

// Check returns what is wrong with the configuration, nil if nothing is.
func (c *ReconcilerConfig) Check() error {
	if c.Interval < 0 || c.Grace < 0 {
		return errors.New("reconciler.interval and reconciler.grace must not be negative")
	}
	return nil
}

// reconciler does, in one process for all, what follows from the registry and from
// how far processors have come:
//
//   - a pipeline of an older meaning of expressions is computed anew, if that makes a
//     difference to it (reconcilemeaning.go);
//   - an aggregate is published when its backfill is done (reconcilepublish.go);
//   - the shadow rows of a projection take the place of the former ones when they
//     have caught up, and whether those before them have is found out (reconcileswap.go);
//   - a generation that is in force everywhere is noted to be;
//   - a pipeline that cannot read any more what it has yet to read begins anew with the items
//     that are there (reconcilelost.go);
//   - the catalog asks for the rules and indexes that pipelines need, and for no
//     others (reconcilecatalog.go);
//   - leases and dead letters of pipelines and generations that are gone are forgotten
//     (reconcileforget.go).
//
// Whatever it writes is conditional on what it has read, and doing it again
// changes nothing. So two reconcilers at a time, or one that wakes up late, do no
// harm; the lease only saves work.
type reconciler struct {
	// Set once by newReconciler.
	registry *registry.Registry
	client   *store.Client
	bucket   string
	cfg      ReconcilerConfig
	log      *slog.Logger
	world    func() (registry.World, bool)
	limits   compile.Limits
	changed  chan struct{} // told when a pipeline or a container has changed; holds one

	// Owned by run, which begins them anew with each lease.
	idle   firstSeen         // since when things are of no use
	waits  map[string]error  // why restored generations wait for an operator
	warned map[string]string // why pipelines could not be seen to in the last round, by id
	tidied time.Time         // when it last looked for what is of no use
}

func newReconciler(s *Supervisor) *reconciler {
	cfg := s.cfg.Reconciler
	if cfg.Interval <= 0 {
		cfg.Interval = time.Second
	}
	if cfg.Grace <= 0 {
		cfg.Grace = time.Minute
	}
	return &reconciler{
		registry: s.registry, client: s.client, bucket: s.cfg.Bucket, cfg: cfg, log: s.cfg.Logger, world: s.world, limits: s.limits(),
		changed: make(chan struct{}, 1),
	}
}

// run does its duties until ctx ends.
func (s *reconciler) run(ctx context.Context, held *leases.Held) error {
	s.idle, s.waits, s.warned, s.tidied = firstSeen{}, map[string]error{}, nil, time.Time{}
	s.rounds(ctx, func() (busy bool) {
		defer held.Progress()
		return s.round(ctx)
	})
	return nil
}

// rounds calls round again and again until ctx ends: soon after a change, and else in untilNext.
func (s *reconciler) rounds(ctx context.Context, round func() (busy bool)) {
	next := time.NewTimer(0)
	defer next.Stop()
	changed := time.Now()
	earliest := changed // when the next round may begin
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
			changed = time.Now()
			next.Reset(max(time.Until(earliest), 0))
		case <-next.C:
			began := time.Now()
			busy := round()
			took := time.Since(began)
			earliest = time.Now().Add(min(max(roundMin, roundRest*took), s.cfg.Interval))
			next.Reset(s.untilNext(busy, time.Since(changed), took))
		}
	}
}

const (
	// roundMin is the least time between two rounds.
	roundMin = 50 * time.Millisecond
	// roundRest is how many times as long as a round itself the rest behind it is, at least, or the interval.
	roundRest = 4
	// lateMax is the part of the time since a change by which its next step may come late.
	lateMax = 4
)

// untilNext returns the time to the next round. Nobody says that readers have come to where a pipeline
// can be put in force, so it is looked for: soon where little was to be read, and seldom behind a change of long ago.
//
//	since a change   0.2 s   1 s      4 s and more
//	next round       50 ms   250 ms   1 s, the interval
func (s *reconciler) untilNext(busy bool, since, took time.Duration) time.Duration {
	if !busy {
		return s.cfg.Interval
	}
	return min(max(since/lateMax, roundRest*took, roundMin), s.cfg.Interval)
}

// tellChanged says that a pipeline or a container has changed.
func (s *reconciler) tellChanged() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// round does each duty once. One that fails is done again in the next round. When
// every pipeline is in force there is nothing to do but to tidy up now and then; busy says
// that one is not.
func (s *reconciler) round(ctx context.Context) (busy bool) {
	w, ready := s.world()
	// A quarter of the grace, so that what is of no use goes at most a quarter
	// later than it may.
	tidy := time.Since(s.tidied) >= s.cfg.Grace/4
	busy = hasOlder(&w) || slices.ContainsFunc(w.Pipelines, func(r registry.Record) bool { return !r.InForce })
	if !ready || !tidy && !busy {
		return busy
	}
	held, err := leases.List(ctx, s.registry.JetStream, s.bucket)
	if err != nil {
		s.warn(ctx, "the leases could not be read", err)
		return busy
	}
	// One that cannot be read counts as nowhere: its pipeline waits, the others do not.
	at, _ := registry.CheckpointsOf(held)
	warned := map[string]string{}
	for i := range w.Pipelines {
		rec := &w.Pipelines[i]
		do := func() error { return s.reconcile(ctx, rec, w.Containers, at) }
		if !rec.Paused && rec.IsRestored(w.Containers) {
			do = func() error { return s.beginRestored(ctx, rec, tidy) }
		} else if older(*rec) {
			do = func() error { return s.reconcileMeaning(ctx, rec, w.Containers) }
		}
		err := do()
		if err != nil {
			warned[rec.ID] = err.Error()
		}
		s.tell(ctx, rec, err)
	}
	s.warned = warned
	if tidy {
		s.beginAnew(ctx, &w, held, at)
	}
	if err := s.reconcileCatalog(ctx, &w); err != nil {
		s.warn(ctx, "the catalog could not be brought to what pipelines need", err)
	}
	if !tidy {
		return busy
	}
	s.tidied = time.Now()
	if err := s.forget(ctx, &w, held); err != nil {
		s.warn(ctx, "leases that are of no use could not be forgotten", err)
	}
	return busy
}

// beginRestored lets a pipeline of a backup begin with the containers that were restored. One
// that an operator has to decide about is looked at again now and then only: each look pins a
// snapshot, and status tells what is to be done.
func (s *reconciler) beginRestored(ctx context.Context, rec *registry.Record, again bool) error {
	key := fmt.Sprintf("%s/%d", rec.ID, rec.Generation)
	if err := s.waits[key]; err != nil && !again {
		return err
	}
	o, err := s.registry.BeginRestored(ctx, rec)
	if err == nil {
		s.log.InfoContext(ctx, "a pipeline that was restored begins", slog.String("pipeline", rec.Metadata().String()), slog.Uint64("generation", uint64(o.Generation)))
	}
	if delete(s.waits, key); errors.Is(err, registry.ErrExpiredLost) {
		s.waits[key] = err
	}
	return err
}

// reconcile brings one pipeline that is not in force a step further.
func (s *reconciler) reconcile(ctx context.Context, rec *registry.Record, containers []store.ContainerInfo, at registry.Checkpoints) error {
	b, gone := rec.Bound(containers)
	if rec.InForce || gone != "" {
		return nil
	}
	// However far its readers are: of the two generations before it, the record must soon name the
	// one that is read, and its own swap would end both.
	if rec.Between != nil {
		return s.settle(ctx, rec, containers)
	}
	if !rec.Passed(&b, at, rec.Heads) {
		return nil
	}
	switch rec.Spec.Kind() {
	case spec.AggregateKind:
		return s.reconcileAggregate(ctx, rec, &b, at)
	case spec.ProjectKind:
		if rec.Shadow {
			return s.swap(ctx, rec, &b)
		}
	case spec.CascadeKind:
	}
	if !rec.BackfillDone(&b, at) {
		return nil
	}
	return s.noteInForce(ctx, rec)
}

// noteInForce notes that a generation is in force.
func (s *reconciler) noteInForce(ctx context.Context, rec *registry.Record) error {
	_, err := s.note(ctx, rec, "a pipeline is in force", func(now *registry.Record) { now.InForce = true })
	return err
}

// note changes the record of a pipeline unless it has changed meanwhile: then it is not
// done, and the next round looks again. After an error it may be done or not.
func (s *reconciler) note(ctx context.Context, rec *registry.Record, what string, change func(*registry.Record)) (done bool, err error) {
	fingerprint, before := rec.Fingerprint(), uint64(0)
	now, err := s.registry.Modify(ctx, rec.Metadata(), func(now *registry.Record) {
		// What was decided holds for the record that was looked at: the same
		// incarnation, generation and fingerprint. Others may have written beside it.
		before = now.Revision
		if done = now.ID == rec.ID && now.Generation == rec.Generation && now.Fingerprint() == fingerprint; done {
			change(now)
		}
	})
	if err == nil && done && now.Revision != before { // else it was noted already
		s.log.InfoContext(ctx, what, slog.String("pipeline", rec.Metadata().String()), slog.Uint64("generation", uint64(now.Generation)))
	}
	return done && err == nil, err
}

// tell says once, and not round by round, why a pipeline could not be seen to, and when it is over.
func (s *reconciler) tell(ctx context.Context, rec *registry.Record, err error) {
	was, told := s.warned[rec.ID]
	switch {
	case err != nil && was != err.Error():
		s.warn(ctx, "a pipeline could not be seen to; it is tried again", err, slog.String("pipeline", rec.Metadata().String()))
	case err == nil && told && ctx.Err() == nil:
		s.log.InfoContext(ctx, "a pipeline is seen to again", slog.String("pipeline", rec.Metadata().String()))
	}
}

func (s *reconciler) warn(ctx context.Context, what string, err error, attrs ...any) {
	if ctx.Err() == nil {
		s.log.WarnContext(ctx, what, append(attrs, slog.Any("error", err))...)
	}
}
