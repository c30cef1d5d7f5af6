package parquetsink

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
)

// share is what one writer gives to a commit.
type share struct {
	w       *Writer
	buffers []*buffer
	durable feed.Position // what must be recorded
	upTo    feed.Position // what will be
}

// commit makes durable what all writers hold. The caller has the token.
func (s *Sink) commit(ctx context.Context) error {
	ctx, span := tracer().Start(ctx, "millrace.parquet.commit")
	defer span.End()
	start := time.Now()
	shares := s.seal()
	span.SetAttributes(attribute.Int("millrace.parquet.writers", len(shares)))
	err := s.commitShares(ctx, shares)
	if err == nil {
		err = s.publish(ctx, s.chain.last)
	}
	s.mu.Lock()
	s.ended, s.took = time.Now(), time.Since(start)
	s.mu.Unlock()
	if err != nil {
		span.RecordError(err)
		return unreachable("commit", err)
	}
	meters.commitDuration.Record(ctx, time.Since(start).Seconds())
	s.tidy(ctx, s.chain.last)
	return nil
}

// seal takes what the writers hold, in the order of their producers.
func (s *Sink) seal() []*share {
	s.mu.Lock()
	defer s.mu.Unlock()
	var shares []*share
	for _, w := range s.writers {
		if w.ended != nil {
			continue
		}
		if !w.active.empty() {
			s.rows, s.bytes = s.rows-w.active.rows, s.bytes-w.active.bytes
			s.sealedRows, s.sealedBytes = s.sealedRows+w.active.rows, s.sealedBytes+w.active.bytes
			w.sealed = append(w.sealed, w.active)
			w.active = newBuffer(w.active)
		}
		if len(w.sealed) > 0 || w.durable.Before(w.taken) {
			shares = append(shares, &share{w: w, buffers: slices.Clone(w.sealed), durable: w.durable, upTo: w.taken})
		}
	}
	slices.SortFunc(shares, func(a, b *share) int { return compareProducers(a.w.producer, b.w.producer) })
	select {
	case <-s.full:
		s.full = make(chan struct{})
	default:
	}
	return shares
}

// commitShares commits the shares of the writers that have not been succeeded.
func (s *Sink) commitShares(ctx context.Context, shares []*share) error {
	if len(shares) == 0 {
		return nil
	}
	c := &committing{sink: s}
	_, err := s.chain.advance(ctx, func(ctx context.Context, base *manifest, attempt int) (*manifest, error) {
		alive := slices.DeleteFunc(slices.Clone(shares), func(sh *share) bool { return !s.stands(sh, base) })
		if !slices.Equal(alive, c.shares) {
			c.shares, c.stages = alive, nil
		}
		if len(alive) == 0 {
			return nil, nil
		}
		return c.next(ctx, base, attempt)
	})
	if err != nil {
		return err
	}
	for _, g := range c.stages {
		for path := range g.removed {
			s.files.index.forget(path)
		}
	}
	s.settled(c.shares)
	c.count(ctx)
	return nil
}

// stands says whether a share may be committed on a manifest; if not, its writer
// has ended.
func (s *Sink) stands(sh *share, base *manifest) bool {
	err := sh.check(base)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.discardLocked(sh.w, err)
	}
	return sh.w.ended == nil
}

func (sh *share) check(base *manifest) error {
	p := sh.w.producer
	a := base.area(p.Generation)
	if a == nil {
		if base.Number == 0 {
			return fmt.Errorf("parquet sink: %s: the files are gone: %w", p, project.ErrPosition)
		}
		return lost(p, "another generation has taken its place")
	}
	if newest := a.newest(); newest > p.Generation {
		return lost(p, "generation %d has taken over", newest)
	}
	recorded := a.source(p)
	if recorded != nil && recorded.Epoch > sh.w.epoch {
		return lost(p, "epoch %d, a newer one %d has begun", sh.w.epoch, recorded.Epoch)
	}
	at, err := recorded.at()
	if err != nil || recorded == nil || recorded.Epoch < sh.w.epoch || at.Before(sh.durable) || sh.upTo.Before(at) {
		return fmt.Errorf("parquet sink: %s: recorded is %s, should be %s: the files have been restored older or changed: %w", p, at, sh.durable, project.ErrPosition)
	}
	return nil
}

// settled notes that shares are durable.
func (s *Sink) settled(shares []*share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range shares {
		w := sh.w
		if w.ended != nil {
			continue
		}
		w.sealed = w.sealed[len(sh.buffers):]
		for _, b := range sh.buffers {
			s.sealedRows, s.sealedBytes = s.sealedRows-b.rows, s.sealedBytes-b.bytes
		}
		if w.durable.Before(sh.upTo) {
			w.durable = sh.upTo
		}
	}
	s.unseen = true // until published
}

func compareProducers(a, b feed.Producer) int {
	return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Source, b.Source))
}
