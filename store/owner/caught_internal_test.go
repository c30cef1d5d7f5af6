package owner

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// comeUponDamage makes Badger panic, as it does when it comes upon a damaged block.
func (n *node) comeUponDamage() {
	s := n.engine.Snapshot()
	defer s.Close()
	for _, err := range s.Dump() {
		if err != nil {
			n.w.t.Error(err)
		}
		s.Close() // Badger panics, because an iterator is open
	}
	n.w.t.Error("Badger did not panic")
}

// askWith hands a request to the decider, with what a test does there before it is decided.
func (n *node) askWith(before func(), op store.Operation) *call {
	n.w.t.Helper()
	r := &store.Request{Partition: n.id, Transact: &store.Transact{Key: pk(n.w.t, "x"), Ops: []store.Operation{op}}}
	h := *handlerOf(r)
	decide := h.decide
	h.decide = func(d *decider, t *txn, r *store.Request, pageItems int) (*store.Response, bool) {
		before()
		return decide(d, t, r, pageItems)
	}
	c := newCall(r, &h)
	if refusal := n.enqueue(c, n.queue); refusal != nil {
		n.w.t.Fatal(refusal)
	}
	return c
}

// answeredWith fails the test unless a call was answered with a status before its term ended.
func (c *call) answeredWith(t *testing.T, want store.Status) {
	t.Helper()
	select {
	case resp := <-c.done:
		if resp.Err == nil || resp.Err.Status != want {
			t.Errorf("answered %+v, want status %d", resp.Err, want)
		}
	default:
		t.Error("the term has ended, and the call is not answered")
	}
}

// TestI2_ACallThatComesUponDamagedBlocksIsAnswered has the decider come upon damaged blocks of the engine.
func TestI2_ACallThatComesUponDamagedBlocksIsAnswered(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	n.mustOne(pk(t, "x"), create(`{"id":"0","a":"x"}`)) // for Badger to read
	c := n.askWith(n.comeUponDamage, create(`{"id":"1","a":"x"}`))
	_ = n.ended()
	c.answeredWith(t, store.StatusUnavailable)
	if n.engine.Sound() == nil {
		t.Error("the engine is not known to be damaged")
	}
}

// TestI2_ACommitThatComesUponDamagedBlocksIsUnknown has the committer come upon them behind the append.
func TestI2_ACommitThatComesUponDamagedBlocksIsUnknown(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	n.mustOne(pk(t, "x"), create(`{"id":"0","a":"x"}`)) // for Badger to read
	n.log.fault(func(_ context.Context, appendIt func() (feed.LSN, error)) (feed.LSN, error) {
		if _, err := appendIt(); err != nil {
			t.Error(err)
		}
		n.comeUponDamage()
		return 0, nil
	})
	c := n.askWith(func() {}, create(`{"id":"1","a":"x"}`))
	if err := n.ended(); err == nil {
		t.Error("the term ended without an error")
	}
	c.answeredWith(t, store.StatusUnknown)
	if next := w.start(t.TempDir()); next.read(pk(t, "x"), "1") == "" {
		t.Error("what was appended is not there")
	}
}

// TestOnCommitter_DamagedBlocksEndIt waits for what comes upon them between two commits.
func TestOnCommitter_DamagedBlocksEndIt(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	n.mustOne(pk(t, "x"), create(`{"id":"0","a":"x"}`)) // for Badger to read
	if n.onCommitter(t.Context(), func(*committer) { n.comeUponDamage() }) {
		t.Error("it ran to its end")
	}
	if err := n.ended(); err == nil {
		t.Error("the term ended without an error")
	}
}

// uponStreams calls upon where a stream is asked for.
type uponStreams struct {
	jetstream.JetStream
	upon func()
}

func (u uponStreams) Stream(context.Context, string) (jetstream.Stream, error) {
	u.upon()
	return nil, jetstream.ErrStreamNotFound
}

// TestUnfollow_ComesUponDamagedBlocks: the engine is made anew, and the process does not end. It would begin to free the
// same copy again, and end again, at each start.
func TestUnfollow_ComesUponDamagedBlocks(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	n.mustOne(pk(t, "x"), create(`{"id":"0","a":"x"}`)) // for Badger to read
	s := &Server{home: newHome(n.db), js: uponStreams{upon: n.comeUponDamage}}
	if kept, err := s.Unfollow(t.Context(), n.id, func() {}); err == nil {
		t.Errorf("freed, or kept because %q", kept)
	}
	if n.db.Sound() == nil {
		t.Error("the engine is not known to be damaged")
	}
}
