package owner

import (
	"context"
	"errors"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// refusalOf returns the refusal of an operation, and fails the test if it is none.
func (n *node) refusalOf(key feed.PartitionKey, op store.Operation) *store.Error {
	n.w.t.Helper()
	_, err := n.one(key, op)
	refusal, ok := errors.AsType[*store.Error](err)
	if !ok {
		n.w.t.Fatalf("%s %s: %v, want a refusal", op.Kind, op.ID, err)
	}
	return refusal
}

// TestI2_ARefusedWriteTellsTheStateItWasDecidedOn has a session that was refused a write know what it saw by that.
func TestI2_ARefusedWriteTellsTheStateItWasDecidedOn(t *testing.T) {
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/a"}, UniqueKeys: [][]string{{"/u"}}})
	n := w.start(t.TempDir())
	k := pk(t, "x")
	n.mustOne(k, create(`{"id":"1","a":"x","u":1}`))
	end := n.mustOne(pk(t, "y"), create(`{"id":"other","a":"y"}`)).ETag.LSN
	old := store.ETag{LSN: 1, Index: 7}
	for what, c := range map[string]struct {
		op     store.Operation
		status store.Status
		lsn    feed.LSN
	}{
		"an id that is taken":         {create(`{"id":"1","a":"x"}`), 409, end},
		"an item that may not be":     {store.Operation{Kind: store.OpCreate, Body: []byte(`{"id":"1","a":"x"}`), IfNoneMatch: old}, 412, end},
		"a unique key that is taken":  {create(`{"id":"2","a":"x","u":1}`), 409, end},
		"replace what is not there":   {store.Operation{Kind: store.OpReplace, ID: "2", Body: []byte(`{"id":"2","a":"x"}`)}, 404, end},
		"patch what is not there":     {patch("2", set("/b", "1")), 404, end},
		"delete what is not there":    {store.Operation{Kind: store.OpDelete, ID: "2"}, 404, end},
		"another version":             {store.Operation{Kind: store.OpDelete, ID: "1", IfMatch: old}, 412, end},
		"a version of what is gone":   {store.Operation{Kind: store.OpUpsert, Body: []byte(`{"id":"2","a":"x"}`), IfMatch: old}, 412, end},
		"a condition that is false":   {store.Operation{Kind: store.OpPatch, ID: "1", Patch: patch("1", set("/b", "1")).Patch, Condition: "c.u = 2"}, 412, end},
		"a member that is not there":  {store.Operation{Kind: store.OpPatch, ID: "1", Patch: patch("1", set("/b/c", "1")).Patch}, 400, end},
		"a body that is no item":      {create(`{"a":"x"}`), 400, 0}, // whatever the items are
		"a read of what is not there": {store.Operation{Kind: store.OpRead, ID: "2"}, 404, end},
	} {
		if got := n.refusalOf(k, c.op); got.Status != c.status || got.LSN != c.lsn {
			t.Errorf("%s: %d with LSN %d (%s); want %d with %d", what, got.Status, got.LSN, got.Message, c.status, c.lsn)
		}
	}
	if got := n.state.Load().lsn; got != end {
		t.Errorf("the log ends at %d, before the refusals at %d", got, end)
	}
}

// TestI2_ARefusalTellsACommitThatIs has refusals rest on a commit that is being appended, and on one that is still decided.
func TestI2_ARefusalTellsACommitThatIs(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	first := n.state.Load().lsn + 1
	in, release := n.log.hold()
	defer release()
	var answers [4]chan *store.Response
	for i, op := range []store.Operation{
		create(`{"id":"1","a":"x"}`),
		create(`{"id":"1","a":"x"}`), // nothing was decided behind the commit that is appended
		create(`{"id":"2","a":"x"}`),
		create(`{"id":"2","a":"x"}`), // rests on what leaves with it
	} {
		answers[i] = make(chan *store.Response, 1)
		go func() {
			answers[i] <- n.ask(&store.Request{Transact: &store.Transact{Key: k, Ops: []store.Operation{op}}})
		}()
		if i == 0 {
			<-in
		} else {
			n.decided(i)
		}
	}
	release()
	for i, want := range []feed.LSN{1: first, 3: first + 1} {
		switch got := <-answers[i]; {
		case want == 0 && got.Err != nil:
			t.Errorf("answer %d: %v", i, got.Err)
		case want != 0 && (got.Err == nil || got.Err.Status != store.StatusConflict || got.Err.LSN != want):
			t.Errorf("answer %d: %+v; want 409 with LSN %d", i, got.Err, want)
		}
	}
	// Alone in a commit that is never appended, a refusal tells the one before.
	if got := n.refusalOf(k, create(`{"id":"1","a":"x"}`)); got.LSN != first+1 || n.state.Load().lsn != first+1 {
		t.Errorf("LSN %d, and the log ends at %d; want both at %d", got.LSN, n.state.Load().lsn, first+1)
	}
}

// TestI2_ARefusalThatIsVoidTellsNoCommit has a refusal rest on an append that did not happen.
func TestI2_ARefusalThatIsVoidTellsNoCommit(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	end := n.state.Load().lsn
	in, out := make(chan struct{}), make(chan struct{})
	n.log.fault(func(context.Context, func() (feed.LSN, error)) (feed.LSN, error) {
		close(in)
		<-out
		return 0, feed.ErrStorage
	})
	var answers [2]chan *store.Response
	for i := range answers {
		answers[i] = make(chan *store.Response, 1)
		go func() {
			answers[i] <- n.ask(&store.Request{Transact: &store.Transact{Key: k, Ops: []store.Operation{create(`{"id":"1","a":"x"}`)}}})
		}()
		if i == 0 {
			<-in
		}
	}
	n.decided(1)
	close(out)
	for i := range answers {
		if got := <-answers[i]; got.Err == nil || got.Err.Status == store.StatusConflict || got.Err.LSN != 0 {
			t.Errorf("answer %d: %+v; want that nothing happened, and no LSN", i, got)
		}
	}
	if got := n.refusalOf(k, store.Operation{Kind: store.OpDelete, ID: "1"}); got.Status != store.StatusNotFound || got.LSN != end {
		t.Errorf("afterwards: %+v; want 404 with LSN %d", got, end)
	}
}

// TestI2_ABatchThatCommitsNothingTellsWhatItSaw asks for batches that read alone, or are refused.
func TestI2_ABatchThatCommitsNothingTellsWhatItSaw(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	end := n.mustOne(k, create(`{"id":"1","a":"x"}`)).ETag.LSN
	read := store.Operation{Kind: store.OpRead, ID: "1"}
	for what, c := range map[string]struct {
		ops    []store.Operation
		failed bool
		lsn    feed.LSN
	}{
		"reads":                           {[]store.Operation{read, read}, false, end},
		"an id that is taken":             {[]store.Operation{create(`{"id":"2","a":"x"}`), create(`{"id":"1","a":"x"}`)}, true, end},
		"an id that it has taken itself":  {[]store.Operation{create(`{"id":"2","a":"x"}`), create(`{"id":"2","a":"x"}`)}, true, end},
		"no item, behind one that can be": {[]store.Operation{create(`{"id":"2","a":"x"}`), create(`{"a":"x"}`)}, true, end}, // that id 2 is free was seen
		"no item":                         {[]store.Operation{create(`{"a":"x"}`), read}, true, 0},
		"one that is not there":           {[]store.Operation{{Kind: store.OpDelete, ID: "2"}}, true, end},
	} {
		got, err := n.batch(k, c.ops...)
		if err != nil || got.Failed != c.failed || got.LSN != c.lsn {
			t.Errorf("%s: %+v, %v; want LSN %d", what, got, err, c.lsn)
		}
	}
	if got := n.state.Load().lsn; got != end {
		t.Errorf("the log ends at %d, before the batches at %d", got, end)
	}
}
