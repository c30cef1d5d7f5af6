package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/singleflight"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/query"
)

// ClientConfig tunes a Client. Zero fields take their defaults.
type ClientConfig struct {
	// Timeout bounds a request whose context has no earlier deadline, waiting for
	// an owner included. Default 10s.
	Timeout time.Duration
	// HandoverWait bounds how long a request is asked again while a process says that it
	// gives the partition up, from its first such answer on. A drain that goes well is over
	// before; one that hangs, in a log or on a disk, is told to whoever asks. Default 1s.
	HandoverWait time.Duration
	// Local are the owners of this process, reached without NATS. May be nil.
	Local *Local
	// Trouble returns what this process knows that keeps partitions without an owner, such
	// as a full disk under the leases, "" if nothing does. It must not block. May be nil.
	Trouble func() string
	// Queries is what the process has for what its queries hold in memory; the merging of rows takes
	// its share. May be nil: no bound but those of each query.
	Queries *query.Room
	// ReadOnly says that the connection may only read. Then nothing is asked on the
	// subject of writes; a request that writes is refused here.
	ReadOnly bool
}

// Client asks the owners of physical partitions, wherever they are: directly in
// the same process, else over NATS request/reply on the partition's subject, so
// no routing table exists anywhere. Safe for concurrent use.
//
// It asks again by itself only where nothing can have happened: nobody answered
// the subject, or who answered gives the partition up in order. While somebody answers
// so, it asks for ClientConfig.HandoverWait and no longer: the *NoOwnerError is as good
// an answer after that as at the deadline, and nothing was changed.
//
// NATS delivers a request to all that have the subject, and the first answer wins. Beside the owner
// that may be a process that has lost the partition, and it is quicker, because it appends nothing:
//
//	a write                     reaches the owner and the process before it
//	410 of the process before   nothing changed, there
//	the owner commits it        nobody waits for its answer any more
//
// So a 410 decides a write only if its process held the lease when it had the write already: the next
// owner subscribes after that, and does not get it (Error.RetryAfter). Any other 410 is like silence.
//
// A write whose answer does not come is ErrUnknown, unless it has an idempotency key; then it
// is sent again until the deadline. A refusal then says nothing of the attempts before it, and is
// ErrUnknown too, if it is undecided, or if it may have overtaken one: messages keep their order on
// one connection, and not from one to the next.
//
// Where the client's own connection is lost, what waits for an answer is asked again as soon as there is another
// connection (link), as far as it is asked again at all.
//
// A partition that nobody has may have been split. Container.Do looks for that, and goes on in the child that holds what
// the request names (lineage.go); the client, which does not know containers, does not.
type Client struct {
	nc      *nats.Conn
	catalog *Catalog
	cfg     ClientConfig
	logs    logs
	quorum  *quorum
	link    link
	looks   singleflight.Group // for owners, by partition
	silent  sync.Map           // feed.Partition to the time.Time from which on its standby is asked again before the owner
}

// NewClient returns a client that finds containers in catalog.
func NewClient(nc *nats.Conn, catalog *Catalog, cfg ClientConfig) *Client {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.HandoverWait <= 0 {
		cfg.HandoverWait = time.Second
	}
	return &Client{nc: nc, catalog: catalog, cfg: cfg, quorum: &quorum{
		pending: map[feed.Partition]*quorumAnswer{},
		ask: func(ctx context.Context, p feed.Partition) (*jetstream.StreamInfo, error) {
			stream, err := feed.StreamOf(ctx, catalog.js, p)
			if err != nil {
				return nil, err
			}
			return stream.CachedInfo(), nil
		},
	}}
}

// Catalog returns the catalog in which the client finds containers.
func (c *Client) Catalog() *Catalog { return c.catalog }

// RequestSubject is the NATS subject on which the owner of p answers all
// requests.
func RequestSubject(p feed.Partition) string {
	return fmt.Sprintf("millrace.store.%s.%d", p.Container, p.Number)
}

// ReadSubject is the NATS subject on which the owner of p answers requests that
// read, and no others: a user who may publish to it and not to RequestSubject
// cannot write.
func ReadSubject(p feed.Partition) string {
	return fmt.Sprintf("millrace.read.%s.%d", p.Container, p.Number)
}

// Local holds the handlers of one process, so that a Client in it reaches them
// without a detour. Safe for concurrent use.
type Local struct {
	handlers sync.Map // feed.Partition to Handler
	standbys sync.Map // feed.Partition to StandbyHandler
}

