package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
)

// A connection that is lost takes along the answers that are on their way, and nobody says so to who waits for them.
func TestAsk_KnowsThatItsConnectionWasLost(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		t.Fatal(err)
	}
	write := Transact{Key: key, Ops: []Operation{{Kind: OpDelete, ID: "1"}}}
	keyed := write
	keyed.IdempotencyKey = "once"
	for name, c := range map[string]struct {
		r    Request
		lost bool
	}{
		"a read":                {Request{Read: &ReadItems{}}, true},
		"a query":               {Request{Query: &Query{}}, true},
		"a write under a key":   {Request{Transact: &keyed}, true},
		"a write without a key": {Request{Transact: &write}, false}, // nobody asks again, and the answer may yet come
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := natstest.NewLine(server)
			nc, again := l.Connect(t)
			subject := "asked." + nats.NewInbox()
			cancelled := make(chan struct{}, 1)
			if _, err := server.NC.Subscribe(subject, func(m *nats.Msg) {
				if m.Header.Get(HeaderCancel) != "" {
					cancelled <- struct{}{}
					return
				}
				l.Cut(t)
				<-again
				if !c.lost {
					// The server has its subscriptions again then, and an answer before would be for nobody.
					if err := errors.Join(nc.Flush(), m.Respond(nil)); err != nil {
						t.Error(err)
					}
				}
			}); err != nil {
				t.Fatal(err)
			}
			if err := server.NC.Flush(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := (&Client{nc: nc}).ask(ctx, &nats.Msg{Subject: subject}, &c.r)
			if c.lost != errors.Is(err, errLost) || !c.lost && err != nil {
				t.Fatal(err)
			}
			if c.r.Query != nil {
				select {
				case <-cancelled: // whoever worked for it need not go on
				case <-ctx.Done():
					t.Error("the owner was not told")
				}
			}
		})
	}
}

// What is sent while there is no connection waits for the next one, and is not lost with the one before.
func TestAsk_SentBetweenTwoConnectionsIsNotLost(t *testing.T) {
	t.Parallel()
	l := natstest.NewLine(natstest.Start(t))
	nc, _ := l.Connect(t)
	c := &Client{nc: nc}
	p := feed.Partition{Container: "c", Number: 1}
	asked := 0
	if _, err := l.Server.NC.Subscribe(ReadSubject(p), func(m *nats.Msg) {
		if asked++; asked > 1 {
			return // nobody would know that it is the second
		}
		if err := m.Respond(nil); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := l.Server.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	lost := nc.StatusChanged(nats.RECONNECTING)
	defer nc.RemoveStatusListener(lost)
	l.Shut(t)
	<-lost
	answered := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		_, err := c.ask(ctx, &nats.Msg{Subject: ReadSubject(p)}, &Request{Read: &ReadItems{}})
		answered <- err
	}()
	for nc.Stats().OutMsgs == 0 { // it is with nats.go
		select {
		case err := <-answered:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	l.Open()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
