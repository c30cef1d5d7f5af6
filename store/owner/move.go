package owner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/millrace/millrace/feed"
)

// A log whose stream denies purges is trimmed by going on in a new stream, which begins
// behind the trim point; see package feed. The trimmer copies, a batch at a time, while the
// owner serves. When all but a little is copied and read back, a control commit closes the
// log and ends the term of the partition, and it is opened anew at once: whoever opens it,
// this process or another, finishes the move before it takes over.
const (
	// moveBatch is how many commits are copied at a time. As many may be left when the log is
	// closed, for which its writers wait.
	moveBatch = 64
	// moveStalls is after how many batches, without rests, that brought it no nearer to the
	// end a log is closed with more left, of moveLeftMax commits at most.
	moveStalls  = 16
	moveLeftMax = 2048
	// moveSlack is what a new stream takes beside its commits: blocks that are not full.
	moveSlack = 2 * 4 << 20
)

// errGoesOn ends a term whose log was closed: the partition is opened anew.
var errGoesOn = errors.New("the log goes on in a new stream")

// opensAnew says whether a term ended so that the next one begins at once.
func opensAnew(err error) bool {
	return errors.Is(err, errHealed) || errors.Is(err, errGoesOn) || errors.Is(err, errSplit) || errors.Is(err, errLogChanged)
}

// paysToMove reports whether a log that denies purges is worth copying: it is if at least as
// much goes as is kept. So a move copies no more than it frees, and needs free space of half
// of the log's size at most.
func paysToMove(shape *feed.Shape, frees uint64) bool { return frees >= shape.Bytes/2 }

// moveWhole lets a small log that denies purges go on in a new stream with all that it has. So
// little is copied at once, and nothing else would move it: of a log of less than a MiB no
// snapshot is taken at rest, so that none of it may go, and who has finished an upgrade waits
// for the last stream of the release before.
func (t *trimmer) moveWhole(ctx context.Context, l *trimming, shape *feed.Shape, now time.Time) error {
	if !shape.Untrimmable || shape.Bytes >= t.wholeBytes || !l.rests(&t.s.cfg, now) {
		return nil
	}
	return t.move(ctx, l, shape.First-1)
}

// move brings the move of a log forward, as far as to its closing. Everything up to upTo may
// go, and nobody reads it.
func (t *trimmer) move(ctx context.Context, l *trimming, upTo feed.LSN) error {
	began := time.Now()
	m, err := l.p.feed.Moving(ctx)
	if err != nil {
		return err
	}
	shape, err := l.p.feed.Shape(ctx)
	if err != nil {
		if m != nil {
			m.Close()
		}
		return err
	}
	from := upTo + 1
	if m != nil {
		from = m.Copied() + 1
	}
	if why := t.lacksRoom(shape, from); why != "" {
		if m != nil {
			m.Close()
		}
		l.retryAt = time.Now().Add(holdsInterval)
		l.noteHeld(why)
		return nil
	}
	if m == nil {
		if m, err = l.p.feed.BeginMove(ctx, upTo+1); err != nil {
			return err
		}
		l.p.log.Info("the log goes on in a new stream, because an earlier release made its stream, which denies purges: copying",
			"from", uint64(upTo+1), "to", uint64(shape.Last))
	}
	defer m.Close()
	if m.First() > upTo+1 {
		// A reader of what the copy lacks came after the copy was begun. The move waits for it.
		_, why := slowest(t.holds[l.p.id], shape, m.First()-1)
		l.retryAt = time.Now().Add(holdsInterval)
		l.noteHeld("it goes on in a new stream, which begins at LSN " + m.First().String() + ": " + why)
		return nil
	}
	if err := t.copyUp(ctx, l, m, shape); err != nil {
		return err
	}
	// What is known of readers is old by now: they are asked again before the log is closed.
	if time.Since(began) > t.closeWithin {
		l.retryAt = time.Time{}
		return nil
	}
	return l.p.commitMove(ctx, m.Data())
}

