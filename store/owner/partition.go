package owner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/heat"
)

// Lease is the right to a physical partition; *leases.Held is one.
type Lease interface {
	// Trust ends, with its cause, before the right does.
	Trust() context.Context
	// Valid says whether the right is trusted now.
	Valid() bool
	// Lasts says whether it has not run out, so it is worth to append: what is answered by an append that was
	// acknowledged needs no other proof.
	Lasts() bool
	// Epoch grows at every hand-over.
	Epoch() uint64
	// Progress says that the holder is alive.
	Progress()
	settles
	usable
}

// settles is what a take-over from a living owner needs; see leases.Held.
type settles interface {
	// Settle returns when no former owner answers any more. fenced says that a takeover commit was acknowledged.
	Settle(ctx context.Context, fenced bool) error
	// Now reads the clock for Extend.
	Now() time.Duration
	// Extend keeps the right valid for a moment from since, because of an append that was begun then and acknowledged.
	Extend(since time.Duration)
}

// usable is what tells whose engine holds all that was acknowledged, where the log does not; see leases.Held.
type usable interface {
	// Use must have returned without an error before anything is appended.
	Use(ctx context.Context) error
	// LeaveUnused takes back one call of Use, after which nothing was appended for certain.
	LeaveUnused(ctx context.Context) error
	// Bind says whether no other node than the one that used the right last can do something with it.
	Bind(bound bool)
	// User is the node that used the right last, "" if that is not known, and the epoch from which on no other has.
	User() (node string, since uint64)
}

// Bind does nothing: who only follows a log has nothing that could move.
func (noRight) Bind(bool) {}

// Log is what a partition needs of its log; *feed.Log is one.
type Log interface {
	ID() feed.LogID
	Stream() string
	Append(ctx context.Context, after feed.LSN, id feed.CommitID, data []byte) (feed.LSN, error)
	Read(ctx context.Context, lsn feed.LSN) (*feed.Commit, error)
	Bounds(ctx context.Context) (first, last feed.LSN, err error)
	Shape(ctx context.Context) (*feed.Shape, error)
	Tail(ctx context.Context, from feed.LSN, opt feed.TailOptions) (*feed.Tail, error)
	trimmable
	Close()
}

// trimmable is what a partition needs of its log to trim it.
type trimmable interface {
	Trim(ctx context.Context, upTo feed.LSN) (purged uint64, err error)
	Time(ctx context.Context, lsn feed.LSN) (time.Time, error)
	LastBefore(ctx context.Context, t time.Time, upTo feed.LSN) (feed.LSN, error)
	Moving(ctx context.Context) (*feed.Move, error)
	BeginMove(ctx context.Context, first feed.LSN) (*feed.Move, error)
	FinishMove(ctx context.Context) (moved bool, err error)
}

// applied is the state that reads see.
type applied struct {
	lsn    feed.LSN
	sum    feed.Checksum
	time   int64
	schema *schema
}

