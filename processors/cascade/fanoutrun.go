package cascade

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// progressInterval is the time between two checkpoints that are written because
// a fan-out made progress.
const progressInterval = time.Second

// forgetInterval is the time between two requests that let a target partition
// forget finished fan-outs.
const forgetInterval = time.Second

// errStale says that a read behind a barrier returned less than the feed had shown. The
// owner contradicts its log; it is asked again.
var errStale = errors.New("cascade: a read returned an older version than the change feed")

// run brings fo's source to its copies until no newer version of the source is known.
func (f *FanOut) run(ctx context.Context, fo *fanOut) error {
	ctx, span := f.startSpan(ctx, fo)
	defer span.End()
	for {
		v, err := f.runVersion(ctx, fo)
		switch {
		case err == nil:
			// A newer version may have come after the last page: then it is not done.
			if f.closeFanOut(fo, v) {
				f.recordFinished(ctx, fo, v)
				return nil
			}
		case processors.FailureOf(ctx, err) == processors.Canceled:
			return nil // the job stays in the checkpoint, and the next term goes on with it
		case processors.FailureOf(ctx, err) == processors.Fenced:
			processors.CountFenced(ctx, f.term.Resource)
			span.SetStatus(codes.Error, err.Error())
			return errors.Join(processors.ErrFenced, err)
		case f.superseded(fo, v):
			// A newer version has come while this one failed. It may not fail, such as
			// when the older one's value was too large: it is tried before fo is given up.
		default:
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
			if given, err := f.giveUp(ctx, fo, v, err); given {
				return err
			}
		}
	}
}

// runVersion brings the newest version of fo's source to its copies and returns it.
// It returns early, without an error, if a newer one comes.
func (f *FanOut) runVersion(ctx context.Context, fo *fanOut) (*version, error) {
	v, unread := f.wantedVersion(fo)
	// A checkpoint holds no values, so after a crash the source is read before anything
	// else. While that goes on the feed may bring a version of it, which is then taken.
	if unread {
		var err error
		if v, err = f.resumeVersion(ctx, fo, v); err != nil || v.position.IsZero() {
			v, _ = f.wantedVersion(fo)
			return &v, err
		}
	}
	p, ok := f.c.targetsOf(fo.ref)
	switch {
	case !ok || v.gone && f.c.action() == store.CopySet:
		return &v, nil
	case v.gone:
		return &v, f.runSourceDelete(ctx, fo, &v, &p)
	}
	return &v, f.forPartitions(&p, func(i int) error { return f.bring(ctx, fo, &v, &p, p.partitions[i], 0) })
}