// copyUp copies until little is left, which is copied while writes wait: under writes the end
// runs away for ever.
func (t *trimmer) copyUp(ctx context.Context, l *trimming, m *feed.Move, shape *feed.Shape) error {
	before, rush, stalled := uint64(math.MaxUint64), false, 0
	for {
		if l.p.isClosed() || !l.p.lease.Valid() {
			return errStopped
		}
		left, err := m.Step(ctx, moveBatch)
		if err != nil {
			return err
		}
		t.tellMove(l, m, shape)
		if left <= moveBatch {
			return nil
		}
		// In a fifth of the time, unless writes come as fast as that:
		//
		//	64 copied, 10 written meanwhile    54 less are left: at ease
		//	64 copied, 90 written meanwhile    26 more are left: without rests from here on
		switch {
		case left+moveBatch/2 <= before:
			stalled = 0
		case rush:
			stalled++
		default:
			rush = true
		}
		if stalled >= moveStalls && left <= moveLeftMax {
			return nil
		}
		if before = left; !rush {
			if err := t.pacer.Pace(ctx); err != nil {
				return err
			}
		}
	}
}

// tellMove shows how far a move is, while it goes on.
func (t *trimmer) tellMove(l *trimming, m *feed.Move, shape *feed.Shape) {
	l.noteHeld(fmt.Sprintf("it goes on in a new stream, because an earlier release made its stream, which denies purges: %d of %d commits are copied",
		m.Copied()+1-m.First(), max(shape.Last, m.Copied())+1-m.First()))
	shown := l.state
	l.p.trim.Store(&shown)
}

// lacksRoom says that the disk has no room for a copy of a log from an LSN on; "" if it has.
func (t *trimmer) lacksRoom(shape *feed.Shape, from feed.LSN) string {
	if from > shape.Last || t.s.cfg.LogDir == "" {
		return "" // of the disks of other machines JetStream itself tells, by refusing to store
	}
	need := int64(shape.Bytes/max(shape.Commits, 1)*uint64(shape.Last-from+1)) + moveSlack
	free, err := t.free(t.s.cfg.LogDir)
	if room := free - max(t.s.cfg.DiskReserve, 0); err == nil && need > room {
		return fmt.Sprintf("it is to go on in a new stream, because an earlier release made its stream, which denies purges; the copy needs %d MiB until the old one goes, "+
			"and %d MiB are free below %s beside store.diskReserve: free some space", need>>20, max(room, 0)>>20, t.s.cfg.LogDir)
	}
	return ""
}

// commitMove closes the log, which ends the term of the partition.
func (p *Partition) commitMove(ctx context.Context, to feed.MoveData) error {
	data, err := json.Marshal(to)
	if err != nil {
		return err
	}
	var lsn feed.LSN
	var generation uint64
	if !p.onDecider(ctx, func(d *decider) {
		d.dropLost()
		t := newTxn(d.view(), d.draft)
		t.control = &feed.Control{Kind: feed.ControlMove, Data: data}
		d.draft.add(t, nil)
		d.draft.ends = errGoesOn
		lsn, generation = d.decided(), d.generation
	}) {
		return errStopped
	}
	return p.waitApplied(ctx, lsn, generation)
}

// goOn finishes the move of a log that was closed, before this process appends to it. What
// the engine holds is not touched: every commit keeps its LSN.
func (p *Partition) goOn(ctx context.Context) error {
	began := time.Now()
	moved, err := p.feed.FinishMove(ctx)
	if err != nil || !moved {
		return err
	}
	shape, err := p.feed.Shape(ctx)
	if err != nil {
		return fmt.Errorf("partition %s: %w", p.id, err)
	}
	p.logBytes.Store(shape.Bytes)
	p.shape.Store(shape)
	p.log.Info("the log has gone on in a new stream, which can be trimmed", "from", uint64(shape.First), "to", uint64(shape.Last),
		"bytes", shape.Bytes, "writes waited at least", time.Since(began).Round(time.Millisecond))
	return nil
}
