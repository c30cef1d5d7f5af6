package owner

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/store"
)

// TestDrain_AWriteIsAnsweredWhileAppendsAreAtHand asks an owner on its way out, whose
// last append the log does not answer: it says at once that nothing happened, and the
// next owner carries the write out. Without that the write waits as long as the log.
func TestDrain_AWriteIsAnsweredWhileAppendsAreAtHand(t *testing.T) {
	w := newWorld(t, byA)
	first := w.start(t.TempDir())
	k := pk(t, "x")
	arrived, release := first.log.hold()
	defer release()
	held := make(chan error, 1)
	go func() {
		_, err := first.one(k, create(`{"id":"1","a":"x"}`))
		held <- err
	}()
	<-arrived
	decided := make(chan error, 1) // one that the drain finds decided, behind the append
	go func() {
		_, err := first.one(k, create(`{"id":"2","a":"x"}`))
		decided <- err
	}()
	first.decided(1)
	first.cancel()

	// The gate is shut until each of them has its answer.
	if err := <-decided; !errors.Is(err, store.ErrNotOwner) {
		t.Errorf("a write that was decided behind the append: %v", err)
	}
	if _, err := first.one(k, create(`{"id":"3","a":"x"}`)); !errors.Is(err, store.ErrNotOwner) || !strings.Contains(err.Error(), "nothing was changed") || retryAfter(err) == 0 {
		t.Errorf("a write that comes during the drain: %v", err)
	}
	var local store.Local
	local.Add(first.id, first.Partition)
	ask := func(timeout, handover time.Duration) error {
		client := store.NewClient(nil, w.catalog, store.ClientConfig{Local: &local, Timeout: timeout, HandoverWait: handover})
		things, err := client.Open(w.info)
		if err != nil {
			return err
		}
		_, err = things.Create(t.Context(), []byte(`{"id":"4","a":"x"}`))
		return err
	}
	// A client waits for the next owner, and says what it waited for: at the end of its own
	// time, or soon, where it has much of that and the drain hangs.
	for _, times := range [][2]time.Duration{{500 * time.Millisecond, time.Hour}, {time.Hour, 20 * time.Millisecond}} {
		if err := ask(times[0], times[1]); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "between two owners") || !strings.Contains(err.Error(), "node-1/1 hands partition") {
			t.Errorf("a client with %s, and %s for a handover: %v", times[0], times[1], err)
		}
	}
	if got := first.read(k, "1"); got != "" {
		t.Errorf("the append at hand is read before the log has answered: %s", got)
	}

	waiting := make(chan error, 1)
	go func() { waiting <- ask(time.Minute, time.Minute) }()
	release()
	if err := <-held; err != nil {
		t.Errorf("the append at hand: %v", err)
	}
	if err := first.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	second := w.start(t.TempDir())
	local.Add(second.id, second.Partition)
	if err := <-waiting; err != nil {
		t.Errorf("a client that waited for the next owner: %v", err)
	}
	for id, there := range map[string]bool{"1": true, "2": false, "3": false, "4": true} {
		if got := second.read(k, id); (got != "") != there {
			t.Errorf("item %s is %q at the next owner", id, got)
		}
	}
}

// A write whose time is over before anybody has begun to decide it does not happen later, and the queue
// does not hold what it asked for.
func TestI1_AWriteThatWasNotBegunInTimeDoesNotHappen(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	hangs, release := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.onDecider(context.Background(), func(*decider) { close(hangs); <-release })
	}()
	<-hangs
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	op := create(`{"id":"1","a":"x"}`)
	resp := n.Handle(ctx, &store.Request{Partition: n.id, Transact: &store.Transact{Key: k, Ops: []store.Operation{op}}})
	if resp.Err == nil || resp.Err.Status != store.StatusUnavailable || !strings.Contains(resp.Err.Message, "nothing was changed") {
		t.Errorf("it is answered with %+v", resp.Err)
	}
	close(release)
	<-ended
	n.mustOne(k, create(`{"id":"2","a":"x"}`)) // behind it in the queue
	if got := n.read(k, "1"); got != "" {
		t.Errorf("it has happened: %s", got)
	}
}

// TestDrain_AWriteIsAnsweredThoughTheDeciderHangs stops an owner whose decider hangs, as it
// does in a read of a disk that does not answer: what waits for it is told at once that
// nothing happened, and so is what comes. Without that both wait as long as the disk.
func TestDrain_AWriteIsAnsweredThoughTheDeciderHangs(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	hangs, release := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.onDecider(context.Background(), func(*decider) { close(hangs); <-release })
	}()
	<-hangs
	waits := make(chan error, 1)
	go func() {
		_, err := n.one(k, create(`{"id":"1","a":"x"}`))
		waits <- err
	}()
	for len(n.queue) == 0 { // it is queued in a moment
		runtime.Gosched()
	}
	n.cancel()
	// The decider hangs until both have their answers.
	if err := <-waits; !errors.Is(err, store.ErrNotOwner) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("a write that waits for the decider: %v", err)
	}
	if _, err := n.one(k, create(`{"id":"2","a":"x"}`)); !errors.Is(err, store.ErrNotOwner) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("a write that comes during the drain: %v", err)
	}
	close(release)
	<-ended
	if err := n.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// retryAfter is positive where a process says that it still holds the lease.
func retryAfter(err error) time.Duration {
	if refused, ok := errors.AsType[*store.Error](err); ok {
		return refused.RetryAfter
	}
	return 0
}

// NATS gives a write to the fenced owner and to the next one. The first answer wins, so a write that
// cannot be asked again gets none from the fenced one, also while its lease seems valid.
func TestI2_AFencedOwnerIsSilentToAWriteWithoutAKey(t *testing.T) {
	w := newWorld(t, byA)
	k := pk(t, "x")
	first := w.start(t.TempDir())
	first.log.fault(func(context.Context, func() (feed.LSN, error)) (feed.LSN, error) { return 0, feed.ErrFenced })
	if _, err := first.one(k, create(`{"id":"1","a":"x"}`)); !errors.Is(err, store.ErrNotOwner) || retryAfter(err) != 0 {
		t.Errorf("the write that finds the fence: %v", err)
	}
	if err := first.ended(); !errors.Is(err, feed.ErrFenced) {
		t.Fatal(err)
	}
	nc := natstest.Start(t).NC
	const end = "end"
	handled := make(chan struct{}, 1)
	_, err := nc.Subscribe(store.RequestSubject(w.id), func(m *nats.Msg) {
		defer func() { handled <- struct{}{} }()
		(&Server{nc: nc}).answer(context.Background(), first.Partition, m, false, first.Handle)
		if err := m.Respond([]byte(end)); err != nil { // behind the answer
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for key, answered := range map[string]bool{"": false, "once": true} {
		data := store.AppendRequest(nil, &store.Request{Partition: w.id, Transact: &store.Transact{
			Key: k, IdempotencyKey: key, Ops: []store.Operation{create(`{"id":"2","a":"x"}`)},
		}})
		m, err := nc.RequestWithContext(t.Context(), store.RequestSubject(w.id), data)
		if err != nil {
			t.Fatal(err)
		}
		<-handled // the test's end closes the connection under the second answer
		if (string(m.Data) != end) != answered {
			t.Errorf("a write with the key %q was answered %q", key, m.Data)
		}
	}
}
