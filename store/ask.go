package store

import (
	"context"
	"crypto/rand"
	"errors"
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
// answered, it tells the owner.
func (c *Client) ask(ctx context.Context, m *nats.Msg, r *Request) (*nats.Msg, error) {
	if r.Query == nil {
		return c.nc.RequestMsgWithContext(ctx, m)
	}
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
	return msg, err
}

const (
	// lookInterval is for how long an attempt is not answered before the client looks whether an owner is there, and how
	// often it looks from then on.
	lookInterval = 500 * time.Millisecond
	// lookTime is how long it waits for the answer of one.
	lookTime = lookInterval - 100*time.Millisecond
)

// lookForOwner calls gone when an attempt waits in vain, because its owner has died since, or another one has come: so the
// next attempt finds that one when it serves, and not when the time of this one is over. An owner that is slow answers the
// question for its state, beside all that it does.
//
//	nobody has the subject              the owner has gone with what it was asked
//	no answer, and later one            it stood still, or another has taken over
//	an answer, or none                  it is slow, or stands still: the attempt goes on
//
// silent tells what the last look has found, from one attempt to the next.
func (c *Client) lookForOwner(attempt context.Context, p feed.Partition, silent *atomic.Bool, gone func()) {
	r := &Request{Partition: p, Status: &StatusRequest{}}
	data := AppendRequest(nil, r)
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		looking, cancel := context.WithTimeout(attempt, lookTime)
		_, err := c.request(looking, r, data)
		cancel()
		switch {
		case attempt.Err() != nil:
			return
		case errors.Is(err, nats.ErrNoResponders), err == nil && silent.Load():
			silent.Store(false)
			gone()
			return
		}
		silent.Store(err != nil)
		select {
		case <-attempt.Done():
			return
		case <-tick.C:
		}
	}
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
