package main

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/store"
)

// Where JetStream elects leaders, a process may say for seconds that it has given a partition up before the next
// owner has it. A command waits as long as it was told to.
func TestSession_WaitsForTheNextOwner(t *testing.T) {
	server := natstest.Start(t)
	cfg, err := configs.Load("", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSession(t.Context(), server.Connect(t), cfg, false, &app{timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		t.Fatal(err)
	}
	p := feed.Partition{Container: "aaaaaaaa"}
	leaving := store.Refuse(store.StatusGone, "not mine any more")
	leaving.RetryAfter = time.Millisecond
	var owned time.Time // when the next owner has it
	if _, err := server.NC.Subscribe(store.RequestSubject(p), func(m *nats.Msg) {
		if owned.IsZero() {
			owned = time.Now().Add(1500 * time.Millisecond)
		}
		answer := &store.Response{Transact: &store.TransactResult{LSN: 7, Results: []store.OpResult{{}}}}
		if time.Now().Before(owned) {
			answer = &store.Response{Err: leaving}
		}
		r, err := store.DecodeRequest(m.Data)
		if err == nil {
			err = m.Respond(store.EncodeResponse(answer, r))
		}
		if err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	resp, err := s.client.Do(t.Context(), &store.Request{Partition: p, Transact: &store.Transact{
		Key: key, IdempotencyKey: "once", Ops: []store.Operation{{Kind: store.OpDelete, ID: "1"}},
	}})
	if err != nil || resp.Transact.LSN != 7 {
		t.Fatalf("%+v: %v", resp, err)
	}
}
