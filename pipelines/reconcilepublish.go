package pipelines

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
)

const (
	// statusMax bounds the partitions that are asked at a time how they are.
	statusMax = 16
	// statusTimeout bounds the asking of all partitions of a container.
	statusTimeout = 5 * time.Second
)

// reconcileAggregate publishes an aggregate whose readers have come to its heads, and
// notes of one that is published that it is in force.
//
// Before it is published, the accumulators must hold every change. The readers
// have folded those before the heads. If the aggregate is transactional, the
// owner of a partition folds the changes behind the commit that put the rule in
// force there; those between the head and that commit are the reader's, so it
// must have passed that commit too.
func (s *reconciler) reconcileAggregate(ctx context.Context, rec *registry.Record, b *registry.Bound, at registry.Checkpoints) error {
	rules, err := s.rules(ctx, rec, b.Target)
	if err != nil {
		return err
	}
	switch left := rec.NotInForce(b, rules, at); {
	case !rec.Published && left == registry.FieldsPending:
		return s.publish(ctx, rec)
	case left == "":
		return s.noteInForce(ctx, rec)
	default:
		s.log.DebugContext(ctx, "a pipeline is not in force", slog.String("pipeline", rec.Metadata().String()), slog.String("reason", left))
		return nil
	}
}

// publish makes the fields follow the accumulators.
func (s *reconciler) publish(ctx context.Context, rec *registry.Record) error {
	_, err := s.note(ctx, rec, "the fields of an aggregate follow its accumulators", func(now *registry.Record) { now.Published = true })
	if err != nil {
		return err
	}
	now, err := s.registry.Get(ctx, rec.Database, rec.Name)
	if err != nil {
		return err
	}
	return s.registry.Agree(ctx, &now, &now)
}

// rules asks each partition of a container how it keeps an aggregate. One that
// does not know the generation yet has the zero state.
func (s *reconciler) rules(ctx context.Context, rec *registry.Record, target *store.ContainerInfo) (map[uint32]store.RuleState, error) {
	c, err := s.client.Open(*target)
	if err != nil {
		return nil, err
	}
	partitions := c.Partitions()
	states := make([]store.RuleState, len(partitions))
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(statusMax)
	for i, p := range partitions {
		g.Go(func() error {
			status, err := c.Status(ctx, p)
			if err != nil {
				return fmt.Errorf("partition %s: %w", p, err)
			}
			states[i] = registry.RuleOf(status, rec)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	rules := make(map[uint32]store.RuleState, len(states))
	for i, p := range partitions {
		rules[p.Number] = states[i]
	}
	return rules, nil
}
