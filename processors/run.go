package processors

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

const (
	// heartbeatInterval is how often an idle processor says that it is alive, and lag
	// is measured.
	heartbeatInterval = time.Second
	// restInterval is how often lag is measured where nothing was behind and nothing has come.
	restInterval = 5 * time.Second
	// measureMax bounds one measurement.
	measureMax = 2 * time.Second
	// saveMax bounds the writing of one checkpoint.
	saveMax = 2 * time.Second
)

// run is one term of one processor in this process. Five goroutines work on it: the loop,
// the reader (readAhead), the processor's own Run, measureLoop and pollRetries.
type run struct {
	// Set before the goroutines start, then only read.
	Resource
	host    *Host
	lease   Lease
	proc    Processor
	term    *Term
	input   *readAhead // has a lock of its own
	log     *feed.Log
	retries chan *DeadLetter                                                   // from pollRetries to the loop
	begin   func(ctx context.Context, child Resource, checkpoint []byte) error // Task.BeginChild
	saves   chan error                                                         // from the writing of a checkpoint to the loop; holds one

	// Written by one, read by others.
	heartbeatAt atomic.Int64 // unix milliseconds
	waiting     atomic.Bool  // the loop has nothing to do
	pace        pace         // see there
	// reading is what the reader tries again, nil if nothing; stored by it.
	reading atomic.Pointer[Trouble]

	// Owned by measureLoop.
	walk     *Walk         // that is not released yet
	walkKept time.Time     // when its pin was seen to last
	lookedAt feed.Position // where the processor was when its lag was measured last
	caughtUp bool          // it had none

	// Guarded by mu: the loop writes, measureLoop and Host.Activities read.
	mu           sync.Mutex
	cp           Checkpoint // without State; of all that was taken
	marks        []mark     // where the checkpoint may stand: the last durable one and all behind it
	troubleSince int64      // since when State.Trouble says so, in unix milliseconds; 0 if it does not

	// Owned by the loop; while Process runs, by saveBeside; between the loop's end and that of Host.Run, by saveLast.
	dirty     time.Time   // since when the durable checkpoint is behind; zero if it is not
	saving    *Checkpoint // the one that is being written
	savedAt   time.Time   // when the last one was begun
	savedDone int64       // copies and rows that it counted
	tooLarge  error       // no checkpoint can be written any more, and why
	asked     bool        // the processor was told that nothing more comes
	looked    time.Time   // when it was looked for dead letters of a partition that was split
	older     sample      // from which the rate is told
	newer     sample      // from which it will be
	traces    traceSet    // of what the next checkpoint covers
}

// mark is the end of a batch.
type mark struct {
	position feed.Position
	time     int64
	log      feed.LogID
	sum      feed.Checksum
}

func newRun(h *Host, lease Lease, t Task, cp *Checkpoint) *run {
	r := &run{
		Resource: t.Resource, host: h, lease: lease, proc: t.Processor, cp: *cp,
		savedDone: cp.Counts.Copies + cp.Counts.Rows,
		input:     newReadAhead(h.cfg.ReadAheadBytes, h.cfg.ReadAheadCommits), saves: make(chan error, 1), retries: make(chan *DeadLetter),
	}
	r.walk, r.begin = t.Walk, t.BeginChild
	r.pace.share, r.pace.backfillTo = float64(h.cfg.BackfillPercent)/100, t.BackfillTo
	r.cp.State, r.cp.Taken = State{}, feed.Position{}
	r.marks = []mark{{cp.Position, cp.Time, cp.Log, cp.Sum}}
	r.term = &Term{
		Resource: t.Resource, Epoch: lease.Epoch(), FirstOfLease: t.FirstOfLease, deadLetters: h.deadLetters, backfillShare: r.pace.share, changed: make(chan struct{}, 1), heartbeat: r.heartbeat,
		amend: t.Amend,
		Logger: h.cfg.Logger.With(slog.String("pipeline", t.Pipeline), slog.String("role", string(t.Role)),
			slog.String("partition", t.Partition.String())),
	}
	r.term.saved.Store(cp)
	r.heartbeat()
	return r
}

func (r *run) heartbeat() {
	r.heartbeatAt.Store(time.Now().UnixMilli())
	r.lease.Progress()
}