// resumeVersion reads the source of a fan-out that a checkpoint holds, and decides which
// version the fan-out goes on with:
//
//	checkpoint   now                          goes on with
//	there        there, the same values       the checkpoint's position: the owners go on
//	                                          from the cursors that its pages left
//	there        there, other values          the position that was read, which is newer
//	there        gone                         nothing: the change by which it went comes
//	                                          by the feed, since it lies behind the job's
//	gone         gone, at or before that      the checkpoint's deletion
//	gone         gone again, or there again   what was read
//
// A zero version means that there is nothing to do.
func (f *FanOut) resumeVersion(ctx context.Context, fo *fanOut, seen version) (version, error) {
	now, err := f.readSource(ctx, fo, seen.position)
	if err != nil {
		return version{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !fo.unread { // meanwhile the feed has brought a version with its values
		return fo.want, nil
	}
	switch {
	case now.gone && seen.gone && (!now.left || !seen.position.Before(now.position)):
		seen.time = now.time
		now = seen
	case now.gone && seen.gone: // it was there in between, and went again
	case now.gone:
		return version{}, nil
	case now.digest == seen.digest && !seen.gone:
		now.position = seen.position
	}
	fo.want, fo.unread = now, false
	return now, nil
}

// readSource returns the source as it is now, which must not be older than what the
// feed has shown.
func (f *FanOut) readSource(ctx context.Context, fo *fanOut, seen feed.Position) (v version, err error) {
	err = f.retry(ctx, fo, func() error {
		origins, err := f.c.Origins(ctx, []store.ItemRef{fo.ref})
		if err != nil {
			return err
		}
		v = origins[0].v
		if !v.position.IsZero() && v.position.Before(seen) {
			return fmt.Errorf("%w: %s is at %s, the feed at %s", errStale, fo.source, v.position, seen)
		}
		return nil
	})
	return v, err
}

// runSourceDelete carries out the fan-out of a source that is gone. First every target
// partition gets a fence, a commit at LSN b that records the deletion's position and
// touches no item; then the source is read. If it is there again, that is a newer version
// and taken as such. If not, the pages touch only items that clients wrote at or before b:
// what is written later may already be a copy of a source that comes next, and its check
// reads the source after the deletion anyhow.
//
//	fence b, then read:   source gone       every item at or before b is older than the
//	                                        source's return, if it ever returns
//	read, then fence b:   source gone, comes again, a client copies from it, b
//	                                        the pages would clear that client's item
func (f *FanOut) runSourceDelete(ctx context.Context, fo *fanOut, v *version, p *targets) error {
	fencedAt := make([]feed.LSN, len(p.partitions))
	err := f.forPartitions(p, func(i int) error {
		return f.retry(ctx, fo, func() error {
			r := f.pageRequest(fo, v, p)
			r.Plant = true
			result, err := f.c.cfg.Target.PatchMany(ctx, p.partitions[i], r)
			// A partition that has had a newer version already needs no pages of this one.
			if err == nil && !result.Superseded {
				fencedAt[i] = result.LSN
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	// This read waits at a barrier and begins after all fences: a source that it does not
	// find can come back only later than every one of them.
	now, err := f.readSource(ctx, fo, v.position)
	if err != nil {
		return err
	}
	if !now.gone || now.left && v.position.Before(now.position) {
		f.updateOpen(fo.source, now)
		return nil
	}
	return f.forPartitions(p, func(i int) error {
		if fencedAt[i] == 0 { // superseded there, or done and forgotten
			return f.examine(ctx, fo, v, p, p.partitions[i])
		}
		return f.bring(ctx, fo, v, p, p.partitions[i], fencedAt[i])
	})
}

// forPartitions calls do for every partition of p, some at a time, and waits for all: one
// that cannot be reached does not hold up the others.
func (f *FanOut) forPartitions(p *targets, do func(i int) error) error {
	if len(p.partitions) == 1 {
		return do(0)
	}
	var g errgroup.Group
	g.SetLimit(f.c.limits.FanOutPartitionsMax)
	for i := range p.partitions {
		g.Go(func() error { return do(i) })
	}
	return g.Wait()
}

// bring brings v to the copies in one partition, and finds the items there that refused it.
func (f *FanOut) bring(ctx context.Context, fo *fanOut, v *version, p *targets, partition feed.Partition, notAfter feed.LSN) error {
	if err := f.sendPages(ctx, fo, v, p, partition, notAfter); err != nil {
		return err
	}
	return f.examine(ctx, fo, v, p, partition)
}

// sendPages sends pages to one partition until it is done or a newer version has come.
// The owner keeps the cursor, so all pages are the same request and may be under way
// together: the owner decides one while it writes another. The first goes alone, because
// most fan-outs need no second one.
func (f *FanOut) sendPages(ctx context.Context, fo *fanOut, v *version, p *targets, partition feed.Partition, notAfter feed.LSN) error {
	page := func() (done bool, err error) {
		r := f.pageRequest(fo, v, p)
		r.NotAfter, r.FinishedBelow = notAfter, f.finishedBelow(partition)
		if r.Copy.Action == store.CopyDelete {
			r.Until = v.time
		}
		return f.sendPage(ctx, fo, partition, r)
	}
	if done, err := page(); done || err != nil {
		return err
	}
	var g errgroup.Group
	g.Go(func() error { f.estimate(ctx, fo, p, partition); return nil })
	// Each sender stops by itself once a page says that all is done. The others have pages
	// under way then, which find nothing left: two or three empty requests for a fan-out
	// are cheaper than telling each other.
	for range f.c.limits.FanOutPagesInFlight {
		g.Go(func() error {
			for !f.superseded(fo, v) {
				if done, err := page(); done || err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (f *FanOut) pageRequest(fo *fanOut, v *version, p *targets) *store.PatchMany {
	return &store.PatchMany{
		Producer: f.term.Producer(), Epoch: f.term.Epoch, Source: fo.source, Position: v.position, Digest: v.digest,
		Scope: p.scope, Copy: f.c.copy(p, v), ItemsMax: f.c.limits.FanOutPageItems,
	}
}

// finishedBelow is what the partition may forget, or zero if it was told so a
// moment ago: to find it is a look at all that is open and given up.
func (f *FanOut) finishedBelow(partition feed.Partition) feed.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.forgetAskedAt[partition]) < forgetInterval {
		return feed.Position{}
	}
	f.forgetAskedAt[partition] = time.Now()
	saved := f.term.Saved()
	below := saved.FinishedBelow()
	// A retry of a change that the Host has parked opens a fan-out at its position, or behind.
	for i := range saved.Parked {
		if at := saved.Parked[i].Position; at.Before(below) {
			below = at
		}
	}
	return below
}

// sendPage sends one page and notes what it did. done is true if the partition needs no
// more pages of this version.
func (f *FanOut) sendPage(ctx context.Context, fo *fanOut, partition feed.Partition, r *store.PatchMany) (done bool, err error) {
	var result *store.PatchManyResult
	err = f.retry(ctx, fo, func() (err error) {
		if result, err = f.c.cfg.Target.PatchMany(ctx, partition, r); err != nil {
			f.doubt(fo, partition) // it may have been carried out
		}
		return err
	})
	if err != nil {
		return false, err
	}
	if err := f.writeDeadLetters(ctx, fo, r, result.Refused); err != nil {
		f.doubt(fo, partition)
		return false, err
	}
	// Where a newer version has been, its fan-out goes over all items.
	if !result.Superseded {
		if err := f.doubtOthers(ctx, fo, partition, r, result); err != nil {
			return false, err
		}
	}
	f.noteProgress(ctx, fo, result)
	done = result.Done || result.Superseded
	// The limit is on copies that were written, of all fan-outs of the cascade in this
	// process, and paid behind the page: how many there are is not known before.
	if c := f.c; c.rate != nil && result.Patched > 0 && !done {
		if err := c.rate.WaitN(ctx, min(result.Patched, c.rate.Burst())); err != nil {
			return false, err
		}
	}
	return done, nil
}

// writeDeadLetters writes a dead letter for each item that could not take its copy. The
// fan-out goes on.
func (f *FanOut) writeDeadLetters(ctx context.Context, fo *fanOut, r *store.PatchMany, refused []store.Refusal) error {
	for _, x := range refused {
		err := f.retry(ctx, fo, func() error {
			return f.term.DeadLetter(ctx, processors.DeadLetter{
				Item: fo.source, Position: r.Position, Target: x.Ref.String(), Status: int(x.Status), Reason: x.Reason, Trace: fo.job.Trace,
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *FanOut) noteProgress(ctx context.Context, fo *fanOut, result *store.PatchManyResult) {
	meters.copies.Add(ctx, int64(result.Patched), f.c.measured("fan-out"))
	meters.pages.Add(ctx, 1, f.c.measured("fan-out"))
	f.term.Heartbeat()
	f.mu.Lock()
	fo.job.Scanned += int64(result.Scanned)
	fo.job.Changed += int64(result.Patched)
	f.counts.Copies += int64(result.Patched)
	f.counts.DeadLetters += int64(len(result.Refused))
	// A checkpoint for each page would be a sync for each page.
	tell := time.Since(f.progressToldAt) >= progressInterval
	if tell {
		f.progressToldAt = time.Now()
	}
	f.mu.Unlock()
	if tell && !result.Done {
		f.term.Changed("")
	}
}

// estimate adds the candidates of one partition to the fan-out's total. Nothing
// but progress rests on it, so a failure is not one.
func (f *FanOut) estimate(ctx context.Context, fo *fanOut, p *targets, partition feed.Partition) {
	n, err := f.c.cfg.Target.Count(ctx, partition, p.scope)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fo.job.Total += int64(n)
}

// retry calls do until it succeeds, the term ends, or trying again cannot help.
func (f *FanOut) retry(ctx context.Context, fo *fanOut, do func() error) error {
	var pauses *processors.Pauses // made with the first failure: most calls have none
	transient := 0
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil {
			if attempt > 1 {
				f.mu.Lock()
				fo.job.Attempts, fo.job.LastError = 0, ""
				f.mu.Unlock()
			}
			return nil
		}
		switch processors.FailureOf(ctx, err) {
		case processors.Canceled, processors.Fenced, processors.Permanent:
			return err
		case processors.Transient:
			// From here on the fan-out is given up, unless its source changes. What was waited
			// for does not count: an outage may be of any length.
			if transient++; transient >= processors.AttemptsMax {
				return processors.Reject(err)
			}
		case processors.Unavailable:
		}
		f.noteFailure(ctx, fo, err, attempt)
		if pauses == nil {
			pauses = processors.NewPauses()
		}
		if err := pauses.Wait(ctx, err); err != nil {
			return err
		}
	}
}

func (f *FanOut) noteFailure(ctx context.Context, fo *fanOut, err error, attempt int) {
	processors.CountRetry(ctx, f.term.Resource)
	f.mu.Lock()
	fo.job.Attempts++
	fo.job.LastError = processors.Clip(err)
	f.mu.Unlock()
	f.term.Heartbeat()
	f.term.Changed("")
	level := slog.LevelDebug
	switch attempt {
	case 3:
		level = slog.LevelWarn
	case processors.StuckAttempts:
		level = slog.LevelError
	}
	f.term.Logger.Log(ctx, level, "a fan-out waits", slog.String("source", fo.source), slog.Int("attempts", attempt), slog.Any("error", err))
}

// giveUp writes the dead letter of a fan-out and parks it; false if a newer
// version has come, with which it goes on.
func (f *FanOut) giveUp(ctx context.Context, fo *fanOut, v *version, cause error) (bool, error) {
	f.mu.Lock()
	attempts := fo.job.Attempts + 1
	f.mu.Unlock()
	deadLetter := processors.DeadLetter{
		Item: fo.source, Position: v.position, Reason: cause.Error(), Attempts: attempts, Trace: fo.job.Trace,
	}
	if refusal, ok := errors.AsType[*store.Error](cause); ok {
		deadLetter.Status = int(refusal.Status)
	}
	// The dead letter comes before parking: a crash in between writes the same one again,
	// and the other way round the change would be parked with nothing to try again.
	pauses := processors.NewPauses()
	for {
		err := f.term.DeadLetter(ctx, deadLetter)
		if err == nil {
			break
		}
		f.noteFailure(ctx, fo, err, attempts)
		if pauses.Wait(ctx, err) != nil {
			return true, nil //nolint:nilerr // the term has ended; the next one goes on
		}
	}
	given, err := f.park(fo, v, cause)
	f.term.Changed(deadLetter.Trace)
	return given, err
}

// recordFinished measures a fan-out that is closed, and asks for a checkpoint without it.
func (f *FanOut) recordFinished(ctx context.Context, fo *fanOut, v *version) {
	meters.fanOutItems.Record(ctx, fo.job.Changed, f.c.measured("fan-out"))
	meters.fanOutDuration.Record(ctx, max(time.Since(time.UnixMilli(fo.job.Began)).Seconds(), 0), f.c.measured("fan-out"))
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(attribute.Int64("millrace.copies", fo.job.Changed), attribute.Int64("millrace.scanned", fo.job.Scanned),
			attribute.String("millrace.position", v.position.String()))
	}
	f.term.Changed(fo.job.Trace)
}

// startSpan begins the fan-out's span, in the trace of the write that began it.
func (f *FanOut) startSpan(ctx context.Context, fo *fanOut) (context.Context, trace.Span) {
	ctx = store.WithTraceContext(ctx, fo.job.Trace, "")
	ctx, span := tracer().Start(ctx, "millrace.fan-out")
	if span.IsRecording() {
		info := f.c.cfg.Target.Info()
		span.SetAttributes(info.Attributes()...)
		span.SetAttributes(attribute.String("millrace.pipeline", f.c.cfg.Pipeline), store.AttrPartition.String(f.term.Partition.String()))
	}
	return ctx, span
}
