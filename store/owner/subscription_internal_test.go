package owner

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

// Where an owner ends while its connection is lost, the server that it comes back to must not take it for one who listens:
// what is asked until there is another owner would get neither an answer nor the word that there is nobody, and its client
// would wait for two seconds.
func TestStop_LeavesNobodyWhoListensBehindALostConnection(t *testing.T) {
	const subject = "asked"
	server, err := natsd.Open(t.Context(), natsd.Config{Port: natsd.PortRandom, User: "u", Password: "p", Log: slog.New(slog.DiscardHandler), Dir: t.TempDir(), SyncInterval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	nc, asker := connect(t, server), connect(t, server)
	o := newSubscription(nc)
	sub, err := nc.Subscribe(subject, o.receive(t.Context(), func(_ context.Context, m *nats.Msg) { _ = m.Respond(nil) }))
	if err == nil {
		err = o.add(sub)
	}
	if err != nil {
		t.Fatal(err)
	}
	lose(t, nc, server)
	o.stop()
	for _, c := range []*nats.Conn{nc, asker} {
		for !c.IsConnected() {
			<-time.After(time.Millisecond)
		}
		if err := c.Flush(); err != nil { // what it has told the server has arrived
			t.Fatal(err)
		}
	}
	if _, err := asker.Request(subject, nil, 10*time.Second); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("who asks is told %v, want %v", err, nats.ErrNoResponders)
	}
}

// lose lets a server start anew, and returns when nc knows that it has lost it.
func lose(t *testing.T, nc *nats.Conn, server *natsd.Server) {
	t.Helper()
	lost := nc.StatusChanged(nats.RECONNECTING)
	defer nc.RemoveStatusListener(lost)
	reopened := make(chan error, 1)
	go func() { reopened <- server.Reopen(t.Context()) }()
	<-lost
	if err := <-reopened; err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, server *natsd.Server) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(server.ClientURL(), nats.UserInfo("u", "p"), nats.MaxReconnects(-1), nats.ReconnectWait(500*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// TestUnanswered_TellsWhichKeysAreUnderWay: a client that is told that its key is not among them asks again.
func TestUnanswered_TellsWhichKeysAreUnderWay(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).NC
	o := newSubscription(nc)
	hold := make(chan struct{})
	sub, err := nc.Subscribe("requests", func(*nats.Msg) { <-hold })
	if err != nil {
		t.Fatal(err)
	}
	if err := o.add(sub); err != nil {
		t.Fatal(err)
	}
	defer o.stop()
	request := func(key string) *store.Request {
		return &store.Request{Transact: &store.Transact{IdempotencyKey: key}}
	}
	is := func(keys ...string) {
		t.Helper()
		var want []uint64
		for _, k := range keys {
			want = append(want, store.HashKey(k))
		}
		got := o.unanswered()
		slices.Sort(got)
		slices.Sort(want)
		if got == nil || !slices.Equal(got, want) {
			t.Errorf("%v are under way, want those of %v", got, keys)
		}
	}
	is()
	o.handle(t.Context(), request("a"), func(context.Context, *store.Request) *store.Response {
		is("a")
		for _, again := range []string{"a", "b", ""} {
			o.handle(t.Context(), request(again), func(context.Context, *store.Request) *store.Response {
				is(slices.Compact([]string{"a", cmp.Or(again, "a")})...)
				return nil
			})
		}
		is("a")
		return nil
	})
	is()
	if err := nc.Publish("requests", nil); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error { return poll.Unless(o.unanswered() == nil, "a request that waits is not noticed") })
	close(hold)
	poll.Until(t, func() error { return poll.Unless(o.unanswered() != nil, "nobody waits, and that is not told") })
}
