package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/feed"
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
	// ReadOnly says that the connection may only read. Then nothing is asked on the
	// subject of writes; a request that writes is refused here.
	ReadOnly bool
}

// Client asks the owners of physical partitions, wherever they are: directly in
// the same process, else over NATS request/reply on the partition's subject, so
// no routing table exists anywhere. Safe for concurrent use.
//
// It asks again by itself only where nothing can have happened: nobody answered
// the subject, or who answered no longer owns the partition. While somebody answers
// so, it asks for ClientConfig.HandoverWait and no longer: the *NoOwnerError is as good
// an answer after that as at the deadline, and nothing was changed. A write whose
// answer does not come is ErrUnknown, unless it has an idempotency key; then it
// is sent again until the deadline, or until it is refused undecided, which is ErrUnknown too.
type Client struct {
	nc      *nats.Conn
	catalog *Catalog
	cfg     ClientConfig
	logs    logs
	quorum  *quorum
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
}

// Add makes h answer for p.
func (l *Local) Add(p feed.Partition, h Handler) { l.handlers.Store(p, h) }

// Remove ends what Add began, unless another handler has taken its place.
func (l *Local) Remove(p feed.Partition, h Handler) { l.handlers.CompareAndDelete(p, h) }

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
	ctx, cancel := c.bound(ctx)
	defer cancel()
	ctx, unwatch := c.quorum.watch(ctx, r.Partition)
	defer unwatch()
	ctx, span := tracer.Start(ctx, r.spanName(), asClient...)
	defer span.End()
	if span.IsRecording() {
		span.SetAttributes(attribute.String("millrace.partition", r.Partition.String()))
	}
	r.TraceParent, r.TraceState = TraceContext(ctx)
	resp, err := c.send(ctx, r)
	if err != nil && span.IsRecording() {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
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

func (c *Client) send(ctx context.Context, r *Request) (*Response, error) {
	start := time.Now()
	pause := 2 * time.Millisecond
	unknown := false  // an attempt went unanswered and may have been carried out
	var leaving error // what a process that gives the partition up has answered since then
	var since time.Time
	for {
		h := c.cfg.Local.find(r.Partition)
		if h == nil {
			// From here on every attempt has the key, whoever gets it.
			r = r.keyed()
		}
		resp, err := c.once(ctx, r, h)
		if err == nil && resp.Err != nil {
			err = resp.Err
		}
		switch {
		case err == nil:
			return resp, nil
		case errors.Is(err, ErrNotOwner), errors.Is(err, nats.ErrNoResponders):
			// Nothing happened; the owner is on its way.
			if !errors.Is(err, ErrNotOwner) {
				leaving = nil
				break
			}
			if leaving == nil {
				since = time.Now()
			}
			// What went unanswered before may have been carried out: only the next owner knows.
			if leaving = err; !unknown && time.Since(since) >= c.cfg.HandoverWait {
				return nil, &NoOwnerError{r.Partition, time.Since(start), leaving}
			}
		case errors.Is(err, errNoAnswer) && r.repeatable() && ctx.Err() == nil:
			unknown = unknown || r.once()
			// Asked twice is answered alike.
		case errors.Is(err, errNoAnswer) && noQuorum(ctx) && !r.once():
			return nil, context.Cause(ctx)
		case errors.Is(err, errNoAnswer):
			if noQuorum(ctx) {
				err = context.Cause(ctx)
			}
			return nil, fmt.Errorf("%s on %s: %w: %w", r.name(), r.Partition, ErrUnknown, err)
		case unknown && undecided(err):
			// It changed nothing; what went unanswered before may have, and its key was not looked
			// up. So the refusal is told as words only: errors.Is must not find it.
			return nil, fmt.Errorf("%s on %s: %w: no answer at first, and then: %s", r.name(), r.Partition, ErrUnknown, err.Error())
		default:
			return nil, err
		}
		if ends, ok := ctx.Deadline(); ok && !unknown && time.Until(ends) < lastAttempt {
			// One more would be cut off, and then nobody could say that nothing happened.
			return nil, &NoOwnerError{r.Partition, time.Since(start), leaving}
		}
		select {
		case <-ctx.Done():
			if unknown {
				return nil, fmt.Errorf("%s on %s: %w: %w", r.name(), r.Partition, ErrUnknown, context.Cause(ctx))
			}
			if errors.Is(context.Cause(ctx), context.Canceled) || noQuorum(ctx) {
				return nil, context.Cause(ctx)
			}
			return nil, &NoOwnerError{r.Partition, time.Since(start), leaving}
		case <-time.After(pause/2 + rand.N(pause)):
			pause = min(2*pause, pauseMax)
		}
	}
}

// undecided tells whether an owner refused a request without deciding it, so without asking whether
// its idempotency key was there before.
func undecided(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	if !ok {
		return false
	}
	return slices.Contains([]Status{StatusTooManyRequests, StatusInternal, StatusUnavailable, StatusInsufficientDisk}, refused.Status)
}

const (
	// pauseMax bounds the pause between two attempts.
	pauseMax = 200 * time.Millisecond
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

// once asks h, or over NATS without it.
func (c *Client) once(ctx context.Context, r *Request, h Handler) (*Response, error) {
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
	data := AppendRequest(make([]byte, 0, 1024), r)
	if limit := c.nc.MaxPayload(); int64(len(data)) > limit {
		return nil, Refuse(StatusTooLarge, "%s of %d bytes exceeds the %d bytes that the NATS server takes (max_payload)",
			r.name(), len(data), limit)
	}
	// An owner that was cut off answers nothing and refuses nothing. Only a shorter time for
	// the attempt leaves some for the next owner.
	attempt, cancel := context.WithTimeout(ctx, r.patience(c.cfg.Timeout))
	defer cancel()
	msg, err := c.request(attempt, r, data)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, err
	case err != nil && c.nc.IsClosed():
		return nil, fmt.Errorf("%s on %s: %w", r.name(), r.Partition, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return DecodeResponse(msg.Data)
}

// request sends a request to the subject of its kind.
func (c *Client) request(ctx context.Context, r *Request, data []byte) (*nats.Msg, error) {
	if !r.Reads() {
		return c.ask(ctx, RequestSubject(r.Partition), r, data)
	}
	msg, err := c.ask(ctx, ReadSubject(r.Partition), r, data)
	if errors.Is(err, nats.ErrNoResponders) && !c.cfg.ReadOnly {
		// An owner of an earlier version answers on the one subject only.
		return c.ask(ctx, RequestSubject(r.Partition), r, data)
	}
	return msg, err
}
