package processors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/codes"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
)

// TooManyParkedError says that a processor stopped because too many changes of its
// partition could not be processed: something is wrong with all of them.
type TooManyParkedError struct {
	Resource Resource
	Parked   int
}

func (e *TooManyParkedError) Error() string {
	return fmt.Sprintf("%d changes could not be processed; remove their cause (dead letters of pipeline %s) and resume", e.Parked, e.Resource.Pipeline)
}

// markDirty notes that the durable checkpoint is behind.
func (r *run) markDirty() {
	if r.dirty.IsZero() {
		r.dirty = time.Now()
	}
}

// untilSave is how long to wait before the next checkpoint is written.
func (r *run) untilSave() time.Duration {
	if r.dirty.IsZero() || r.saving != nil {
		return time.Hour
	}
	// While more is waiting to be processed, checkpoints come at the longer interval: each
	// costs an append to the bucket of leases, and the next one says all that this one does.
	due := r.dirty.Add(r.host.cfg.CheckpointInterval)
	if len(r.input.ready) > 0 {
		if busy := r.savedAt.Add(r.host.cfg.CheckpointBusyInterval); busy.After(due) {
			due = busy
		}
	}
	return max(time.Until(due), 0)
}

// saveCheckpoint begins to write a checkpoint. The loop goes on meanwhile.
func (r *run) saveCheckpoint(ctx context.Context) {
	if r.dirty.IsZero() || r.saving != nil {
		return
	}
	// From here on the loop may change what it likes: the checkpoint is a copy, and encoded
	// before the goroutine starts.
	cp := r.presentCheckpoint()
	r.noteRate(cp)
	r.trimMarks(cp.Position)
	r.saving, r.dirty, r.savedAt = cp, time.Time{}, time.Now()
	traces := r.coveredTraces()
	data := cp.encodeToFit()
	go func() { r.saves <- r.writeCheckpoint(ctx, data, &traces) }() // awaited by awaitSave
}

// saveBeside writes checkpoints, once a second until stop is called, beginning after a second. It starts no goroutine
// before. Meanwhile what the loop owns is that goroutine's.
func (r *run) saveBeside(ctx context.Context) (stop func()) {
	stopped, ended := make(chan struct{}), make(chan struct{})
	begin := time.AfterFunc(heartbeatInterval, func() {
		defer close(ended)
		ticker := time.NewTicker(heartbeatInterval)
		defer ticker.Stop()
		select {
		case result := <-r.saves: // of one that was begun before
			r.checkpointSaved(result)
		default:
		}
		for {
			r.markDirty()
			r.saveCheckpoint(ctx)
			for taken := false; !taken; {
				select {
				case <-stopped:
					return
				case result := <-r.saves:
					r.checkpointSaved(result)
				case <-ticker.C:
					taken = true
				}
			}
		}
	})
	return func() {
		if begin.Stop() {
			return
		}
		close(stopped)
		<-ended // what the loop owns is the loop's again
	}
}

// sample is how many copies and rows were changed at a time.
type sample struct {
	at   time.Time
	done int64
}

// noteRate notes in cp what was changed per second of late: since one or two times
// rateFresh ago, or since there was something to do again. A checkpoint alone would
// tell of nothing as often as of much, for a sink that buffers.
func (r *run) noteRate(cp *Checkpoint) {
	is := sample{time.Now(), cp.Counts.Copies + cp.Counts.Rows}
	// Two samples, a rateFresh or more apart: the rate counts from the older one, so that it
	// covers at least that long, and they move on together.
	if is.at.Sub(r.savedAt) > rateFresh { // there was nothing to do
		begun := sample{r.dirty, r.savedDone}
		r.older, r.newer = begun, begun
	}
	r.savedDone = is.done
	cp.Rate, cp.Saved = 0, is.at.UnixMilli()
	if is.done > r.older.done {
		cp.Rate = float64(is.done-r.older.done) / max(is.at.Sub(r.older.at), r.host.cfg.CheckpointInterval).Seconds()
	}
	if is.at.Sub(r.older.at) > rateFresh {
		r.older, r.newer = r.newer, is
	}
}

