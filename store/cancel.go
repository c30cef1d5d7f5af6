package store

import (
	"context"
	"crypto/rand"

	"github.com/nats-io/nats.go"
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
