package owner

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// unreadableAt is a log in which one commit cannot be read.
type unreadableAt struct {
	Log
	lsn feed.LSN
}

func (l *unreadableAt) Read(ctx context.Context, lsn feed.LSN) (*feed.Commit, error) {
	if lsn == l.lsn {
		return nil, feed.ErrNotFound
	}
	return l.Log.Read(ctx, lsn)
}

// TestI2_AnEngineBehindItsLogAnswersNothing: another owner has written since, and what proves that the engine
// is of the log's history cannot be read. What it holds is the past.
func TestI2_AnEngineBehindItsLogAnswersNothing(t *testing.T) {
	w := newWorld(t, byA)
	n := w.termOfFive()
	other := w.start(t.TempDir())
	other.mustOne(pk(t, "x"), create(`{"id":"9","a":"x"}`))
	if err := other.stop(); err != nil {
		t.Fatal(err)
	}
	p, log := w.nextTerm(n.engine)
	log.Log = &unreadableAt{log.Log, 7}
	damage, ok := errors.AsType[*DamagedError](p.open(t.Context(), w.info.Partitions[0].Log))
	if !ok || !strings.Contains(damage.Reason, "LSN 7 cannot be read") {
		t.Fatalf("opened though commit 7 cannot be read: %v", damage)
	}
	if readable, err := p.openReadOnly(damage); readable || err != nil {
		t.Errorf("what the engine holds is answered, %v", err)
	}
}

// TestI1_APartitionOpenedForReadsTakesNoWrites: its log may be found damaged and whole again meanwhile, but the
// partition has not taken it over.
func TestI1_APartitionOpenedForReadsTakesNoWrites(t *testing.T) {
	w := newWorld(t, byA)
	n := w.termOfFive()
	p, _ := w.nextTerm(n.engine)
	if readable, err := p.openReadOnly(p.lacksStream()); !readable || err != nil {
		t.Fatal(readable, err)
	}
	harm := p.damaged(nil, "its log lacks LSN 3")
	p.refuseWrites(harm)
	p.takeWrites(harm)
	if p.refusing() == nil {
		t.Error("writes are taken")
	}
}

// TestDraft_TakesATraceContextOfABoundedSize: of what a client sends as one a commit takes what the standard has.
func TestDraft_TakesATraceContextOfABoundedSize(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct{ parent, state, wantParent, wantState string }{
		{parent, "a=b", parent, "a=b"},
		{parent, "a=" + strings.Repeat("b", 16<<10), parent, ""},
		{strings.Repeat("0", 16<<10), "a=b", "", ""},
	} {
		d := &draft{}
		v := &view{schema: &schema{}, pending: newOverlay()}
		d.add(newTxn(v, d), &store.Request{TraceParent: c.parent, TraceState: c.state})
		if tx := &d.txns[0]; tx.TraceParent != c.wantParent || tx.TraceState != c.wantState {
			t.Errorf("%.60s, %.10s: the commit has %.60s, %.10s", c.parent, c.state, tx.TraceParent, tx.TraceState)
		}
	}
}
