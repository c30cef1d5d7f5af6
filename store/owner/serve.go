package owner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/guard"
	"github.com/millrace/millrace/store"
)

// remoteMax bounds the requests of one partition that came over NATS and are
// being answered. Those beyond it wait in the subscription.
const remoteMax = 1024

// subscription answers a partition's requests that come over NATS: all on one
// subject, those that read on another.
type subscription struct {
	subs    []*nats.Subscription
	slots   chan struct{}
	closed  []chan struct{} // of each: no message comes any more
	answers sync.WaitGroup

	mu      sync.Mutex
	queries map[string]context.CancelFunc // under way, by the names that their clients gave them
}

// subscribe serves p on its subjects until stop is called. A drain ends ctx and
// not the requests under way: the partition answers everybody before it stops.
func (s *Server) subscribe(ctx context.Context, p *Partition) (*subscription, error) {
	ctx = context.WithoutCancel(ctx)
	o := &subscription{slots: make(chan struct{}, remoteMax), queries: map[string]context.CancelFunc{}}
	for _, subject := range []string{store.RequestSubject(p.id), store.ReadSubject(p.id)} {
		readsOnly := subject == store.ReadSubject(p.id)
		sub, err := s.nc.Subscribe(subject, func(m *nats.Msg) {
			if id := m.Header.Get(store.HeaderCancel); id != "" {
				o.cancel(id)
				return
			}
			// Blocks the subscription and not the server: what waits behind it stays in its
			// pending messages, which are bounded too.
			o.slots <- struct{}{}
			ctx, end := o.begin(ctx, m.Header.Get(store.HeaderQuery)) // before the message that ends it can come
			o.answers.Go(func() {
				defer func() { <-o.slots }()
				defer end()
				s.answer(ctx, p, m, readsOnly)
			})
		})
		if err != nil {
			o.stop()
			return nil, fmt.Errorf("partition %s: subscribe: %w", p.id, err)
		}
		closed := make(chan struct{})
		o.subs, o.closed = append(o.subs, sub), append(o.closed, closed)
		sub.SetClosedHandler(func(string) { close(closed) })
		if err := sub.SetPendingLimits(16*remoteMax, -1); err != nil {
			o.stop()
			return nil, fmt.Errorf("partition %s: subscribe: %w", p.id, err)
		}
	}
	return o, nil
}

// begin returns the context of a request, which ends when its client cancels it by id.
func (o *subscription) begin(ctx context.Context, id string) (context.Context, func()) {
	if id == "" {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queries[id] = cancel
	return ctx, func() {
		o.mu.Lock()
		delete(o.queries, id)
		o.mu.Unlock()
		cancel()
	}
}

// cancel ends the query of that id, if it is under way.
func (o *subscription) cancel(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if cancel := o.queries[id]; cancel != nil {
		cancel()
	}
}

// stop ends the subscription and waits until what has come already is answered:
// by a partition that has stopped, with "not the owner", so that the client asks
// the next one.
func (o *subscription) stop() {
	var draining []chan struct{}
	for i, sub := range o.subs {
		if err := sub.Drain(); err == nil { // an error means that the connection is closed
			draining = append(draining, o.closed[i])
		}
	}
	late := time.After(drainMax)
	for _, closed := range draining {
		select {
		case <-closed:
			continue
		case <-late:
		}
		break // the time is that of all of them
	}
	o.answers.Wait()
}

// drainMax bounds the wait for messages that are on their way while a
// subscription ends.
const drainMax = 2 * time.Second

// answer handles one message. A request that cannot be decoded is refused. An unknown
// outcome gets no answer, because that is what silence means. A reader whose reply subject
// is no inbox gets none either: it could have the answer written to a subject on which it
// may not publish.
func (s *Server) answer(ctx context.Context, p *Partition, m *nats.Msg, readsOnly bool) {
	if readsOnly && !guard.IsInbox(m.Reply) {
		return
	}
	decode := store.DecodeRequest
	if readsOnly {
		decode = store.DecodeRead
	}
	r, err := decode(m.Data)
	var resp *store.Response
	switch {
	case err != nil:
		refusal, ok := errors.AsType[*store.Error](err)
		if !ok {
			refusal = store.Refuse(store.StatusBadRequest, "%v", err)
		}
		resp = &store.Response{Err: refusal}
		r = &store.Request{Status: &store.StatusRequest{}}
	case r.Partition != p.id:
		resp = &store.Response{Err: store.Refuse(store.StatusBadRequest, "request for partition %s came to %s", r.Partition, p.id)}
	default:
		resp = p.Handle(ctx, r)
	}
	if resp.Err != nil && resp.Err.Status == store.StatusUnknown {
		return
	}
	if resp.Err != nil && resp.Err.Status == store.StatusGone && resp.Err.RetryAfter == 0 && r.Transact != nil && r.Transact.IdempotencyKey == "" {
		return // the next owner may have got this message too: only its answer counts
	}
	data := store.EncodeResponse(resp, r)
	if limit := s.nc.MaxPayload(); int64(len(data)) > limit {
		data = store.EncodeResponse(&store.Response{Err: store.Refuse(store.StatusTooLarge,
			"the answer has %d bytes, the NATS server takes %d; ask for less at once", len(data), limit)}, r)
	}
	if err := m.Respond(data); err != nil && !s.nc.IsClosed() {
		p.log.Warn("an answer could not be sent", "error", err)
	}
}

// noLog stands for a stream that is gone: nothing can be read or appended.
type noLog struct {
	id        feed.LogID
	trimmable // nobody trims what is not there
}

func (l noLog) ID() feed.LogID { return l.id }
func (noLog) Stream() string   { return "" }
func (noLog) Close()           {}

func (noLog) Append(context.Context, feed.LSN, feed.CommitID, []byte) (feed.LSN, error) {
	return 0, feed.ErrNoLog
}
func (noLog) Read(context.Context, feed.LSN) (*feed.Commit, error) { return nil, feed.ErrNoLog }
func (noLog) Bounds(context.Context) (first, last feed.LSN, err error) {
	return 0, 0, feed.ErrNoLog
}

func (noLog) Shape(context.Context) (*feed.Shape, error) { return nil, feed.ErrNoLog }

func (noLog) Tail(context.Context, feed.LSN, feed.TailOptions) (*feed.Tail, error) {
	return nil, feed.ErrNoLog
}
