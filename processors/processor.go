package processors

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/feed"
)

// Processor is the running code of one pipeline on one physical partition. A
// Host calls Open once, then Run and, beside it, Process, one batch at a time, and
// State, until the lease ends. A Processor is used for one term only.
type Processor interface {
	// Open begins a term. state is what State returned for the checkpoint from
	// which the term begins, zero for a first one.
	Open(ctx context.Context, t *Term, state State) error

	// Process finishes the batch, takes it into its State, or holds it and says so
	// by State.Durable. It is called again with the same changes after an error and
	// after a crash, and with parts of a batch when the Host looks for the change
	// that cannot be processed. The error says what to do next: see Reject and Retry.
	Process(ctx context.Context, b *Batch) error

	// State returns what a checkpoint must hold beside the position: work that
	// was begun by batches before it and is not finished. It does not wait, and
	// may be called at any time.
	State() State

	// Run does work that outlives a batch. It returns nil when ctx ends, with
	// nothing left running. An error ends the term.
	Run(ctx context.Context) error
}

// State is what a processor keeps in its checkpoint beside the position.
type State struct {
	// Jobs are what it has begun and not finished.
	Jobs []Job `json:"jobs,omitempty"`
	// Counts are totals over all terms.
	Counts Counts `json:"counts"`
	// Durable is for a processor that holds what it took, to write much at once. It
	// is the position up to which all that Process was given is finished or in Jobs,
	// where that lies behind; nil where it does not. The checkpoint's Position stays
	// at the last commit that ends there, and reading begins behind that after a
	// crash. It never goes back in a term, and is not written itself.
	Durable *feed.Position `json:"-"`
	// Recorded is the position that the sink has recorded together with what it
	// keeps; zero if the processor has no such sink. A sink that is found before it
	// has been emptied or restored older.
	Recorded feed.Position `json:"-"`
	// Rejected tells of the rows that were rejected last, for people: at most
	// RejectedMax.
	Rejected []string `json:"rejected,omitempty"`
	// Backfill is how far the processor is in the items that were there, if it was asked to
	// go through them; see Backfiller. While it is not done there is a Job for it.
	Backfill *Backfill `json:"fill,omitempty"`
	// Trouble is what Run tries again; nil if nothing. It is shown as Attempts and
	// LastError of the checkpoint, unless what follows its position fails too.
	Trouble *Trouble `json:"-"`
}

// RejectedMax bounds State.Rejected.
const RejectedMax = 5

// Trouble is a failure of work that outlives a batch.
type Trouble struct {
	Attempts  int    // in a row
	LastError string // as Clip cuts it
}

// Counts are what a processor has done since its generation began. They are as
// durable as the checkpoint: after a crash work is done, and counted, again.
type Counts struct {
	Copies      int64 `json:"copies,omitempty"`   // items whose copies were changed
	Checked     int64 `json:"checked,omitempty"`  // copies compared with their source
	Dangling    int64 `json:"dangling,omitempty"` // copies seen whose source is not there
	DeadLetters int64 `json:"letters,omitempty"`  // changes and copies given up; also one that a target refused before
	Rows        int64 `json:"rows,omitempty"`     // rows put into a sink, or dropped from it
	Rejects     int64 `json:"rejects,omitempty"`  // rows that could not take their place in a sink
}

// Job is a piece of work that outlives its batch, such as a fan-out. It counts as
// lag until it is gone.
type Job struct {
	// Source names the item whose change began the job, as store.ItemRef prints.
	Source string `json:"source"`
	// Position is the version of it that the job brings to its copies.
	Position feed.Position `json:"position"`
	// Gone says that this version is no item at all.
	Gone bool `json:"gone,omitempty"`
	// Digest is that of the values of this version.
	Digest uint64 `json:"digest,omitempty,string"`
	// Trace is the W3C traceparent of the write that began the job.
	Trace string `json:"trace,omitempty"`
	// Began is when, in Unix milliseconds.
	Began int64 `json:"began,omitempty"`
	// Total is how many items it may have to look at, zero while not known;
	// Scanned how many it has looked at and Changed how many of them it changed.
	Total   int64 `json:"total,omitempty"`
	Scanned int64 `json:"scanned,omitempty"`
	Changed int64 `json:"changed,omitempty"`
	// Attempts counts failures in a row, LastError tells the last.
	Attempts  int    `json:"attempts,omitempty"`
	LastError string `json:"lastError,omitempty"`
	// Parked says that the job was given up, after a dead letter, until its item
	// changes again or an operator asks.
	Parked bool `json:"parked,omitempty"`
}