// coveredTraces returns the traces of what the next checkpoint covers.
func (r *run) coveredTraces() traceSet {
	traces := r.traces
	finished := r.term.takeTraces()
	traces.addAll(&finished)
	r.traces = traceSet{}
	return traces
}

// writeCheckpoint writes a checkpoint even if ctx has ended: the lease would not know
// whether a write that was given up half-way has happened.
func (r *run) writeCheckpoint(ctx context.Context, data []byte, traces *traceSet) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveMax)
	defer cancel()
	ctx, span := traces.start(ctx, "millrace.checkpoint", r.Resource)
	defer span.End()
	start := time.Now()
	err := r.lease.Save(ctx, data)
	meters.checkpoints.Record(ctx, time.Since(start).Seconds(), r.attributes())
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	return err
}

// checkpointSaved takes the outcome of the checkpoint that was being written. A failure
// is not the end: the lease ends the term when it is lost, and till then the
// next checkpoint says all that this one said. Only one that is too large stays so.
func (r *run) checkpointSaved(err error) {
	if !r.noteSaved(err) && r.tooLarge == nil {
		r.term.Logger.Warn("the checkpoint was not written; trying again", slog.Any("error", err))
	}
}

// noteSaved is checkpointSaved without a word of a failure, and says whether there was none.
func (r *run) noteSaved(err error) bool {
	// A failure leaves unknown whether the lease has the checkpoint. It may: what is saved
	// next says more, and reading from the older one does things twice, which is allowed.
	cp := r.saving
	r.saving = nil
	if err == nil {
		r.term.saved.Store(cp)
		return true
	}
	r.markDirty()
	if errors.Is(err, leases.ErrCheckpointTooLarge) {
		r.tooLarge = fmt.Errorf("%d changes are given up and %d fan-outs are open, more than a checkpoint holds (%w); "+
			"remove the cause (dead letters of pipeline %s) and resume", len(cp.Parked), len(cp.Jobs), err, r.Pipeline)
	}
	return false
}

// awaitSave waits for the checkpoint that is being written, and returns its error.
func (r *run) awaitSave() error {
	if r.saving == nil {
		return nil
	}
	err := <-r.saves
	r.noteSaved(err)
	return err
}

// saveNow writes a checkpoint that says all that is known now, and waits until it is durable. After an
// error it may not be. Only the loop may call it.
func (r *run) saveNow(ctx context.Context) error {
	_ = r.awaitSave() // of an older one, whatever became of it
	r.markDirty()
	r.saveCheckpoint(ctx)
	return r.awaitSave()
}

// saveLast writes what the term leaves behind. It runs when ctx has ended and
// fails without harm if the lease is lost.
func (r *run) saveLast(ctx context.Context) {
	// The loop has ended with what may be in the channel: a fan-out that was finished last.
	if r.dirty.IsZero() {
		select {
		case <-r.term.changed:
		default:
			return
		}
	}
	traces := r.coveredTraces()
	if err := r.writeCheckpoint(ctx, r.presentCheckpoint().encodeToFit(), &traces); err != nil {
		r.term.Logger.Info("the last checkpoint was not written; what it covered is done again", slog.Any("error", err))
	}
}

// presentCheckpoint is the present one. The state is asked for last: it may know more than the
// position does, which is harmless, and must not know less.
//
//	position 50, then the state   the state has the fan-outs of 1..50, perhaps of 51 too:
//	                              after a crash 51 comes again, and its fan-out is there
//	the state, then position 50   the fan-out of 50 may be in neither: it is lost
func (r *run) presentCheckpoint() *Checkpoint {
	r.mu.Lock()
	cp, marks := r.cp, r.marks
	r.mu.Unlock()
	cp.State = r.proc.State()
	if cp.Trouble == nil {
		cp.Trouble = r.reading.Load()
	}
	// The last mark that the sink has made durable is where a crash may send the reader
	// back to. marks[0] always is one: trimMarks keeps the last durable one.
	if durable := cp.Durable; durable != nil {
		m := marks[0]
		for _, next := range marks[1:] {
			if durable.Before(next.position) {
				break
			}
			m = next
		}
		if m.position.Before(cp.Position) {
			cp.Taken = cp.Position
		}
		cp.Position, cp.Time, cp.Log, cp.Sum = m.position, m.time, m.log, m.sum
	}
	if t := cp.Trouble; t != nil && cp.Attempts == 0 {
		cp.Attempts, cp.LastError, cp.Since = t.Attempts, t.LastError, r.updateTroubleSince(t)
	} else if t == nil {
		r.updateTroubleSince(nil)
	}
	cp.Durable, cp.Trouble = nil, nil
	return &cp
}

