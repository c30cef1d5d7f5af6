package processors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
)

// Config tunes a Host. Zero fields take their defaults.
type Config struct {
	// BatchItemsMax bounds the changes of one batch, except that a commit is
	// never split. Default 1000.
	BatchItemsMax int `yaml:"batchItemsMax"`

	// BatchBytesMax bounds the bytes of one batch likewise. Default 4 MiB.
	BatchBytesMax int `yaml:"batchBytesMax"`

	// ReadAheadCommits and ReadAheadBytes bound what is read and not yet
	// processed. Defaults 256 and 8 MiB.
	ReadAheadCommits int `yaml:"readAheadCommits"`
	ReadAheadBytes   int `yaml:"readAheadBytes"`

	// CheckpointInterval is the time from the first thing that is finished to the
	// checkpoint that says so, when nothing follows. Default 100ms. A checkpoint
	// costs a sync of the same disk that writes wait for, so it is not written
	// at once.
	CheckpointInterval time.Duration `yaml:"checkpointInterval"`

	// CheckpointBusyInterval is the time between two checkpoints while changes
	// keep coming. Default 1s. After a crash as much is done again, which costs
	// reads alone.
	CheckpointBusyInterval time.Duration `yaml:"checkpointBusyInterval"`

	// BackfillPercent is the part of its time, 1 to 100, in which a processor works
	// that reads what was there before its pipeline, while others write to the log that
	// it reads; while nobody does, it works all the time. Default 50.
	BackfillPercent int `yaml:"backfillPercent"`

	// ParkedMax bounds the changes of one partition that were given up and wait for a
	// retry; beyond it the processor stops with an error. Of one item at most 8
	// count. Default 200.
	ParkedMax int `yaml:"parkedMax"`

	// Logger gets what an operator should know. Default slog.Default.
	Logger *slog.Logger `yaml:"-"`
}

func (c Config) withDefaults() (Config, error) {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.BatchItemsMax, 1000)
	def(&c.BatchBytesMax, 4<<20)
	def(&c.ReadAheadCommits, 256)
	def(&c.ReadAheadBytes, 8<<20)
	def(&c.ParkedMax, 200)
	def(&c.BackfillPercent, 50)
	if c.BackfillPercent < 1 || c.BackfillPercent > 100 {
		return c, fmt.Errorf("processors.backfillPercent is %d; 1 to 100 are allowed", c.BackfillPercent)
	}
	if c.CheckpointInterval == 0 {
		c.CheckpointInterval = 100 * time.Millisecond
	}
	if c.CheckpointBusyInterval == 0 {
		c.CheckpointBusyInterval = time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if min(c.BatchItemsMax, c.BatchBytesMax, c.ReadAheadCommits, c.ReadAheadBytes, c.ParkedMax) < 0 ||
		min(c.CheckpointInterval, c.CheckpointBusyInterval) < 0 {
		return c, fmt.Errorf("processors: a limit or interval is negative: %+v", c)
	}
	return c, nil
}

// Lease is the right to run a processor; leases.Held is one.
type Lease interface {
	Epoch() uint64
	Checkpoint() []byte
	// Save writes the checkpoint if the lease is still held, and fails if not.
	Save(ctx context.Context, checkpoint []byte) error
	// Progress says that the holder makes progress.
	Progress()
}

// Task is what to run under a lease.
type Task struct {
	Resource
	// Start is where reading begins, behind this position, if the lease has no
	// checkpoint.
	Start feed.Position
	// Rewinds counts how often an operator set the reading back to Start. A
	// checkpoint of fewer is set back there, unless it lies before; what is processed
	// again must do no harm. The number never falls.
	Rewinds uint32
	// BackfillTo is where the log ended when the generation began: what lies before it
	// is read at Config.BackfillPercent while others write.
	BackfillTo feed.LSN
	// Walk is what stands in for the beginning of the log, nil if the log does. Start is zero
	// then.
	Walk *Walk
	// FirstOfLease says that nothing ran under the lease before: who wrote for the resource
	// earlier had a lesser epoch, and is refused where this one's has been seen. A request that
	// another term of the same lease has left under way would be taken. False where it is not known.
	FirstOfLease bool
	// BeginChild gives the lease of a child its first checkpoint, unless it has one; see leases.Manager.Begin.
	// It is called when the partition was split and all of its log is done. Nil where none is split.
	BeginChild func(ctx context.Context, child Resource, checkpoint []byte) error
	// Amend changes the checkpoint in the lease's record by amend, which returns nil to leave it, whoever holds the lease; see
	// leases.Manager.Amend. It is called when a dead letter was written, whose writer may be late, and when a partition that was
	// split has ended. Nil where none is split.
	Amend func(ctx context.Context, r Resource, amend func(checkpoint []byte) []byte) error
	// Halt is to stop with *HaltedError at the first change that cannot be processed,
	// instead of giving it up and going on.
	Halt bool
	// Processor is new for each term.
	Processor Processor
}

