package parquetsink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
)

// writerPart is what one writer gives to a commit.
type writerPart struct {
	w       *Writer
	buffers []*buffer
	durable feed.Position // what must be recorded
	upTo    feed.Position // what will be
}

// commit makes durable what all writers hold. The caller has the turn.
func (s *Sink) commit(ctx context.Context) error {
	ctx, span := tracer().Start(ctx, "millrace.parquet.commit")
	defer span.End()
	start := time.Now()
	parts := s.sealBuffers()
	span.SetAttributes(attribute.Int("millrace.parquet.writers", len(parts)))
	err := s.commitParts(ctx, parts)
	if err == nil {
		err = s.publish(ctx, s.commits.last)
	}
	s.mu.Lock()
	s.ended, s.took = time.Now(), time.Since(start)
	s.mu.Unlock()
	if err != nil {
		span.RecordError(err)
		if errors.Is(err, errDelta) { // of some tables; the files of the others go on to be removed
			s.tidy(ctx, s.commits.last)
		}
		return unreachable("commit", err)
	}
	meters.commitDuration.Record(ctx, time.Since(start).Seconds())
	s.tidy(ctx, s.commits.last)
	return nil
}

// sealBuffers takes what the writers hold, in the order of their producers. Each writer
// gets a new buffer, so it takes batches while the old one is committed.
//
// A sealed buffer stays with its writer until it is durable. So the part of a commit
// after one that failed holds both buffers:
//
//	buffers    commit    active    sealed          part
//	b1         fails     b2        b1              b1
//	b1 b2      succeeds  b3        b1 b2 -> none   b1 b2
//
// The first commit may have succeeded without our hearing of it. Then b1 is carried out
// twice, which changes nothing more, as project.Batch promises.
func (s *Sink) sealBuffers() []*writerPart {
	s.mu.Lock()
	defer s.mu.Unlock()
	var parts []*writerPart
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
		// A writer whose batches had no rows still has a position to record.
		if len(w.sealed) > 0 || w.durable.Before(w.taken) {
			parts = append(parts, &writerPart{w: w, buffers: slices.Clone(w.sealed), durable: w.durable, upTo: w.taken})
		}
	}
	// Of two new rows with one key in one commit the first gets it. In the order of the
	// map chance would decide, and differently when the commit is tried again.
	slices.SortFunc(parts, func(a, b *writerPart) int { return compareProducers(a.w.producer, b.w.producer) })
	select {
	case <-s.full: // what made it full is being committed
		s.full = make(chan struct{})
	default:
	}
	return parts
}

// commitParts commits the parts of the writers that have not been succeeded.
func (s *Sink) commitParts(ctx context.Context, parts []*writerPart) error {
	if len(parts) == 0 {
		return nil
	}
	c := &rowCommit{sink: s}
	_, err := s.commits.advance(ctx, func(ctx context.Context, base *manifest, attempt int) (*manifest, error) {
		// Another process may have opened a later term of a writer since the last
		// attempt. Its writer's part is left out, and with it all that was written for
		// the parts together: files do not tell whose rows they hold.
		alive := slices.DeleteFunc(slices.Clone(parts), func(p *writerPart) bool { return !s.mayCommit(p, base) })
		if !slices.Equal(alive, c.parts) {
			c.parts, c.rewrites = alive, nil
		}
		if len(alive) == 0 {
			return nil, nil
		}
		return c.nextManifest(ctx, base, attempt)
	})
	if err != nil {
		return err
	}
	for _, r := range c.rewrites {
		for path := range r.removed {
			s.files.index.forget(path)
		}
	}
	s.markDurable(c.parts)
	c.countMetrics(ctx)
	return nil
}

// mayCommit says whether a part may be committed on top of a manifest; if not, its
// writer has ended.
func (s *Sink) mayCommit(p *writerPart, base *manifest) bool {
	err := p.checkTerm(base)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.discardLocked(p.w, err)
	}
	return p.w.ended == nil
}

// checkTerm says why a part must not be committed on top of a manifest. This is the
// fence: it is evaluated against the very manifest that the commit must follow on, so
// no later term can come in between.
//
//	recorded           part                    meaning
//	epoch 3 at 40      epoch 3, 40 to 52       goes on
//	epoch 3 at 52      epoch 3, 40 to 52       its commit succeeded, the answer was lost
//	epoch 4 at 40      epoch 3                 lost: a later term has begun
//	epoch 3 at 30      epoch 3, 40 to 52       the files were restored older
//	epoch 3 at 60      epoch 3, 40 to 52       somebody else writes in this term
func (p *writerPart) checkTerm(base *manifest) error {
	producer := p.w.producer
	ts := base.setOf(producer.Generation)
	if ts == nil {
		if base.Number == 0 {
			return fmt.Errorf("parquet sink: %s: the files are gone: %w", producer, project.ErrPosition)
		}
		return lost(producer, "another generation has taken its place")
	}
	if newest := ts.newestGeneration(); newest > producer.Generation {
		return lost(producer, "generation %d has taken over", newest)
	}
	recorded := ts.source(producer)
	if recorded != nil && recorded.Epoch > p.w.epoch {
		return succeeded(producer, p.w.epoch, recorded.Epoch)
	}
	at, err := recorded.position()
	if err != nil || recorded == nil || recorded.Epoch < p.w.epoch || at.Before(p.durable) || p.upTo.Before(at) {
		return fmt.Errorf("parquet sink: %s: recorded is %s, should be %s: the files have been restored older or changed: %w", producer, at, p.durable, project.ErrPosition)
	}
	return nil
}

// markDurable notes that parts are durable.
func (s *Sink) markDurable(parts []*writerPart) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range parts {
		w := p.w
		if w.ended != nil { // while the commit ran; its counts are taken back already
			continue
		}
		w.sealed = w.sealed[len(p.buffers):]
		for _, b := range p.buffers {
			s.sealedRows, s.sealedBytes = s.sealedRows-b.rows, s.sealedBytes-b.bytes
		}
		if w.durable.Before(p.upTo) {
			w.durable = p.upTo
		}
	}
	s.unpublished = true
}

func compareProducers(a, b feed.Producer) int {
	return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Source, b.Source))
}