// updateTroubleSince returns since when there is trouble, in Unix milliseconds; 0 if there is
// none.
func (r *run) updateTroubleSince(t *Trouble) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case t == nil:
		r.troubleSince = 0
	case r.troubleSince == 0:
		r.troubleSince = time.Now().UnixMilli()
	}
	return r.troubleSince
}

// trimMarks forgets the marks before position, to which no checkpoint goes back.
func (r *run) trimMarks(position feed.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.marks) > 1 && !position.Before(r.marks[1].position) {
		r.marks = r.marks[1:]
	}
}

// oldestBuffered returns the time of the oldest commit that the processor holds, 0 if it
// holds none.
func (r *run) oldestBuffered(cp *Checkpoint) int64 {
	if cp.Taken.IsZero() {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.marks {
		if cp.Position.Before(m.position) {
			return m.time
		}
	}
	return 0
}

func (r *run) activity() Activity {
	cp := r.presentCheckpoint()
	return Activity{
		Resource: r.Resource, Checkpoint: *cp, Waiting: r.waiting.Load() && cp.Open() == 0 && cp.Taken.IsZero(),
		Heartbeat: time.UnixMilli(r.heartbeatAt.Load()),
	}
}

// measureLoop measures until ctx ends. It is a goroutine of its own because it asks JetStream, for
// which the loop must not wait.
func (r *run) measureLoop(ctx context.Context) {
	ticker := time.NewTicker(heartbeatInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.measureLag(ctx)
			r.releaseWalk(ctx)
		}
	}
}

// measureLag records how far the processor is behind.
func (r *run) measureLag(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, measureMax)
	defer cancel()
	cp := r.presentCheckpoint()
	// Other processors read the same log. What one of them has just learned is new enough, and
	// never what this one was told a heartbeat ago: the pace looks at whether the log grows.
	old := heartbeatInterval * 3 / 4
	if r.caughtUp && cp.Position == r.lookedAt {
		// It stood at the end of the log, and nothing has come since: most likely the log has not
		// grown. At rest that was a question to JetStream each second for each log.
		old = restInterval
	}
	if _, last, err := r.log.BoundsSince(ctx, time.Now().Add(-old)); err == nil {
		r.pace.noteLogEnd(last)
		lag := max(int64(last)-int64(cp.Position.LSN), 0) + r.itemsLeft(cp.Position)
		r.lookedAt, r.caughtUp = cp.Position, lag == 0
		meters.lag.Record(ctx, lag, r.attributes())
	}
	// The age of the oldest change that is not finished, wherever it waits: in a sink, in the
	// read-ahead, or as a job that the position has passed.
	oldest := r.oldestBuffered(cp)
	if oldest == 0 {
		oldest = r.input.oldestTime()
	}
	parked := len(cp.Parked)
	for i := range cp.Jobs {
		if cp.Jobs[i].Parked {
			parked++
		}
		if began := cp.Jobs[i].Began; oldest == 0 || began < oldest {
			oldest = began
		}
	}
	age := 0.0
	if oldest > 0 {
		age = max(time.Since(time.UnixMilli(oldest)).Seconds(), 0)
	}
	meters.lagSeconds.Record(ctx, age, r.attributes())
	meters.jobs.Record(ctx, int64(len(cp.Jobs)), r.attributes())
	meters.parked.Record(ctx, int64(parked), r.attributes())
}

// itemName names the item of a change as store.ItemRef does.
func itemName(c *feed.Change) string { return store.ItemRef{Key: c.Key, ID: c.ID}.String() }

func statusOf(err error) int {
	if refusal, ok := errors.AsType[*store.Error](err); ok {
		return int(refusal.Status)
	}
	return 0
}