// Progress is the share of the job that is done, 0 to 1, and how long the rest
// will take at the pace so far; ok is false while there is nothing to tell.
func (j *Job) Progress(now time.Time) (done float64, eta time.Duration, ok bool) {
	if j.Total <= 0 || j.Scanned <= 0 {
		return 0, 0, false
	}
	done = min(float64(j.Scanned)/float64(j.Total), 1)
	elapsed := now.Sub(time.UnixMilli(j.Began))
	return done, max(time.Duration(float64(elapsed)*(1-done)/done), 0), true
}

// Term is the time for which a processor holds its lease, and what it may ask
// of its Host meanwhile. Its methods may be called from any goroutine.
type Term struct {
	Resource
	// Epoch is that of the lease; every write names it.
	Epoch uint64
	// FirstOfLease says that no term before this one had the epoch, see Task.FirstOfLease.
	FirstOfLease bool
	// Logger names pipeline and partition.
	Logger *slog.Logger

	// deadLetters takes what cannot be processed.
	deadLetters deadLetterWriter
	// backfillShare is Config.BackfillPercent as a part of 1.
	backfillShare float64

	changed     chan struct{}
	heartbeat   func()
	saved       atomic.Pointer[Checkpoint]
	wrote       atomic.Bool                                                            // a dead letter
	othersWrote atomic.Bool                                                            // the feed brought what this term has not written, since a Backfiller looked
	halt        func(*HaltedError)                                                     // ends the term; nil unless the Task is to halt
	amend       func(ctx context.Context, r Resource, amend func([]byte) []byte) error // Task.Amend

	mu     sync.Mutex
	traces traceSet // of what Changed told and no checkpoint covers
}

// Changed asks the Host to write a checkpoint soon, because State has changed.
// The checkpoint becomes part of the trace of traceParent; it may be empty.
func (t *Term) Changed(traceParent string) {
	t.mu.Lock()
	t.traces.add(traceParent, "")
	t.mu.Unlock()
	signal(t.changed)
}

// noteOthers notes whether a batch of the feed has changes that this term has not written.
func (t *Term) noteOthers(b *Batch) {
	own := t.Producer()
	for i := range b.Parts {
		p := &b.Parts[i]
		if p.Commit.Walk == nil && (p.Transaction.Effect == nil || p.Transaction.Effect.Producer != own) {
			t.othersWrote.Store(true)
			return
		}
	}
}

// takeTraces returns the traces of what Changed told, and forgets them.
func (t *Term) takeTraces() traceSet {
	t.mu.Lock()
	defer t.mu.Unlock()
	traces := t.traces
	t.traces = traceSet{}
	return traces
}

// Heartbeat tells the Host that the processor makes progress. One that neither
// returns from Process nor calls Heartbeat for the leases' StallTimeout loses its
// lease.
func (t *Term) Heartbeat() { t.heartbeat() }

// Failed returns what State says when work that outlives a batch has failed once more
// and is tried again; was is what it said before, nil if all was well. The log tells
// what cannot be done, as an error when that has failed StuckAttempts times.
func (t *Term) Failed(ctx context.Context, was *Trouble, what string, err error) *Trouble {
	CountRetry(ctx, t.Resource)
	trouble := &Trouble{Attempts: 1, LastError: Clip(err)}
	if was != nil {
		trouble.Attempts += was.Attempts
	}
	level := slog.LevelWarn
	if trouble.Attempts == StuckAttempts {
		level = slog.LevelError
	}
	t.Logger.Log(ctx, level, what+"; trying again", slog.Int("attempts", trouble.Attempts), slog.Any("error", err))
	return trouble
}

// Saved returns the last checkpoint that is durable. It must not be changed.
func (t *Term) Saved() *Checkpoint { return t.saved.Load() }