// Host runs processors: it reads the feed, hands over batches, tries again what
// fails, gives up what cannot be processed and writes checkpoints. Safe for
// concurrent use.
type Host struct {
	hub         *feed.Hub
	deadLetters *DeadLetters
	cfg         Config

	mu   sync.Mutex
	runs map[Resource]*run
}

// NewHost returns a Host that reads through hub and writes what it gives up to deadLetters.
func NewHost(hub *feed.Hub, deadLetters *DeadLetters, cfg Config) (*Host, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Host{hub: hub, deadLetters: deadLetters, cfg: cfg, runs: map[Resource]*run{}}, nil
}

// Run runs t under lease until ctx ends, which is how a lease ends; then it
// abandons what is under way, writes a last checkpoint if the lease still
// allows, and returns nil. Otherwise the error tells why the processor stopped:
// ErrFenced if another holder has written, feed's errors for a damaged log. With ErrFenced
// it is a *leases.EpochBehindError too, where the epoch that has refused the term's is known:
// whoever runs the Host hands it to the lease, which believes it only if it is still held. It is ErrEnded when the
// partition was split and nothing is left to do for it.
func (h *Host) Run(ctx context.Context, lease Lease, t Task) error {
	cp, err := DecodeCheckpoint(lease.Checkpoint())
	if err != nil {
		return fmt.Errorf("%s: %w", t.Resource, err)
	}
	if cp.Ended() {
		return fmt.Errorf("%s: %w", t.Resource, ErrEnded)
	}
	if len(lease.Checkpoint()) == 0 { // the first term of its generation
		cp.Position = t.Start
	}
	if cp.Rewinds < t.Rewinds {
		cp.Recorded = feed.Position{} // the sink may have been emptied for that
	}
	cp.rewind(&t)
	r := newRun(h, lease, t, cp)
	if err := t.Processor.Open(ctx, r.term, cp.State); err != nil {
		return unlessCanceled(ctx, fmt.Errorf("%s: open: %w", t.Resource, tellLease(err)))
	}
	commits, reader, err := h.openCommits(ctx, r, &t, cp)
	if err != nil {
		return unlessCanceled(ctx, fmt.Errorf("%s: read from %s: %w", t.Resource, cp.Position, err))
	}
	defer reader.Close()
	r.log = reader.Log()
	h.register(r)
	defer h.unregister(r)

	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if t.Halt {
		r.term.halt = func(halted *HaltedError) { cancel(halted) }
	}
	g, work := errgroup.WithContext(work)
	g.Go(func() error { return r.input.run(work, commits) })
	g.Go(func() error { return t.Processor.Run(work) })
	g.Go(func() error { return r.loop(work) })
	g.Go(func() error { r.measureLoop(work); return nil })
	g.Go(func() error { r.pollRetries(work); return nil })
	// Everything has ended before the last checkpoint is written: it then says all that was
	// done, and nobody of this term writes behind it.
	err = cmp.Or(g.Wait(), r.noteHalt(work))
	if !errors.Is(err, ErrEnded) { // all is said, and what others add to it now would be overwritten
		r.saveLast(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", t.Resource, tellLease(err))
	}
	return nil
}

// unlessCanceled returns err, or nil if it only says that ctx has ended.
func unlessCanceled(ctx context.Context, err error) error {
	if FailureOf(ctx, err) == Canceled {
		return nil
	}
	return err
}

// openCommits opens what a term reads: the log, or a walk and the log behind it.
func (h *Host) openCommits(ctx context.Context, r *run, t *Task, cp *Checkpoint) (commitReader, *feed.Reader, error) {
	next, walks, err := walkFrom(t, cp)
	switch {
	case err != nil:
		return nil, nil, err
	case walks:
		return h.openWalk(ctx, r, t, cp, next)
	}
	log, end, err := h.openReader(ctx, t.Partition, cp)
	if err != nil || end == nil {
		return log, log, err
	}
	return endReader{end}, log, nil
}

// openReader opens the feed behind a checkpoint, after a look at whether it is the log
// that the checkpoint is about. If the checkpoint stands at the end of a partition that was split, end says so: the
// reader would wait.
func (h *Host) openReader(ctx context.Context, p feed.Partition, cp *Checkpoint) (reader *feed.Reader, end *feed.SplitError, err error) {
	// A log that was restored older, or replaced, may have other commits at the same
	// positions. Reading on would leave out what they say, so the commit of the checkpoint
	// has to be there with the same checksum.
	after := cp.Position
	if !cp.Log.IsZero() || after == feed.WalkEnd(after.LSN) {
		after.Index = 0 // a checkpoint ends with a commit, or with a walk
	}
	if reader, err = h.hub.Reader(ctx, p, after); err != nil || after.LSN == 0 && cp.Log.IsZero() {
		return reader, nil, err
	}
	if end, err = lookBack(ctx, p, reader.Log(), cp, after); err != nil {
		reader.Close()
		return nil, nil, err
	}
	reader.Expect(cp.Sum)
	return reader, end, nil
}

// lookBack compares a log with the checkpoint behind which it is to be read on, and tells if the log ends there.
func lookBack(ctx context.Context, p feed.Partition, log *feed.Log, cp *Checkpoint, after feed.Position) (end *feed.SplitError, err error) {
	known := !cp.Log.IsZero()
	mismatch := &feed.MismatchError{Partition: p, Stream: log.Stream(), LSN: cp.Position.LSN}
	_, last, err := log.Bounds(ctx)
	switch {
	case err != nil:
		return nil, err
	case known && log.ID() != cp.Log:
		mismatch.What = fmt.Sprintf("it is log %s, the checkpoint is of log %s", log.ID(), cp.Log)
		return nil, mismatch
	case known && last < cp.Position.LSN:
		mismatch.What = fmt.Sprintf("it ends at %s, the checkpoint is at %s: it was restored older, or has lost its end", last, cp.Position.LSN)
		return nil, mismatch
	case !known && last != after.LSN:
		return nil, nil
	}
	// The next commit would tell as well, but it may be long in coming.
	c, missing := log.Read(ctx, cp.Position.LSN)
	if missing == nil && known && cp.Sum != 0 && c.Sum != cp.Sum {
		mismatch.What = fmt.Sprintf("its commit has checksum %s, the checkpoint's had %s: it was restored older and went on", c.Sum, cp.Sum)
		return nil, mismatch
	}
	switch {
	case last != after.LSN || after.Index > 0: // something is read, and the reader tells
		return nil, nil
	case errors.Is(missing, feed.ErrNotFound): // trimmed, or before the first commit of a child
		return nil, nil
	case missing != nil:
		return nil, missing
	}
	return endOf(p, c)
}

func (h *Host) register(r *run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs[r.Resource] = r
}

func (h *Host) unregister(r *run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// The lease may have come back, and its next run registered, before this one has ended.
	if h.runs[r.Resource] == r {
		delete(h.runs, r.Resource)
	}
}

// Activity is what a processor of this process is doing.
type Activity struct {
	Resource
	// Checkpoint is the present one, not yet durable.
	Checkpoint Checkpoint
	// Waiting is whether there is nothing to do.
	Waiting bool
	// Heartbeat is when it last made progress.
	Heartbeat time.Time
}

// Activities returns what each processor of this process is doing.
func (h *Host) Activities() []Activity {
	h.mu.Lock()
	runs := make([]*run, 0, len(h.runs))
	for _, r := range h.runs {
		runs = append(runs, r)
	}
	h.mu.Unlock()
	all := make([]Activity, len(runs))
	for i, r := range runs {
		all[i] = r.activity()
	}
	return all
}