// Add makes h answer for p.
func (l *Local) Add(p feed.Partition, h Handler) { l.handlers.Store(p, h) }

// Remove ends what Add began, unless another handler has taken its place.
func (l *Local) Remove(p feed.Partition, h Handler) { l.handlers.CompareAndDelete(p, h) }

// AddStandby makes h answer reads for p that ask for a standby.
func (l *Local) AddStandby(p feed.Partition, h StandbyHandler) { l.standbys.Store(p, h) }

// RemoveStandby ends what AddStandby began, unless another handler has taken its place.
func (l *Local) RemoveStandby(p feed.Partition, h StandbyHandler) {
	l.standbys.CompareAndDelete(p, h)
}

func (l *Local) find(p feed.Partition) Handler {
	if l == nil {
		return nil
	}
	h, ok := l.handlers.Load(p)
	if !ok {
		return nil
	}
	return h.(Handler)
}

// Do sends r to the owner of its partition. The error is an *Error if the owner
// refused the request as a whole, *NoOwnerError if none answered, *NoQuorumError if
// none can, ErrUnknown for a write whose answer did not come, or the context's.
func (c *Client) Do(ctx context.Context, r *Request) (*Response, error) {
	return c.do(ctx, r, nil, false)
}

// do is Do of a request to a container of which more than its number is known; nil: it is not. exact says that no other
// partition answers it: *SplitError then.
func (c *Client) do(ctx context.Context, r *Request, ct *Container, exact bool) (*Response, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var info *ContainerInfo
	if ct != nil {
		info = ct.present()
	}
	ctx, span := startSpan(ctx, r, info)
	r.TraceParent, r.TraceState = TraceContext(ctx)
	past := &attempts{c: c, ct: ct, r: r, began: time.Now()}
	for {
		resp, err := past.ask(ctx)
		if _, split := errors.AsType[*SplitError](err); split && !exact && past.moveOn() {
			continue
		}
		endSpan(span, resp, err)
		return resp, err
	}
}

// ask asks the owner of the request's partition, or a standby. It does not ask for a partition of which it is known that
// it was split: *SplitError.
func (a *attempts) ask(ctx context.Context) (*Response, error) {
	var stale *staleRead
	if a.ct != nil {
		if split := a.ct.split(a.r.Partition); split != nil {
			return nil, split
		}
		stale = a.ct.staleRead(a.r)
	}
	watched, unwatch := a.c.quorum.watch(ctx, a.r.Partition)
	defer unwatch()
	resp, err := a.sendStale(watched, stale)
	if _, lost := errors.AsType[*NoQuorumError](err); lost && stale != nil {
		// That keeps owners from answering, and no standby.
		if copied := a.c.askStandby(ctx, a.r, stale.lsn, 1); copied != nil {
			return copied, copied.refusal()
		}
	}
	return resp, err
}

// asClient is made once: spans are begun even if nobody collects them.
var asClient = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}

// bound gives ctx the client's timeout unless it ends earlier by itself.
func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if d, ok := ctx.Deadline(); ok && time.Until(d) <= c.cfg.Timeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.cfg.Timeout)
}

// attempts are what a request has met so far. The goroutine that sends the request owns them.
type attempts struct {
	c       *Client
	ct      *Container // nil: of a container that is not known
	r       *Request   // as the next attempt has it
	began   time.Time
	unknown bool        // an attempt went unanswered and may have been carried out
	oldest  connection  // of the attempts that did, over NATS
	leaving error       // what a process that gives the partition up has answered since then
	since   time.Time   // when it answered so first
	silent  atomic.Bool // the owner did not answer the last look for it (lookForOwner)
}

// send sends the request until it is answered, or nobody can answer it any more. Where an attempt was not
// answered a standby is asked, if stale is not nil. It is *SplitError as soon as the container is known to have
// the partition no more.
func (a *attempts) send(ctx context.Context, stale *staleRead) (*Response, error) {
	c, pause := a.c, 2*time.Millisecond
	for {
		h := c.cfg.Local.find(a.r.Partition)
		if h == nil {
			// From here on every attempt has the key, whoever gets it.
			a.r = a.r.keyed()
		}
		r := a.r
		on := c.connection(r, h)
		resp, err := c.once(ctx, r, h, c.attemptTime(ctx, r, stale), &a.silent)
		if err == nil && resp.Err != nil {
			err = resp.Err
		}
		if err == nil {
			return resp, nil
		}
		if stale != nil && unanswered(err) {
			if resp := c.askStandby(ctx, r, stale.lsn, 1); resp != nil {
				return resp, resp.refusal()
			}
		}
		if err := a.judgeFailure(ctx, r, h, on, err); err != nil {
			return nil, err
		}
		if a.ct != nil {
			if split := a.ct.splitNow(ctx, r.Partition); split != nil {
				return nil, split
			}
		}
		if ends, ok := ctx.Deadline(); ok && !a.unknown && time.Until(ends) < lastAttempt {
			// One more would be cut off, and then nobody could say that nothing happened.
			return nil, a.noOwner(r)
		}
		select {
		case <-ctx.Done():
			return nil, ended(ctx, r, a.unknown, a.noOwner(r))
		case <-time.After(pause/2 + rand.N(pause)):
			pause = min(2*pause, a.pauseMost())
		}
	}
}

