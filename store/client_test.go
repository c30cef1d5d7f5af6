package store_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/store"
)

// answers is an owner that answers one after the other.
type answers []*store.Error

func (a *answers) Handle(context.Context, *store.Request) *store.Response {
	next := (*a)[0]
	*a = (*a)[1:]
	return &store.Response{Err: next}
}

// A refusal says that nothing happened. It says so of the attempt that was refused, not of
// one before it that nobody answered.
func TestI2_ARefusalDoesNotSpeakForAnAttemptThatWentUnanswered(t *testing.T) {
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		t.Fatal(err)
	}
	unanswered := store.Refuse(store.StatusUnknown, "the outcome was not learned")
	for _, status := range []store.Status{store.StatusUnavailable, store.StatusTooManyRequests, store.StatusInsufficientDisk, store.StatusInternal} {
		for name, c := range map[string]struct {
			answers answers
			unknown bool
		}{
			"first":      {answers{store.Refuse(status, "refused")}, false},
			"unanswered": {answers{unanswered, store.Refuse(status, "refused")}, true},
		} {
			p := feed.Partition{Container: "aaaaaaaa"}
			local := &store.Local{}
			local.Add(p, &c.answers)
			client := store.NewClient(nil, nil, store.ClientConfig{Local: local})
			_, err := client.Do(t.Context(), &store.Request{Partition: p, Transact: &store.Transact{
				Key: key, IdempotencyKey: "once", Ops: []store.Operation{{Kind: store.OpCreate, Body: []byte(`{"id":"1"}`)}},
			}})
			refused := errors.Is(err, &store.Error{Status: status})
			if errors.Is(err, store.ErrUnknown) != c.unknown || refused == c.unknown {
				t.Errorf("%d, %s: %v", status, name, err)
			}
		}
	}
}

