package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/gateway"
)

// A write that meets an owner on its way out, whose lease has ended and who must not
// carry it out, is answered by the next owner, and not given up when its time is over:
// such an owner is silent where a write cannot be asked for twice.
func TestServer_AWriteThatMeetsADrainingOwnerIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.stopOwners()
	info, err := w.catalog.Get(t.Context(), "shop", "things")
	if err != nil {
		t.Fatal(err)
	}
	p := feed.Partition{Container: info.ID, Number: info.Partitions[0].Number}
	var once sync.Once
	answers := 0 // of the subscription's goroutine
	leaving, err := w.nc.Subscribe(store.RequestSubject(p), func(m *nats.Msg) {
		once.Do(w.startOwners)
		r, err := store.DecodeRequest(m.Data)
		// It has gone in the end: an answer without a commit is always faster than one with it.
		if err != nil || r.Transact == nil || r.Transact.IdempotencyKey == "" || answers == 8 {
			return
		}
		answers++
		gone := &store.Response{Err: store.Refuse(store.StatusGone, "this process no longer owns partition %s", p)}
		_ = m.Respond(store.EncodeResponse(gone, r))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = leaving.Unsubscribe() }()
	a := w.ask("POST", docs, `{"id":"1","pk":"a","n":1}`, keyHeader, `["a"]`).is(201)
	if !strings.Contains(string(a.body), `"n":1`) {
		t.Errorf("the answer is %s", a.body)
	}
}

// A write that meets an owner whose drain hangs, and no other owner, is refused with the
// reason and may be sent again: it does not wait until the client has given it up.
func TestServer_AWriteThatMeetsAHangingDrainIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.stopOwners()
	info, err := w.catalog.Get(t.Context(), "shop", "things")
	if err != nil {
		t.Fatal(err)
	}
	p := feed.Partition{Container: info.ID, Number: info.Partitions[0].Number}
	leaving, err := w.nc.Subscribe(store.RequestSubject(p), func(m *nats.Msg) {
		r, err := store.DecodeRequest(m.Data)
		if err != nil {
			return
		}
		gone := &store.Response{Err: store.Refuse(store.StatusGone, "process a hands partition %s over; nothing was changed", p)}
		gone.Err.RetryAfter = time.Millisecond // it holds its lease
		_ = m.Respond(store.EncodeResponse(gone, r))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = leaving.Unsubscribe() }()
	// Before the 10 s of the client's timeout are over, after which it is refused alike.
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", w.web.URL+docs, strings.NewReader(`{"id":"1","pk":"a","n":1}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(keyHeader, `["a"]`)
	sign(t, r, w.key)
	a := w.send(r).is(503)
	if !strings.Contains(string(a.body), "process a hands partition") || a.header.Get("x-ms-retry-after-ms") == "" {
		t.Errorf("the answer is %v %s", a.header, a.body)
	}
}

// The answer to a write that is asked for again is that of the first time, body and
// etag too, and nothing happens twice.
func TestServer_ARepeatedWriteIsAnsweredAsTheFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.stopOwners()
	w.startOwners()
	key := []string{keyHeader, `["a"]`}
	w.ask("POST", docs, `{"id":"0","pk":"a","n":1}`, key...).is(201)
	for i, c := range []struct {
		name, method, path, body string
		with                     []string
		status                   int
	}{
		{"create", "POST", docs, `{"id":"1","pk":"a","n":1}`, nil, 201},
		{"upsert", "POST", docs, `{"id":"2","pk":"a","n":1}`, []string{upsert, "true"}, 201},
		{"replace", "PUT", docs + "/1", `{"id":"1","pk":"a","n":2}`, nil, 200},
		{"patch", "PATCH", docs + "/0", `[{"op":"incr","path":"/n","value":1}]`, nil, 200},
		{"delete", "DELETE", docs + "/2", "", nil, 204},
		{"batch", "POST", docs, `[{"operationType":"Create","resourceBody":{"id":"3","pk":"a"}},{"operationType":"Read","id":"0"}]`, []string{isBatch, "true", atomic, "true"}, 200},
		{"bulk", "POST", docs, `[{"operationType":"Create","resourceBody":{"id":"4","pk":"a"},"partitionKey":"[\"a\"]"}]`, []string{isBatch, "true", atomic, "false"}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.gateway.RepeatKey(string(rune('a' + i)))
			first := w.ask(c.method, c.path, c.body, append(c.with, key...)...).is(c.status)
			again := w.ask(c.method, c.path, c.body, append(c.with, key...)...).is(c.status)
			if string(first.body) != string(again.body) || first.header.Get("etag") != again.header.Get("etag") {
				t.Errorf("first %s %s, then %s %s", first.header.Get("etag"), first.body, again.header.Get("etag"), again.body)
			}
		})
	}
	if a := w.ask("GET", docs+"/0", "", key...).is(200); !strings.Contains(string(a.body), `"n":2`) {
		t.Errorf("the increment holds more than once, or not: %s", a.body)
	}
}
