package store

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed"
)

// The headers by which a client ends a query whose answer it no longer waits for; see
// WIRE.md. An owner that does not know them works to the end.
const (
	// HeaderQuery names a query, in the message that asks it.
	HeaderQuery = "Millrace-Query"
	// HeaderCancel names the query that is to end, in a message without a body.
	HeaderCancel = "Millrace-Cancel"
)

// ask sends m, which is r encoded, and waits for its answer. If ctx ends before a query is
// answered, it tells the owner. The error is errLost if the connection was lost while it waited, there is
// another one, and somebody asks again.
func (c *Client) ask(ctx context.Context, m *nats.Msg, r *Request) (*nats.Msg, error) {
	if r.mayRepeat() {
		waiting, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer c.link.watch(c.nc, func() { cancel(errLost) })()
		ctx = waiting
	}
	if r.Query != nil {
		return c.askQuery(ctx, m)
	}
	msg, err := c.nc.RequestMsgWithContext(ctx, m)
	return msg, orLost(ctx, err)
}

// askQuery is ask of a query.
func (c *Client) askQuery(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	id := rand.Text()
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Header.Set(HeaderQuery, id)
	msg, err := c.nc.RequestMsgWithContext(ctx, m)
	if ctx.Err() != nil {
		// Whether it arrives does not matter much: a query ends by itself.
		_ = c.nc.PublishMsg(&nats.Msg{Subject: m.Subject, Header: nats.Header{HeaderCancel: {id}}})
	}
	return msg, orLost(ctx, err)
}

// errLost says that the connection was lost on which a request went out.
var errLost = errors.New("the connection was lost meanwhile")

// orLost returns errLost if ctx has ended for it, else err.
func orLost(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errLost) {
		return errLost
	}
	return err
}

// link tells requests that wait for an answer when the connection is back on which they went out. A loss takes along
// what was on its way, the request or its answer, and nats.go goes on waiting:
//
//	sent on connection 1, which is lost      told when connection 2 is there
//	sent meanwhile                           goes out on connection 2, which nats.go keeps it for
//
// Its goroutine lives as long as the connection.
type link struct {
	follow sync.Once

	mu      sync.Mutex
	waiting map[*sent]struct{}
}

// sent is a request that went out.
type sent struct {
	on   connection
	lost func()
}

// watch has lost called when another connection has taken the place of the one on which a request is sent from now on.
// stop ends that.
func (l *link) watch(nc *nats.Conn, lost func()) (stop func()) {
	l.follow.Do(func() {
		l.waiting = map[*sent]struct{}{}
		changed := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
		if nc.IsClosed() { // of which nobody may have told changed
			nc.RemoveStatusListener(changed)
			return
		}
		go l.run(nc, changed)
	})
	s := &sent{on: present(nc), lost: lost}
	if nc.IsReconnecting() {
		s.on++
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[s] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.waiting, s)
	}
}

// run tells requests of lost connections, until nc is closed.
func (l *link) run(nc *nats.Conn, changed chan nats.Status) {
	defer nc.RemoveStatusListener(changed)
	for status := range changed {
		if status == nats.CLOSED {
			return
		}
		now := present(nc)
		l.mu.Lock()
		for s := range l.waiting {
			if s.on < now {
				delete(l.waiting, s)
				s.lost()
			}
		}
		l.mu.Unlock()
	}
}

const (
	// lookFirst is for how long an attempt is not answered before the client looks whether an owner is there, and
	// lookInterval how often it looks from then on.
	lookFirst    = 100 * time.Millisecond
	lookInterval = 500 * time.Millisecond
	// lookTime is how long it waits for the answer of one.
	lookTime = lookInterval - 100*time.Millisecond
	// routeTime is what NATS servers may take to tell each other who has a subject now.
	routeTime = 100 * time.Millisecond
)

// lookForOwner calls gone when an attempt that was sent at that time waits in vain, because its owner has died since, or
// another one has come, or NATS has lost it: so the next attempt finds who serves then, and not when the time of this one is
// over. An owner that is slow answers the question for its state, beside all that it does.
//
//	nobody has the subject                 the owner has gone with what it was asked
//	one that took requests later only,     the one before it had the subject no more when the request came to its
//	or hardly before                       server, by a route from another that did not know it yet: nobody has it
//	one that knows nothing of the key      the request, or its answer, went with a NATS server that has ended
//	no answer, and later one               it stood still, or another has taken over
//	an answer, or none                     it is slow, or stands still: the attempt goes on
//
// key is the idempotency key of a write; without one nobody knows what an owner has of it. silent tells what the last look
// has found, from one attempt to the next.
func (c *Client) lookForOwner(attempt context.Context, p feed.Partition, key string, sent time.Time, silent *atomic.Bool, gone func()) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		// All attempts that wait for one owner look together: a stall of it would meet as many questions as writes else.
		looking := c.looks.DoChan(p.String(), func() (any, error) { return c.look(context.WithoutCancel(attempt), p) })
		select {
		case <-attempt.Done():
			return
		case found := <-looking:
			if attempt.Err() != nil {
				return
			}
			seen, _ := found.Val.(look)
			if errors.Is(found.Err, nats.ErrNoResponders) || found.Err == nil && (silent.Load() || seen.misses(key, sent)) {
				silent.Store(false)
				gone()
				return
			}
			silent.Store(found.Err != nil)
		}
		select {
		case <-attempt.Done():
			return
		case <-tick.C:
		}
	}
}

// look is what a question for the state of an owner has found.
type look struct {
	asked      time.Time
	since      time.Time // the owner has taken requests since then, or later; zero: it does not tell
	unanswered []uint64  // see PartitionStatus
}

// misses tells whether a request that was sent at that time will not be answered.
func (l look) misses(key string, sent time.Time) bool {
	if l.since.After(sent.Add(-routeTime)) {
		return true
	}
	// What was sent before the question has come before it, if at all: both go the same way. Where the way has changed
	// meanwhile, and it comes later, it is done once all the same.
	return key != "" && l.unanswered != nil && l.asked.After(sent) && !slices.Contains(l.unanswered, HashKey(key))
}

// look asks the owner of p for its state. ctx does not end with one of the attempts: others may still wait.
func (c *Client) look(ctx context.Context, p feed.Partition) (look, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	r := &Request{Partition: p, Status: &StatusRequest{}}
	found := look{asked: time.Now()}
	msg, err := c.request(ctx, r, AppendRequest(nil, r))
	if err != nil {
		return found, err
	}
	resp, err := DecodeResponse(msg.Data)
	if err != nil || resp.Status == nil || resp.Status.Listens == 0 {
		return found, nil // it is there, whatever it says
	}
	found.since, found.unanswered = found.asked.Add(-resp.Status.Listens), resp.Status.Unanswered
	return found, nil
}

// request sends a request to the subject of its kind.
func (c *Client) request(ctx context.Context, r *Request, data []byte) (*nats.Msg, error) {
	if !r.Reads() {
		return c.ask(ctx, &nats.Msg{Subject: RequestSubject(r.Partition), Data: data}, r)
	}
	msg, err := c.ask(ctx, &nats.Msg{Subject: ReadSubject(r.Partition), Data: data}, r)
	if errors.Is(err, nats.ErrNoResponders) && !c.cfg.ReadOnly {
		// An owner of an earlier version answers on the one subject only.
		return c.ask(ctx, &nats.Msg{Subject: RequestSubject(r.Partition), Data: data}, r)
	}
	return msg, err
}