// loop takes batches and writes checkpoints until ctx ends.
func (r *run) loop(ctx context.Context) error {
	ticker := time.NewTicker(heartbeatInterval)
	defer ticker.Stop()
	save := time.NewTimer(time.Hour)
	defer save.Stop()
	defer func() { _ = r.awaitSave() }() // what was not written is done again
	rested := time.NewTimer(time.Hour)
	defer rested.Stop()
	if err := r.retryParked(ctx); err != nil {
		return err
	}
	for {
		// A nil channel is never ready: while the pace asks for a pause nothing new is
		// taken, and all else goes on.
		ready := r.input.ready
		rest := r.pace.pause()
		if rest > 0 {
			ready = nil
			rested.Reset(rest)
		}
		r.waiting.Store(rest == 0)
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
			r.waiting.Store(false)
			err = r.takeBatch(ctx)
		case <-rested.C:
		case <-r.term.changed:
			r.markDirty()
		case <-save.C:
			r.saveCheckpoint(ctx)
		case l := <-r.retries:
			err = r.retryAsked(ctx, l, false)
		case result := <-r.saves:
			r.checkpointSaved(result)
		case <-ticker.C:
			r.heartbeat()
		}
		if err == nil && ctx.Err() == nil {
			err = r.endIfSplit(ctx)
		}
		if err = cmp.Or(err, r.tooLarge); err != nil {
			if FailureOf(ctx, err) == Canceled {
				return nil
			}
			return err
		}
		save.Reset(r.untilSave())
	}
}

// takeBatch processes what was read ahead.
func (r *run) takeBatch(ctx context.Context) error {
	commits := r.input.takeCommits(r.host.cfg.BatchItemsMax, r.host.cfg.BatchBytesMax)
	if len(commits) == 0 {
		return nil
	}
	b := newBatch(r.Partition, commits)
	r.term.noteOthers(b)
	begun := time.Now()
	if len(b.Parts) > 0 {
		if err := r.deliverBatch(ctx, b); err != nil {
			return err
		}
	}
	// Commits without changes, such as control commits, move the position all the same.
	r.pace.noteBatch(commits[0].LSN, time.Since(begun))
	end := commits[len(commits)-1]
	r.mu.Lock()
	r.cp.Position, r.cp.Time = lastPosition(end), end.Time
	r.cp.Log, r.cp.Sum = end.Log, end.Sum
	r.cp.forgetFailure()
	// A sink that buffers makes the checkpoint stand behind what was processed, and only
	// at the end of a batch is known which commit's time and checksum belong there.
	r.marks = append(thinMarks(r.marks), mark{r.cp.Position, r.cp.Time, r.cp.Log, r.cp.Sum})
	r.mu.Unlock()
	r.markDirty()
	r.heartbeat()
	return nil
}

// marksMax bounds the marks of one run.
const marksMax = 4096

// thinMarks returns marks to which one more may be added: when there are too many,
// every other one. A checkpoint then stands a little further back.
func thinMarks(marks []mark) []mark {
	if len(marks) < marksMax {
		return marks
	}
	few := make([]mark, 0, marksMax)
	for i := 0; i < len(marks); i += 2 {
		few = append(few, marks[i])
	}
	return few
}

