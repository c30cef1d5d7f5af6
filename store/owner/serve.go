package owner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	nc      *nats.Conn
	subs    []*nats.Subscription
	slots   chan struct{}
	closed  []chan struct{} // of each: no message comes any more
	answers sync.WaitGroup
	turns   *turns

	mu      sync.Mutex
	queries map[string]context.CancelFunc // under way, by the names that their clients gave them
	keys    map[uint64]int                // of writes under way: how many, by store.HashKey
}

func newSubscription(nc *nats.Conn) *subscription {
	return &subscription{nc: nc, slots: make(chan struct{}, remoteMax), turns: newTurns(), queries: map[string]context.CancelFunc{}, keys: map[uint64]int{}}
}

// subscribe serves p on its subjects until stop is called. A drain ends ctx and
// not the requests under way: the partition answers everybody before it stops.
func (s *Server) subscribe(ctx context.Context, p *Partition) (*subscription, error) {
	ctx = context.WithoutCancel(ctx)
	o := newSubscription(s.nc)
	now := time.Now()
	p.listens.Store(&now)
	for _, subject := range []string{store.RequestSubject(p.id), store.ReadSubject(p.id)} {
		readsOnly := subject == store.ReadSubject(p.id)
		sub, err := s.nc.Subscribe(subject, o.receive(ctx, func(ctx context.Context, m *nats.Msg) {
			s.answer(ctx, p, m, readsOnly, func(ctx context.Context, r *store.Request) *store.Response { return o.handle(ctx, r, p.Handle) })
		}))
		if err == nil {
			err = o.add(sub)
		}
		if err != nil {
			o.stop()
			return nil, fmt.Errorf("partition %s: subscribe: %w", p.id, err)
		}
	}
	p.remote.Store(o)
	return o, nil
}

// handle has a request answered, and keeps meanwhile that a write under a key is under way.
func (o *subscription) handle(ctx context.Context, r *store.Request, answer func(context.Context, *store.Request) *store.Response) *store.Response {
	if r.Transact == nil || r.Transact.IdempotencyKey == "" {
		return answer(ctx, r)
	}
	h := store.HashKey(r.Transact.IdempotencyKey)
	o.mu.Lock()
	o.keys[h]++
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.keys[h]--; o.keys[h] == 0 {
			delete(o.keys, h)
		}
	}()
	return answer(ctx, r)
}

// unanswered returns which writes under keys are under way; nil if some that have come wait until others are answered, so
// that nobody knows which.
func (o *subscription) unanswered() []uint64 {
	if waiting, _, err := o.subs[0].Pending(); err != nil || waiting > 0 {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.AppendSeq(make([]uint64, 0, len(o.keys)), maps.Keys(o.keys))
}

// add makes sub one of those that stop ends.
func (o *subscription) add(sub *nats.Subscription) error {
	closed := make(chan struct{})
	o.subs, o.closed = append(o.subs, sub), append(o.closed, closed)
	sub.SetClosedHandler(func(string) { close(closed) })
	return sub.SetPendingLimits(16*remoteMax, -1)
}

// receive returns what takes messages, each of which answer answers beside the others, with its turn in ctx.
func (o *subscription) receive(ctx context.Context, answer func(context.Context, *nats.Msg)) nats.MsgHandler {
	return func(m *nats.Msg) {
		if id := m.Header.Get(store.HeaderCancel); id != "" {
			o.cancel(id)
			return
		}
		// Blocks the subscription and not the server: what waits behind it stays in its
		// pending messages, which are bounded too.
		o.slots <- struct{}{}
		ctx, end := o.begin(ctx, m.Header.Get(store.HeaderQuery)) // before the message that ends it can come
		u := o.turns.take()
		o.answers.Go(func() {
			defer func() { <-o.slots }()
			defer end()
			defer u.pass()
			answer(context.WithValue(ctx, turnKey{}, u), m)
		})
	}
}

// turns keep the order in which messages came for those that need it. Each is answered by a goroutine of its own, and which
// of these runs first is chance, as where a process that was stopped for a while finds two attempts of one request:
//
//	replace, sent                            nobody answers
//	replace again, sent, and here first      404: the item is not there. It decides the request, for the client
//	                                         knows that nothing sent before is on its way (store.Client)
//	somebody creates the item
//	replace, which waited to be run          replaces it
//
// So what has an idempotency key is queued in the order in which it came. What has none passes as soon as that is known.
type turns struct {
	mu      sync.Mutex
	next    uint64                   // message
	first   uint64                   // that has not passed; all before it have
	passed  map[uint64]bool          // which behind that have
	waiting map[uint64]chan struct{} // closed when all before it have passed
}

// turn is the place of a message among those that came. A nil turn is that of who asks in this process: it has passed.
type turn struct {
	of     *turns
	n      uint64
	passed bool // guarded by of.mu
}

type turnKey struct{}

func turnOf(ctx context.Context) *turn {
	u, _ := ctx.Value(turnKey{}).(*turn)
	return u
}

func newTurns() *turns {
	return &turns{passed: map[uint64]bool{}, waiting: map[uint64]chan struct{}{}}
}

func (t *turns) take() *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	return &turn{of: t, n: t.next - 1}
}

