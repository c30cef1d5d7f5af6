package owner

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

// TestSubscription_StopIsBounded: of two subscriptions neither is told to be closed, as where the
// server does not answer. The time is that of both.
func TestSubscription_StopIsBounded(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	o, err := (&Server{nc: w.js.Conn()}).subscribe(t.Context(), n.Partition)
	if err != nil {
		t.Fatal(err)
	}
	for i := range o.closed {
		o.closed[i] = make(chan struct{})
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		o.stop()
	}()
	select {
	case <-stopped:
	case <-time.After(time.Minute):
		t.Error("the subscription does not stop")
	}
}

// slowLease holds up whoever asks first, once it is armed, whether the lease lasts.
type slowLease struct {
	*lease
	armed atomic.Bool
	came  chan struct{} // closed when somebody asks
	goOn  chan struct{} // closed when it is answered
}

func (l *slowLease) Lasts() bool {
	if l.armed.CompareAndSwap(true, false) {
		close(l.came)
		<-l.goOn
	}
	return l.lease.Lasts()
}

// TestI2_TwoAttemptsAreDecidedInTheirOrder holds the first attempt of a keyed write up before it is queued, while the second
// one comes and somebody else writes.
func TestI2_TwoAttemptsAreDecidedInTheirOrder(t *testing.T) {
	w := newWorld(t, byA)
	k := pk(t, "x")
	n := w.open(t.TempDir())
	if err := n.open(t.Context(), w.info.Partitions[0].Log); err != nil {
		t.Fatal(err)
	}
	slow := &slowLease{lease: n.lease, came: make(chan struct{}), goOn: make(chan struct{})}
	n.Partition.lease = slow
	n.serve()
	server, answers := &Server{nc: w.js.Conn()}, make(chan *nats.Msg, 2)
	o, err := server.subscribe(t.Context(), n.Partition)
	if err != nil {
		t.Fatal(err)
	}
	inbox, err := server.nc.ChanSubscribe(server.nc.NewInbox(), answers)
	if err != nil {
		t.Fatal(err)
	}
	subject := store.RequestSubject(w.id)
	send := func() {
		t.Helper()
		data := store.AppendRequest(nil, &store.Request{Partition: w.id, Transact: &store.Transact{
			Key: k, IdempotencyKey: "once", Ops: []store.Operation{{Kind: store.OpReplace, ID: "1", Body: []byte(`{"id":"1","a":"x","n":2}`)}},
		}})
		if err := server.nc.PublishRequest(subject, inbox.Subject, data); err != nil {
			t.Fatal(err)
		}
	}
	slow.armed.Store(true)
	send()
	<-slow.came
	send()
	poll.Until(t, func() error { // the second is answered, or waits
		o.turns.mu.Lock()
		defer o.turns.mu.Unlock()
		return poll.Unless(len(o.turns.waiting) == 1 || len(answers) == 1, fmt.Sprint("waiting are ", len(o.turns.waiting)))
	})
	n.mustOne(k, create(`{"id":"1","a":"x","n":1}`))
	close(slow.goOn)
	var told []string
	for range 2 {
		resp, err := store.DecodeResponse((<-answers).Data)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Err != nil {
			told = append(told, resp.Err.Error())
			continue
		}
		told = append(told, resp.Transact.Results[0].Item.ETag.String())
	}
	if told[0] != told[1] {
		t.Errorf("one attempt was told %s, the other %s", told[0], told[1])
	}
}