// deliverBatch processes a batch under a span, which is part of the write's trace if
// all changes come from one.
func (r *run) deliverBatch(ctx context.Context, b *Batch) error {
	ctx, span := r.startBatch(ctx, b)
	defer span.End()
	start := time.Now()
	err := r.processBatch(ctx, b, r.failures())
	meters.batchItems.Record(ctx, int64(b.Len()), r.attributes())
	meters.batchDuration.Record(ctx, time.Since(start).Seconds(), r.attributes())
	if err != nil && FailureOf(ctx, err) != Canceled {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	return err
}

// failures are those of the next changes in a row.
type failures struct {
	all int // also those of what is not there now, which are waited for
	// transient are those that may lie in the changes themselves. They alone end in giving
	// one up: an outage of any length, and one other error behind it, says nothing against it.
	transient int
}

// failures are how often the next changes have failed, in earlier terms too.
func (r *run) failures() failures {
	r.mu.Lock()
	defer r.mu.Unlock()
	return failures{all: r.cp.Attempts, transient: r.cp.Transient}
}

// processBatch tries b, which has failed so often, until it is processed or given up.
func (r *run) processBatch(ctx context.Context, b *Batch, failed failures) error {
	var pauses *Pauses
	began := time.Now()
	for {
		err := r.attemptBatch(ctx, b)
		if err == nil {
			r.unparkSuperseded(b)
			return nil
		}
		failed.all++
		failure := FailureOf(ctx, err)
		// Counted across terms, by the checkpoint: a worker that is restarted often does not
		// try a bad change for ever.
		if failure == Transient {
			if failed.transient++; failed.transient >= AttemptsMax {
				failure = Permanent
			}
		}
		switch failure {
		case Canceled:
			return err
		case Fenced:
			CountFenced(ctx, r.Resource)
			return errors.Join(ErrFenced, err)
		case Permanent:
			return r.isolateChange(ctx, b, err, failed)
		case Unavailable, Transient: // tried again
		}
		r.noteFailure(ctx, failed, time.Since(began), err)
		if pauses == nil {
			pauses = NewPauses()
		}
		if err := pauses.Wait(ctx, err); err != nil {
			return err
		}
	}
}

// attemptBatch hands b over. A cascade may wait in Process for minutes, until one of its open
// fan-outs ends. Meanwhile the loop stands here, so checkpoints are written beside it: they
// tell how the fan-outs go on, and a crash does not repeat them.
func (r *run) attemptBatch(ctx context.Context, b *Batch) error {
	stop := r.saveBeside(ctx)
	err := r.proc.Process(ctx, b)
	stop() // not deferred: behind a panic the saver may wait for what Process holds
	return err
}

// noteFailure notes a failure that is tried again, for so long already. It is written to the checkpoint,
// so that status tells of it and a crash does not begin to count anew.
func (r *run) noteFailure(ctx context.Context, failed failures, lasts time.Duration, err error) {
	CountRetry(ctx, r.Resource)
	r.mu.Lock()
	r.cp.noteFailure(failed, Clip(err))
	r.mu.Unlock()
	r.heartbeat()
	r.markDirty()
	r.term.Logger.Log(ctx, retryLevel(err, failed.all, lasts), "changes cannot be processed now; trying again", slog.Int("attempts", failed.all), slog.Any("error", err))
	select {
	case result := <-r.saves: // the loop cannot take it while it is in here
		r.checkpointSaved(result)
	default:
	}
	if r.untilSave() == 0 {
		r.saveCheckpoint(ctx)
	}
}

// isolateChange halves a batch that cannot be processed until the change is found that cannot,
// and gives that one up:
//
//	1..8 fail      1..4 succeed, 5..8 fail
//	5..8           5, 6 fail, 7, 8 succeed
//	5, 6           5 succeeds, 6 is given up
//
// It takes two tries for each halving, not one for each change. Each part of a batch has two
// attempts left: with AttemptsMax for each, pauses included, the search would take minutes.
func (r *run) isolateChange(ctx context.Context, b *Batch, cause error, failed failures) error {
	if b.Len() > 1 {
		failed.transient = min(failed.transient, AttemptsMax-2)
		first, second := b.split()
		if err := r.processBatch(ctx, first, failed); err != nil {
			return err
		}
		return r.processBatch(ctx, second, failed)
	}
	for at, change := range b.Changes() { // there is one
		return r.parkChange(ctx, b, at, change, cause, failed)
	}
	return nil
}

// parkChange gives up one change: a dead letter, and it counts as lag until a retry of it
// has succeeded, or until a later change of its item supersedes it; see Superseder. Later
// changes are not held back.
func (r *run) parkChange(ctx context.Context, b *Batch, at feed.Position, change *feed.Change, cause error, failed failures) error {
	source := itemName(change)
	job := Job{
		Source: source, Position: at, Trace: b.Parts[0].Transaction.TraceParent, Began: b.Parts[0].Commit.Time,
		Attempts: failed.all, LastError: Clip(cause), Parked: true,
	}
	pauses, began := NewPauses(), time.Now()
	// Before the item is parked, and for as long as it takes: the position may pass the
	// change only when its dead letter is durable.
	for {
		err := r.term.DeadLetter(ctx, DeadLetter{
			Item: source, Position: at, Status: statusOf(cause), Reason: cause.Error(), Attempts: failed.all, Trace: job.Trace,
			Change: commitWith(b.Parts[0].Commit, b.Parts[0].Transaction, change),
		})
		if err == nil {
			break
		}
		if FailureOf(ctx, err) == Canceled {
			return err
		}
		r.noteFailure(ctx, failed, time.Since(began), err)
		if err := pauses.Wait(ctx, err); err != nil {
			return err
		}
	}
	r.mu.Lock()
	_, supersedes := r.proc.(Superseder)
	r.cp.Parked = withParked(r.cp.Parked, job, supersedes)
	parked := len(r.cp.Parked)
	r.mu.Unlock()
	// Before anything behind it is processed: an aggregate's targets note then what they are owed,
	// and whoever comes after a crash takes that for known. The checkpoint alone says that it is
	// still to be done.
	for {
		err := r.saveNow(ctx)
		if err == nil {
			break
		}
		if r.tooLarge != nil {
			return r.tooLarge
		}
		r.term.Logger.WarnContext(ctx, "the checkpoint was not written, and nothing is processed before it is; trying again", slog.Any("error", err))
		r.heartbeat()
		if err := pauses.Wait(ctx, err); err != nil {
			return err
		}
	}
	if parked > r.host.cfg.ParkedMax {
		return &TooManyParkedError{Resource: r.Resource, Parked: parked}
	}
	return nil
}

// parkedOfItemMax bounds the parked changes of one item. Further ones have their dead letters,
// but one item whose every change is given up must not fill the checkpoint.
const parkedOfItemMax = 8

// withParked returns parked changes with one more. If a later change supersedes those before it,
// the item has one, else one for each change: each lacks something of its own.
//
//	5 given up, 6 processed, 7 given up   a retry of 7 alone leaves what 5 should have done
//
// Cloned, here and below: a checkpoint that is being written shares the slice.
func withParked(parked []Job, job Job, supersedes bool) []Job {
	parked = slices.DeleteFunc(slices.Clone(parked), func(j Job) bool {
		return j.Source == job.Source && (supersedes || j.Position == job.Position)
	})
	of, last := 0, 0
	for i := range parked {
		if parked[i].Source == job.Source {
			of, last = of+1, i
		}
	}
	// The oldest stay: what is read again after a rewind begins with them.
	if of >= parkedOfItemMax {
		parked = slices.Delete(parked, last, last+1)
	}
	return append(parked, job)
}

// unparkSuperseded forgets parked changes for which a later change in b, which was processed,
// makes up.
func (r *run) unparkSuperseded(b *Batch) {
	superseder, ok := r.proc.(Superseder)
	if !ok {
		return
	}
	r.mu.Lock()
	parked := r.cp.Parked
	r.mu.Unlock()
	if len(parked) == 0 {
		return
	}
	made := map[string]feed.Position{} // up to where, by item
	for i := range b.Parts {
		p := &b.Parts[i]
		for j := range p.Changes {
			name := itemName(&p.Changes[j])
			if slices.ContainsFunc(parked, func(job Job) bool { return job.Source == name }) && superseder.Supersedes(p, j) {
				made[name] = p.At(j)
			}
		}
	}
	if len(made) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cp.Parked = slices.DeleteFunc(slices.Clone(r.cp.Parked), func(j Job) bool { return !made[j.Source].Before(j.Position) })
}

func (r *run) startBatch(ctx context.Context, b *Batch) (context.Context, trace.Span) {
	var traces traceSet
	for i := range b.Parts {
		traces.add(b.Parts[i].Transaction.TraceParent, b.Parts[i].Transaction.TraceState)
	}
	r.traces.addAll(&traces)
	ctx, span := traces.start(ctx, "millrace.process", r.Resource)
	if n := len(b.Parts); n > 0 && span.IsRecording() {
		span.SetAttributes(
			attribute.String("messaging.system", store.SystemName), attribute.String("messaging.operation.type", "process"),
			attribute.Int("messaging.batch.message_count", b.Len()), store.AttrLSN.Int64(int64(b.Parts[n-1].Commit.LSN)))
	}
	return ctx, span
}