// await waits until all that came before have passed. It returns false if ctx ended first.
func (u *turn) await(ctx context.Context) bool {
	if u == nil {
		return true
	}
	u.of.mu.Lock()
	if u.passed || u.of.first == u.n {
		u.of.mu.Unlock()
		return true
	}
	due := make(chan struct{})
	u.of.waiting[u.n] = due
	u.of.mu.Unlock()
	select {
	case <-due:
		return true
	case <-ctx.Done():
		return false
	}
}

// pass lets those that came later go on. It may be called again.
func (u *turn) pass() {
	if u == nil {
		return
	}
	t := u.of
	t.mu.Lock()
	defer t.mu.Unlock()
	if u.passed {
		return
	}
	u.passed, t.passed[u.n] = true, true
	delete(t.waiting, u.n)
	for t.passed[t.first] {
		delete(t.passed, t.first)
		t.first++
	}
	if due := t.waiting[t.first]; due != nil {
		delete(t.waiting, t.first)
		close(due)
	}
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
//
// The client of NATS tells each server that it reconnects to of all its subscriptions, and of one that drains meanwhile never
// again that it has ended. That server believes that somebody listens, and takes what comes between this owner and the next
// one for delivered: nobody is told that there is nobody. So a subscription ends at once when the connection is lost under it.
// Who had asked and is not answered asks again, as everybody who asked on that connection.
func (o *subscription) stop() {
	lost := o.nc.StatusChanged(nats.RECONNECTING) // before it drains
	defer o.nc.RemoveStatusListener(lost)
	for _, sub := range o.subs {
		_ = sub.Drain() // fails only where the connection is closed, and then nothing is on its way
	}
	o.drained(lost)
	for _, sub := range o.subs {
		_ = sub.Unsubscribe() // of one that has drained there is nothing to end
	}
	o.answers.Wait()
}

// drained waits until no message comes any more. It ends earlier where the connection is lost, and after drainMax.
func (o *subscription) drained(lost <-chan nats.Status) {
	if o.nc.IsReconnecting() {
		return
	}
	late := time.NewTimer(drainMax)
	defer late.Stop()
	for _, closed := range o.closed {
		select {
		case <-closed:
		case <-lost:
			return
		case <-late.C:
			return
		}
	}
}

// drainMax bounds the wait for messages that are on their way while a
// subscription ends.
const drainMax = 2 * time.Second

// answer handles one message. A request that cannot be decoded is refused. An unknown
// outcome gets no answer, because that is what silence means. A reader whose reply subject
// is no inbox gets none either: it could have the answer written to a subject on which it
// may not publish.
func (s *Server) answer(ctx context.Context, p *Partition, m *nats.Msg, readsOnly bool, handle func(context.Context, *store.Request) *store.Response) {
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
		if r.Transact == nil || r.Transact.IdempotencyKey == "" || !r.Writes() {
			turnOf(ctx).pass()
		}
		resp = handle(ctx, r)
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

// copyRight is the right of a copy to answer as what it is, of a moment ago. It ends before an owner of this process
// writes to the copy's engine, which would then be newer than what the copy knows of it.
type copyRight struct {
	noRight
	ends context.Context //nolint:containedctx // the right is what Trust hands out
}

func (r copyRight) Trust() context.Context { return r.ends }
func (r copyRight) Valid() bool            { return r.ends.Err() == nil }

// readCopy answers reads from a copy that follows its log; see store.StandbyHandler.
type readCopy struct {
	s     *Server
	p     *Partition
	fresh func() bool // what it holds is of a moment ago
}

// HandleAtLeast answers from the last commit that was applied. Nobody waits for an answer to end: one whose right ends
// under it is refused, as an owner's is.
func (c *readCopy) HandleAtLeast(ctx context.Context, r *store.Request, lsn feed.LSN) *store.Response {
	h := c.s.enter()
	if h == nil {
		return c.refuse("is made anew")
	}
	defer h.users.Done() // the engine is not made anew under it
	if !r.Stale() {
		return c.refuse("does not answer this, only the owner does")
	}
	if s := c.p.state.Load(); s.schema == nil || s.lsn < lsn {
		return c.refuse("has not come to LSN %d yet", lsn)
	}
	if lsn == 0 && !c.fresh() {
		return c.refuse("is far behind the end of its log")
	}
	resp := c.p.Handle(ctx, r)
	switch {
	case resp.Err == nil, resp.Err.Status == store.StatusNotFound:
		meters.standbyReads.Add(ctx, 1)
	case resp.Err.Status == store.StatusGone:
		return c.refuse("has ended")
	}
	return resp
}

// refuse is the answer of a copy that has none. It is not StatusGone: that is of owners, and may stay unsaid.
func (c *readCopy) refuse(format string, args ...any) *store.Response {
	return &store.Response{Err: store.Refuse(store.StatusUnavailable, "the copy of partition %s that this process (%s) keeps "+format, append([]any{c.p.id, c.p.owner}, args...)...)}
}

// serveCopy has a copy answer reads, until stop is called. From then on it has no right, and who is being answered is
// refused: an owner who is about to open the partition does not wait for him.
func (s *Server) serveCopy(ctx context.Context, p *Partition, fresh func() bool) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	p.lease, p.closed = copyRight{ends: ctx}, true // nothing is decided here
	c := &readCopy{s, p, fresh}
	o := newSubscription(s.nc)
	sub, err := s.nc.QueueSubscribe(store.StandbySubject(p.id), "standbys", o.receive(ctx, func(ctx context.Context, m *nats.Msg) {
		s.answer(ctx, p, m, true, func(ctx context.Context, r *store.Request) *store.Response {
			lsn, err := atLeast(m)
			if err != nil {
				return &store.Response{Err: store.Refuse(store.StatusBadRequest, "%v", err)}
			}
			return c.HandleAtLeast(ctx, r, lsn)
		})
	}))
	if err == nil {
		err = o.add(sub)
	}
	if s.cfg.Local != nil {
		s.cfg.Local.AddStandby(p.id, c)
	}
	stop = func() {
		if s.cfg.Local != nil {
			s.cfg.Local.RemoveStandby(p.id, c)
		}
		cancel()
		if sub != nil {
			_ = sub.Unsubscribe() // the connection is closed
		}
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("partition %s: subscribe: %w", p.id, err)
	}
	return stop, nil
}

// atLeast returns the LSN that a copy must hold to answer m.
func atLeast(m *nats.Msg) (feed.LSN, error) {
	text := m.Header.Get(store.HeaderAtLeast)
	if text == "" {
		return 0, nil
	}
	lsn, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("header %s is %q, want an LSN in decimal", store.HeaderAtLeast, text)
	}
	return feed.LSN(lsn), nil
}

// noRight is the right to a partition of a process that only follows its log: none.
type noRight struct{}

func (noRight) Trust() context.Context { return context.Background() }
func (noRight) Valid() bool            { return false }
func (noRight) Lasts() bool            { return false }
func (noRight) Epoch() uint64          { return 0 }
func (noRight) Progress()              {}

func (noRight) Settle(context.Context, bool) error { return nil }
func (noRight) Now() time.Duration                 { return 0 }
func (noRight) Extend(time.Duration)               {}

func (noRight) Use(context.Context) error         { return errLeaseLost }
func (noRight) LeaveUnused(context.Context) error { return nil }
func (noRight) User() (node string, since uint64) { return "", 0 }

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