// Partition owns one physical partition: the only process that appends to its
// log. Two goroutines do the work: the decider decides the next commit while the
// committer appends, applies and answers the last.
type Partition struct {
	// Set by newPartition.
	id     feed.Partition
	cfg    Config
	log    *slog.Logger
	feed   Log
	engine *engine.Partition
	lease  Lease
	owner  string

	doubtMax time.Duration // for tests

	// Set before it is served; nil: not known.
	container *store.ContainerInfo

	// Set before it is opened: no owner opens it, but who keeps a copy.
	follows bool

	// Owned by open: why the engine's copy goes, until that is told; "" for one that stays.
	unfit string
	// Owned by open: a snapshot was loaded for which all of the engine stood still for a moment.
	stopped bool

	// Between those who ask, the decider and the committer.
	queries        chan struct{} // a place for each query under way
	queue          chan *call    // clients' requests and repairs
	pages          chan *call    // fan-outs
	commits        chan *draft
	deciderTasks   chan func(*decider)   // run by the decider
	committerTasks chan func(*committer) // run by the committer between two commits
	decided        chan struct{}         // closed when the decider has ended

	// Stored by the committer, and by open before it runs; read by everybody.
	state      atomic.Pointer[applied]
	inFlight   atomic.Uint64 // LSN of the last append that was begun
	generation atomic.Uint64 // grows when an append did not happen
	appendTook atomic.Int64  // the last append, in nanoseconds
	fenced     atomic.Bool   // another process has appended, whatever the lease says
	changed    notifier      // tells waiters that state moved
	parts      atomic.Uint64 // odd while a commit is applied in parts, see wholeSnapshot
	applying   atomic.Uint64 // LSN of the last commit of which something was written to the engine

	// Stored by the server's loops, which look at disks, logs and clocks, and by open.
	remote      atomic.Pointer[subscription] // by which it is asked over NATS; nil: by nobody yet
	listens     atomic.Pointer[time.Time]    // since when it has the subjects of its requests; nil: it has not yet
	trouble     atomic.Pointer[store.Error]  // why writes are refused
	closedFor   atomic.Pointer[store.Error]  // why everything is
	harm        atomic.Pointer[DamagedError] // of the log, found while it is served
	readOnly    atomic.Bool                  // opened for reads alone, see openReadOnly
	scrubbed    atomic.Pointer[store.ScrubState]
	copied      atomic.Pointer[store.SnapshotState] // the newest snapshot; nil until that is known
	doubted     atomic.Int64                        // when to read the newest snapshot, which may be damaged, in Unix nanoseconds; 0 is not
	unusable    sync.Map                            // ids of snapshots that were found damaged, or of another history; no log is trimmed by them
	readWhole   sync.Map                            // ids of snapshots that this process has read whole
	counted     atomic.Pointer[countedSnapshot]     // one of them of which it knows how many items it holds
	logBytes    atomic.Uint64                       // size of the stream, when it was asked last
	compression compression
	shape       atomic.Pointer[feed.Shape]      // of the stream, likewise
	trim        atomic.Pointer[store.TrimState] // nil until the log was looked at
	split       atomic.Pointer[splitRecord]     // what is applied of a split. Stored by the committer
	splitSays   atomic.Pointer[string]          // how far the split is, for people; nil if none is planned
	clock       atomic.Pointer[reading]
	early       *store.Error // of checkClock, which one goroutine calls at a time
	// engineScrubbed is of the process's engine. Set before the partition is served.
	engineScrubbed *atomic.Pointer[store.ScrubState]

	// Set before the partition is served.
	planSplit func(context.Context, *store.SplitPartition) *store.Response

	pins pinBook     // has a lock of its own
	heat *heat.Meter // nobody waits for it

	// Stored by Handle, and by the decider.
	fanOuts    atomic.Int64
	occupation atomic.Pointer[occupation] // of the decider; nil while it waits

	mu     sync.RWMutex
	closed bool // guards queue and pages against requests that nobody decides any more
}

func newPartition(id feed.Partition, cfg Config, log Log, db *engine.Partition, lease Lease, owner string) *Partition {
	return &Partition{
		id: id, cfg: cfg, log: cfg.Logger.With("partition", id.String()), feed: log, engine: db, lease: lease, owner: owner,
		queries: make(chan struct{}, cfg.QueriesMax),
		queue:   make(chan *call, cfg.QueueMax), pages: make(chan *call, cfg.QueueMax), commits: make(chan *draft),
		deciderTasks: make(chan func(*decider)), committerTasks: make(chan func(*committer)),
		decided: make(chan struct{}),
		heat:    heat.New(), doubtMax: doubtMax,
	}
}

// run serves the partition until ctx ends or the log has another owner. open
// must have been called. It returns nil after a stop that was asked for.
//
//nolint:contextcheck // commits outlive ctx on purpose, and end with the lease
func (p *Partition) run(ctx context.Context) error {
	commitCtx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	// Losing the lease ends appends at hand too; a drain lets them finish.
	trust := p.lease.Trust()
	unhook := context.AfterFunc(trust, func() { stop(context.Cause(trust)) })
	defer unhook()
	deciding, stopDeciding := context.WithCancel(ctx)
	defer stopDeciding()
	// As soon as a drain begins, whatever the decider does at that moment: where the disk hangs
	// under it, callers must not wait for an owner that is leaving.
	unrefuse := context.AfterFunc(deciding, p.refuseRest)
	defer unrefuse()
	c := newCommitter(p)
	var committerErr error
	var wg sync.WaitGroup
	finished := make(chan struct{})
	wg.Go(func() {
		committerErr = c.run(commitCtx, finished)
		stopDeciding()
	})
	d := &decider{p: p, cache: newRuleCache(p.cfg.caches)}
	// The decider ends first and the committer after it, so that what was handed over is
	// appended and answered. What was decided and not handed over is answered as not having
	// happened, which is true: nothing of it has left.
	d.run(deciding)
	d.cache.close()
	close(p.decided)
	// Before the appends at hand end, which may take as long as their log does: a late
	// caller learns at once that nothing happened.
	p.refuseRest()
	close(finished)
	wg.Wait()
	p.changed.close()
	return committerErr
}