// Messages keep their order on one connection. An attempt that went unanswered on another one
// may yet arrive, and be carried out behind the refusal of the next.
func TestI2_ARefusalDoesNotSpeakForAnAttemptOnAnotherConnection(t *testing.T) {
	server := natstest.Start(t)
	catalog := catalogOf(t, server.JS)
	for name, c := range map[string]struct {
		broken  bool
		unknown bool
	}{
		"one connection":  {false, false},
		"two connections": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // an attempt takes two seconds
			p := feed.Partition{Container: "aaaaaaaa", Number: 1}
			if c.broken {
				p.Number = 2
			}
			again := make(chan struct{}, 1)
			nc := server.Connect(t, nats.ReconnectHandler(func(*nats.Conn) { again <- struct{}{} }))
			attempts := 0
			_, err := server.NC.Subscribe(store.RequestSubject(p), func(m *nats.Msg) {
				attempts++
				if attempts == 1 {
					if c.broken {
						if err := nc.ForceReconnect(); err != nil {
							t.Error(err)
						}
						<-again
					}
					return
				}
				r, err := store.DecodeRequest(m.Data)
				if err == nil {
					err = m.Respond(store.EncodeResponse(&store.Response{Err: store.Refuse(store.StatusNotFound, "it is not there")}, r))
				}
				if err != nil {
					t.Error(err)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			key, err := feed.NewPartitionKey("k")
			if err != nil {
				t.Fatal(err)
			}
			_, err = store.NewClient(nc, catalog, store.ClientConfig{}).Do(t.Context(), &store.Request{Partition: p, Transact: &store.Transact{
				Key: key, IdempotencyKey: "once", Ops: []store.Operation{{Kind: store.OpReplace, ID: "1", Body: []byte(`{"id":"1"}`)}},
			}})
			refused := errors.Is(err, &store.Error{Status: store.StatusNotFound})
			if errors.Is(err, store.ErrUnknown) != c.unknown || refused == c.unknown {
				t.Errorf("behind %d attempts: %v", attempts, err)
			}
		})
	}
}

// TestClient_AsksAgainWhenItsConnectionIsBack has a client lose its connection with the answer to each of its first attempts.
func TestClient_AsksAgainWhenItsConnectionIsBack(t *testing.T) {
	t.Parallel()
	l := natstest.NewLine(natstest.Start(t))
	nc, again := l.Connect(t)
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		t.Fatal(err)
	}
	p := feed.Partition{Container: "c", Number: 1}
	var keys []string
	if _, err := l.Server.NC.Subscribe(store.RequestSubject(p), func(m *nats.Msg) {
		r, err := store.DecodeRequest(m.Data)
		if err != nil {
			t.Error(err)
			return
		}
		if keys = append(keys, r.Transact.IdempotencyKey); len(keys) <= 3 {
			l.Cut(t)
			<-again
			return
		}
		if err := m.Respond(store.EncodeResponse(&store.Response{Transact: &store.TransactResult{LSN: 7, Results: []store.OpResult{{}}}}, r)); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	// The owner is silent otherwise too, so that nothing else has the client ask again.
	if _, err := l.Server.NC.Subscribe(store.ReadSubject(p), func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	// Three attempts that wait for their answers would take it six seconds.
	client := store.NewClient(nc, catalogOf(t, l.Server.JS), store.ClientConfig{Timeout: 5 * time.Second})
	resp, err := client.Do(t.Context(), &store.Request{Partition: p, Transact: &store.Transact{
		Key: key, IdempotencyKey: "once", Ops: []store.Operation{{Kind: store.OpDelete, ID: "1"}},
	}})
	if err != nil || resp.Transact.LSN != 7 {
		t.Fatalf("%v: %v", resp, err)
	}
	if want := []string{"once", "once", "once", "once"}; !slices.Equal(keys, want) {
		t.Errorf("asked under the keys %q", keys)
	}
}

// Two processes have the subject for a while: an owner, and one that has lost its lease. That the
// second one changed nothing says nothing of the first, whatever is answered to a later attempt.
func TestI2_WhoHasLostTheLeaseDoesNotSpeakForTheOwner(t *testing.T) {
	server := natstest.Start(t)
	catalog := catalogOf(t, server.JS)
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		t.Fatal(err)
	}
	lost, handsOver := store.Refuse(store.StatusGone, "not mine"), store.Refuse(store.StatusGone, "not mine any more")
	handsOver.RetryAfter = time.Millisecond
	full := store.Refuse(store.StatusTooManyRequests, "full")
	const reads, pages, unkeyed = "reads", "pages", ""
	for number, c := range []struct {
		key     string
		answers []*store.Error // the last one again and again
		want    error
		not     error
	}{
		{"once", []*store.Error{lost}, store.ErrUnknown, store.ErrUnavailable},
		{"once", []*store.Error{handsOver}, store.ErrUnavailable, store.ErrUnknown},
		{"once", []*store.Error{lost, handsOver}, store.ErrUnknown, store.ErrUnavailable},
		{"once", []*store.Error{lost, full}, store.ErrUnknown, full},
		{"once", []*store.Error{handsOver, full}, full, store.ErrUnknown},
		{"once", []*store.Error{lost, store.ErrConflict}, store.ErrConflict, store.ErrUnknown}, // behind it, on the same connection
		{unkeyed, []*store.Error{lost, store.ErrConflict}, store.ErrUnknown, store.ErrConflict},
		{unkeyed, []*store.Error{handsOver, store.ErrConflict}, store.ErrConflict, store.ErrUnknown},
		{reads, []*store.Error{lost}, store.ErrUnavailable, store.ErrUnknown},
		{pages, []*store.Error{lost, store.ErrConflict}, store.ErrUnknown, store.ErrConflict},
		{pages, []*store.Error{handsOver, store.ErrConflict}, store.ErrConflict, store.ErrUnknown},
	} {
		p := feed.Partition{Container: "aaaaaaaa", Number: uint32(number)}
		left := c.answers
		_, err := server.NC.Subscribe(store.RequestSubject(p), func(m *nats.Msg) {
			r, err := store.DecodeRequest(m.Data)
			if err == nil {
				err = m.Respond(store.EncodeResponse(&store.Response{Err: left[0]}, r))
			}
			if err != nil {
				t.Error(err)
			}
			left = left[min(1, len(left)-1):]
		})
		if err != nil {
			t.Fatal(err)
		}
		request := &store.Request{Partition: p, Read: &store.ReadItems{Refs: []store.ItemRef{{Key: key, ID: "1"}}}}
		switch c.key {
		case reads:
		case pages: // the owner that did not answer may have told who refused a copy
			request = &store.Request{Partition: p, PatchMany: &store.PatchMany{Source: "s"}}
		default:
			request = &store.Request{Partition: p, Transact: &store.Transact{
				Key: key, IdempotencyKey: c.key, Ops: []store.Operation{{Kind: store.OpCreate, Body: []byte(`{"id":"1"}`)}},
			}}
		}
		cfg := store.ClientConfig{HandoverWait: time.Minute}
		if errors.Is(c.answers[len(c.answers)-1], store.ErrNotOwner) { // nobody ever decides it
			cfg = store.ClientConfig{HandoverWait: time.Millisecond}
			if c.answers[0] == lost { // which is as much as it will know, however soon it gives up
				cfg.Timeout = 500 * time.Millisecond
			}
		}
		client := store.NewClient(server.NC, catalog, cfg)
		if _, err = client.Do(t.Context(), request); !errors.Is(err, c.want) || errors.Is(err, c.not) {
			t.Errorf("key %q, %v: %v", c.key, c.answers, err)
		}
	}
}

// A connection that is closed while a write waits for its answer says nothing of the write. One that was
// closed before has not sent it.
func TestI2_AWriteWhoseConnectionIsClosedIsUnknown(t *testing.T) {
	server := natstest.Start(t)
	catalog := catalogOf(t, server.JS)
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		t.Fatal(err)
	}
	for _, idempotencyKey := range []string{"", "once"} {
		p := feed.Partition{Container: "aaaaaaaa"}
		nc := server.Connect(t)
		sub, err := server.NC.Subscribe(store.RequestSubject(p), func(*nats.Msg) { nc.Close() })
		if err != nil {
			t.Fatal(err)
		}
		client := store.NewClient(nc, catalog, store.ClientConfig{})
		for _, sent := range []bool{true, false} {
			_, err := client.Do(t.Context(), &store.Request{Partition: p, Transact: &store.Transact{
				Key: key, IdempotencyKey: idempotencyKey, Ops: []store.Operation{{Kind: store.OpCreate, Body: []byte(`{"id":"1"}`)}},
			}})
			if !errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, store.ErrUnknown) != sent {
				t.Errorf("key %q, sent %t: %v", idempotencyKey, sent, err)
			}
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
}

// Where nobody owns a partition because of something that the asking process knows, it says so
// in place of asking whether a store runs.
func TestNoOwner_NamesTheTroubleThatIsKnown(t *testing.T) {
	server := natstest.Start(t)
	catalog := catalogOf(t, server.JS)
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		t.Fatal(err)
	}
	for trouble, want := range map[string]string{"": "is a store process running?", "the disk of /data is full": ": the disk of /data is full"} {
		t.Run(trouble, func(t *testing.T) {
			t.Parallel()
			// Long enough for NATS to say that nobody has the subject.
			client := store.NewClient(server.NC, catalog, store.ClientConfig{Timeout: 3 * time.Second, Trouble: func() string { return trouble }})
			_, err := client.Do(t.Context(), &store.Request{
				Partition: feed.Partition{Container: "aaaaaaaa"}, Read: &store.ReadItems{Refs: []store.ItemRef{{Key: key, ID: "1"}}},
			})
			if _, ok := errors.AsType[*store.NoOwnerError](err); !ok || !strings.Contains(err.Error(), want) {
				t.Errorf("%v", err)
			}
		})
	}
}