// pauseMost bounds the pause before the next attempt.
func (a *attempts) pauseMost() time.Duration {
	if time.Since(a.began) < soon {
		return pauseSoon
	}
	return pauseMax
}

// noOwner is the error where nobody decided a request.
func (a *attempts) noOwner(r *Request) *NoOwnerError {
	e := &NoOwnerError{Partition: r.Partition, Waited: time.Since(a.began), Leaving: a.leaving}
	if a.c.cfg.Trouble != nil {
		e.Trouble = a.c.cfg.Trouble()
	}
	return e
}

// judgeFailure returns what the sender of a request is told after an attempt failed with err;
// nil if the request is to be sent again.
//
//	nobody has the subject                  again: nothing happened
//	410 of a process that held its lease    again, for HandoverWait: nothing happened
//	410 of any other, or no answer          unknown: again if there is a key, else ErrUnknown
//	a refusal                               the refusal, unless an attempt before is unknown
func (a *attempts) judgeFailure(ctx context.Context, r *Request, h Handler, on connection, err error) error {
	switch {
	case errors.Is(err, ErrNotOwner), errors.Is(err, nats.ErrNoResponders):
		// Nothing happened; the owner is on its way.
		if !errors.Is(err, ErrNotOwner) {
			a.leaving = nil
			return nil
		}
		// Or it is there, and has got this message too. A handler of this process was asked alone.
		if h == nil && r.once() && !heldLease(err) {
			if !r.repeatable() {
				return fmt.Errorf("%s on %s: %w: %s", r.name(), r.Partition, ErrUnknown, err.Error())
			}
			a.unknown, a.oldest = true, cmp.Or(a.oldest, on)
		}
		if a.leaving == nil {
			a.since = time.Now()
		}
		// What went unanswered before may have been carried out: only the next owner knows.
		if a.leaving = err; !a.unknown && time.Since(a.since) >= a.c.cfg.HandoverWait {
			return a.noOwner(r)
		}
		return nil
	case errors.Is(err, errNoAnswer) && r.repeatable() && ctx.Err() == nil:
		// Asked twice is answered alike.
		a.unknown, a.oldest = a.unknown || r.once(), cmp.Or(a.oldest, on)
		return nil
	case errors.Is(err, errNoAnswer) && noQuorum(ctx) && !r.once():
		return context.Cause(ctx)
	case errors.Is(err, errNoAnswer):
		if noQuorum(ctx) {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s on %s: %w: %w", r.name(), r.Partition, ErrUnknown, err)
	case a.unknown && (undecided(err) || a.oldest != 0 && a.oldest != a.c.connection(r, h)):
		// It changed nothing; what went unanswered before may have, and its key was not looked
		// up, or may yet do so. So the refusal is told as words only: errors.Is must not find it.
		return fmt.Errorf("%s on %s: %w: no answer at first, and then: %s", r.name(), r.Partition, ErrUnknown, err.Error())
	}
	return err
}

// ended is the error of a request whose context has ended before anybody decided it.
func ended(ctx context.Context, r *Request, unknown bool, nobody *NoOwnerError) error {
	switch {
	case unknown:
		return fmt.Errorf("%s on %s: %w: %w", r.name(), r.Partition, ErrUnknown, context.Cause(ctx))
	case errors.Is(context.Cause(ctx), context.Canceled), noQuorum(ctx):
		return context.Cause(ctx)
	}
	return nobody
}

// connection counts the connections that a client has had. What was sent on one keeps its order, and an owner
// decides what has a key in that order; on the next one an attempt may overtake one before it:
//
//	replace, on connection 1          held up in a server, and nobody answers
//	replace again, on connection 2    404: the item is not there
//	somebody creates the item
//	                                  the first attempt arrives, and replaces it
//
// It is 0 for what a handler of this process is asked, of which nothing is on its way when the
// handler has returned, and for what is not sent twice or may be done twice.
type connection uint64

// connection returns the present connection. Asked before an attempt it is the one that the
// attempt goes out on, or one before; asked behind the answer, that one or a later.
func (c *Client) connection(r *Request, h Handler) connection {
	if h != nil || !r.once() || !r.repeatable() {
		return 0
	}
	return present(c.nc)
}

// present returns the connection that nc has, or had last. It asks nc's lock.
func present(nc *nats.Conn) connection { return connection(nc.Stats().Reconnects + 1) }

// heldLease tells whether a process that did not decide a request, because it gives the partition
// up, held its lease when it had the request: then nobody else got it.
func heldLease(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && refused.RetryAfter > 0
}

// undecided tells whether an owner refused a request without deciding it, so without asking whether
// its idempotency key was there before; or no owner refused it, and the client could not send it.
func undecided(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	if !ok {
		return true
	}
	return slices.Contains([]Status{StatusTooManyRequests, StatusInternal, StatusUnavailable, StatusInsufficientDisk}, refused.Status)
}

const (
	// pauseMax bounds the pause between two attempts, pauseSoon that of those that begin within soon: a partition that is
	// handed over or split has an owner again after some ten milliseconds.
	pauseMax  = 200 * time.Millisecond
	pauseSoon = 20 * time.Millisecond
	soon      = 300 * time.Millisecond
	// lastAttempt is the least time that an attempt is begun with, after one to which
	// no owner answered, with the pause before it.
	lastAttempt = 2 * pauseMax
)

// noQuorum tells whether ctx has ended because JetStream has no quorum.
func noQuorum(ctx context.Context) bool {
	_, ok := errors.AsType[*NoQuorumError](context.Cause(ctx))
	return ok
}

// errNoAnswer says that a request went out and no answer came back.
var errNoAnswer = errors.New("no answer")

// attemptTime is how long one attempt waits for an answer: where a standby may be asked behind it, half of what is left
// at most. A query leaves time by itself, and half would be less than what it may take.
func (c *Client) attemptTime(ctx context.Context, r *Request, stale *staleRead) time.Duration {
	within := r.attemptTime(c.cfg.Timeout)
	if ends, ok := ctx.Deadline(); ok && stale != nil && !r.slow() {
		within = min(within, time.Until(ends)/2)
	}
	return within
}

// once asks h, or for so long over NATS without it.
func (c *Client) once(ctx context.Context, r *Request, h Handler, within time.Duration, silent *atomic.Bool) (*Response, error) {
	if h != nil {
		resp := h.Handle(ctx, r)
		if resp.Err != nil && resp.Err.Status == StatusUnknown {
			return nil, fmt.Errorf("%w: %s", errNoAnswer, resp.Err.Message)
		}
		return resp, nil
	}
	if c.cfg.ReadOnly && !r.Reads() {
		return nil, Refuse(StatusForbidden, "%s: the credentials of this connection are for reading only", r.name())
	}
	if c.nc.IsClosed() {
		return nil, fmt.Errorf("%s on %s: %w", r.name(), r.Partition, nats.ErrConnectionClosed) // nothing is sent
	}
	data := AppendRequest(make([]byte, 0, 1024), r)
	if limit := c.nc.MaxPayload(); int64(len(data)) > limit {
		return nil, Refuse(StatusTooLarge, "%s of %d bytes exceeds the %d bytes that the NATS server takes (max_payload)",
			r.name(), len(data), limit)
	}
	// An owner that was cut off answers nothing and refuses nothing. Only a shorter time for
	// the attempt leaves some for the next owner.
	attempt, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if r.mayRepeat() {
		sent := time.Now()
		looks := time.AfterFunc(lookFirst, func() { c.lookForOwner(attempt, r.Partition, r.key(), sent, silent, cancel) })
		defer looks.Stop()
	}
	msg, err := c.request(attempt, r, data)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, err
	case err != nil && c.nc.IsClosed() && r.once():
		// It may have been sent, and there is no connection to ask again on.
		return nil, fmt.Errorf("%s on %s: %w: %w", r.name(), r.Partition, ErrUnknown, err)
	case err != nil && c.nc.IsClosed():
		return nil, fmt.Errorf("%s on %s: %w", r.name(), r.Partition, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return DecodeResponse(msg.Data)
}