// refuseRest refuses the calls that are queued, and those that come from now on.
func (p *Partition) refuseRest() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	for {
		select {
		case c := <-p.queue:
			c.answer(&store.Response{Err: p.closing()})
		case c := <-p.pages:
			c.answer(&store.Response{Err: p.closing()})
		default:
			return
		}
	}
}

// Handle answers one request; see store.Handler. No answer leaves that may rest on
// damaged blocks of the engine.
func (p *Partition) Handle(ctx context.Context, r *store.Request) (resp *store.Response) {
	defer func() {
		if p.engine == nil {
			return
		}
		if wrong := cmp.Or(p.engine.Caught(recover()), p.engine.Sound()); wrong != nil {
			resp = p.guardAnswer(r, resp, wrong)
		}
		resp = p.guardRefusal(r, resp)
	}()
	return p.handle(ctx, r)
}

// guardRefusal replaces the refusal of a write by who may not be the owner any more: the next one may have got the same
// request, and done what this one says has not happened.
func (p *Partition) guardRefusal(r *store.Request, resp *store.Response) *store.Response {
	switch {
	case resp == nil || resp.Err == nil || r.Reads() || p.lease.Valid():
	case resp.Err.Status == store.StatusUnknown || resp.Err.Status == store.StatusGone:
	default:
		return &store.Response{Err: p.notOwner()}
	}
	return resp
}

func (p *Partition) handle(ctx context.Context, r *store.Request) *store.Response {
	h := handlerOf(r)
	// What goes on to the decider is answered behind an append, or behind a look at the lease (commit).
	isOwner := p.lease.Valid
	if h != nil && h.decide != nil && !readsOne(r) {
		isOwner = p.lease.Lasts
	}
	if !isOwner() {
		doubt, cancel := context.WithTimeout(ctx, p.doubtMax)
		defer cancel()
		if !p.awaitLease(doubt, isOwner) {
			return &store.Response{Err: p.notOwner()}
		}
	}
	if why := p.closedFor.Load(); why != nil && (h == nil || !h.evenClosed) {
		return &store.Response{Err: why}
	}
	if h == nil {
		return &store.Response{Err: store.Refuse(store.StatusBadRequest, "the request asks for nothing")}
	}
	if h.read != nil {
		if h.barrier != nil && h.barrier(r) {
			if refusal := p.awaitAppends(ctx); refusal != nil {
				return &store.Response{Err: refusal}
			}
		}
		var span heat.Span
		if h.decide == nil || readsOne(r) { // what goes on to the decider is measured there
			span = p.heat.Begin(heat.Read, !single(r)) // behind the barrier: waiting is no work
		}
		if resp := h.read(ctx, p, r); resp != nil {
			// What was read before the log was ended is true. Behind its end others may have written to the children.
			if why := p.closedFor.Load(); why != nil && !h.evenClosed {
				return &store.Response{Err: why}
			}
			if h.heat != nil {
				p.heat.End(span, h.heat(p, r, resp))
			}
			return resp
		}
	}
	return p.viaDecider(ctx, r, h)
}

const (
	// doubtPause is the pause between two looks at a lease in doubt.
	doubtPause = 10 * time.Millisecond
	// doubtMax is for how long a request waits for it: it holds a place that others need, and is asked again.
	doubtMax = time.Second
)

// trusted reports whether the lease is held. While that is in doubt, because this
// process was late to renew it, it waits until it is known; that is not for long.
func (p *Partition) trusted(ctx context.Context) bool { return p.awaitLease(ctx, p.lease.Valid) }

// mayAppend reports whether an append is worth to be tried; it waits as trusted does. The log decides.
func (p *Partition) mayAppend(ctx context.Context) bool { return p.awaitLease(ctx, p.lease.Lasts) }

func (p *Partition) awaitLease(ctx context.Context, ok func() bool) bool {
	if ok() {
		return true
	}
	tick := time.NewTicker(doubtPause)
	defer tick.Stop()
	for {
		select {
		case <-p.decided: // the term is over
			return false
		case <-p.lease.Trust().Done():
			return false
		case <-ctx.Done():
			return false
		case <-tick.C:
			if ok() {
				return true
			}
		}
	}
}

// notOwner is the answer of a process that speaks for itself alone: it has no RetryAfter.
func (p *Partition) notOwner() *store.Error {
	return store.Refuse(store.StatusGone, "this process (%s) no longer owns partition %s", p.owner, p.id)
}

// closing is the answer to requests that nobody decides any more. It speaks for all processes only
// while this one is the owner; see "Who is not the owner" in the package's comment.
func (p *Partition) closing() *store.Error {
	if p.fenced.Load() || !p.lease.Valid() {
		return p.notOwner()
	}
	err := store.Refuse(store.StatusGone, "process %s hands partition %s over; nothing was changed", p.owner, p.id)
	err.RetryAfter = handoverPause
	return err
}

// handoverPause is when to ask again for a partition that is handed over.
const handoverPause = 200 * time.Millisecond

// asServer is made once: spans are begun even if nobody collects them.
var asServer = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}

// viaDecider sends a request through the decider and waits for its answer.
func (p *Partition) viaDecider(ctx context.Context, r *store.Request, h *handler) *store.Response {
	queue := p.queue
	if h.paged {
		queue = p.pages
		p.fanOuts.Add(1)
		defer p.fanOuts.Add(-1)
	}
	span := p.startCommit(ctx, r)
	defer span.End()
	if span.IsRecording() {
		store.DescribeRequest(span, r, p.container)
		sent := *r
		r = &sent
		r.TraceParent, r.TraceState = store.TraceContext(trace.ContextWithSpan(ctx, span))
	}
	// Conditions are parsed here, on the caller's goroutine, to keep the decider free.
	c, turn := newCall(r, h), turnOf(ctx)
	if !turn.await(ctx) {
		return &store.Response{Err: errWithdrawn}
	}
	refusal := p.enqueue(c, queue)
	turn.pass()
	if refusal != nil {
		return &store.Response{Err: refusal}
	}
	select {
	case resp := <-c.done:
		if resp.Err != nil && resp.Err.Status == store.StatusFenced {
			meters.fenced.Add(ctx, 1)
		}
		if span.IsRecording() {
			describeCommit(span, c, resp)
		}
		return resp
	case <-ctx.Done():
		if c.withdraw() {
			return &store.Response{Err: errWithdrawn}
		}
		return &store.Response{Err: errOutcome}
	}
}

// startCommit begins the span of a request for the decider. What only reads has one if its asker
// has: loops that look after something ask without.
func (p *Partition) startCommit(ctx context.Context, r *store.Request) trace.Span {
	if r.TraceParent == "" && !r.Writes() {
		return store.NoSpan
	}
	_, span := tracer.Start(store.WithTraceContext(ctx, r.TraceParent, r.TraceState), "millrace.commit", asServer...) //nolint:spancheck // the caller ends it
	return span                                                                                                       //nolint:spancheck // the caller ends it
}

// describeCommit gives a span what came of a call.
func describeCommit(span trace.Span, c *call, resp *store.Response) {
	store.DescribeAnswer(span, resp, nil)
	span.SetAttributes(attribute.Int("millrace.changes", c.changes))
	if resp.Err != nil {
		span.SetStatus(codes.Error, resp.Err.Message)
	}
}

var errOutcome = &store.Error{Status: store.StatusUnknown, Message: "the outcome was not learned in time; the write may happen"}

// errWithdrawn is the answer to a request that nobody had begun to decide when its time was over.
var errWithdrawn = &store.Error{
	Status: store.StatusUnavailable, RetryAfter: 250 * time.Millisecond,
	Message: "the partition did not come to the request in time; nothing was changed",
}

func (p *Partition) enqueue(c *call, queue chan *call) *store.Error {
	// Under the lock, which refuseRest takes for writing: what is queued before it is found
	// and refused there, and nothing is queued after it.
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return p.closing()
	}
	select {
	case queue <- c:
		return nil
	default:
		return &store.Error{
			Status: store.StatusTooManyRequests, RetryAfter: indexRetry,
			Message: fmt.Sprintf("%d requests wait for partition %s already", cap(queue), p.id),
		}
	}
}

// refusing says why writes are refused now; nil if they are not.
func (p *Partition) refusing() *store.Error { return p.trouble.Load() }

// errStopped is the cause of an end that nobody needs to hear about.
var errStopped = errors.New("partition stopped")
