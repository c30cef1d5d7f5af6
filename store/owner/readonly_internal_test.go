package owner

import (
	"context"
	"errors"
	"fmt"
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

// TestI2_ForALostLogOnlyWhoOwnedItLastAnswers opens a partition whose log is lost in whole or in part, beside an engine
// that holds more than is left: by who used the lease last, and who appended what the engine holds.
func TestI2_ForALostLogOnlyWhoOwnedItLastAnswers(t *testing.T) {
	logs := map[string]func(w *world, p *Partition) error{
		"its stream is gone": func(_ *world, p *Partition) error { return p.lacksStream() },
		"its stream was made anew": func(w *world, p *Partition) error {
			return p.open(w.t.Context(), feed.NewLogID())
		},
		"it has lost its end": func(w *world, p *Partition) error {
			w.loseEnd(5)
			return p.open(w.t.Context(), w.info.Partitions[0].Log)
		},
	}
	tests := []struct {
		name     string
		change   func(p *Partition, l *lease)
		readable bool
	}{
		{"this node did both", func(*Partition, *lease) {}, true},
		{"this node did, in an incarnation before", func(p *Partition, _ *lease) { p.owner += "/2" }, true},
		{"another used the lease since", func(_ *Partition, l *lease) { l.user, l.since = "b", l.epoch-1 }, false},
		{"this node used the lease again since, and not since its last commit", func(_ *Partition, l *lease) { l.since++ }, false},
		{"it is not known who used the lease", func(_ *Partition, l *lease) { l.user, l.since = "", 0 }, false},
		{"another has appended what this node followed", func(p *Partition, l *lease) { p.owner, l.user = "b/1", "b" }, false},
		{"no other process can be the owner", func(p *Partition, l *lease) { p.cfg.Alone, l.user = true, "" }, true},
	}
	for name, lose := range logs {
		for _, test := range tests {
			t.Run(name+", "+test.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, byA)
				p, _ := w.nextTerm(w.termOfFive().engine)
				test.change(p, p.lease.(*lease))
				damage, ok := errors.AsType[*DamagedError](lose(w, p))
				if !ok {
					t.Fatalf("opened: %v", damage)
				}
				readable, err := p.openReadOnly(damage)
				if readable != test.readable || err != nil {
					t.Errorf("readable: %t, %v", readable, err)
				}
				if told := strings.Contains(damage.Error(), "may lack what was written last"); told == readable {
					t.Errorf("it says %s", damage)
				}
				if named := strings.Contains(damage.Error(), "node b that owned the partition last"); named != strings.HasPrefix(test.name, "another used") {
					t.Errorf("it says %s", damage)
				}
			})
		}
	}
}

// TestI2_AnEngineThatIsMadeAnewIsNotWholeBeforeItsOwnerGoesOn loses the log before and after the takeover commit of a node
// that was the owner before, has lost its engine and makes it anew.
func TestI2_AnEngineThatIsMadeAnewIsNotWholeBeforeItsOwnerGoesOn(t *testing.T) {
	for _, takesOver := range []bool{false, true} {
		t.Run(fmt.Sprintf("taken over: %t", takesOver), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, byA)
			w.termOfFive()
			n := w.open(t.TempDir())
			t.Cleanup(func() { _ = n.db.Close() })
			n.owner, n.lease.user, n.lease.since = "node-1/1", "node-1", 1
			a, err := n.attach(t.Context(), w.info.Partitions[0].Log)
			if err != nil {
				t.Fatal(err)
			}
			if err := n.replay(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			if takesOver {
				if err := n.takeOver(t.Context(), a); err != nil {
					t.Fatal(err)
				}
			}
			if readable, err := n.openReadOnly(n.lacksStream()); readable != takesOver || err != nil {
				t.Errorf("readable: %t, %v", readable, err)
			}
		})
	}
}

// TestI2_WhoCertainlyDidNotAppendHasNotUsedTheLease ends the append of a takeover commit in every way. The lease is used
// before it, and only where the commit is certainly not in the log that is taken back.
func TestI2_WhoCertainlyDidNotAppendHasNotUsedTheLease(t *testing.T) {
	w := newWorld(t, byA)
	n := w.open(t.TempDir())
	t.Cleanup(func() { _ = n.db.Close() })
	a, err := n.attach(t.Context(), w.info.Partitions[0].Log)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.replay(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		err  error
		uses int64
	}{
		{feed.ErrNoLog, 0},
		{feed.ErrStorage, 0},
		{feed.ErrUnavailable, 0},
		{feed.ErrFenced, 0},
		{feed.ErrUnknown, 1},
		{fmt.Errorf("%w: %w", feed.ErrUnknown, feed.ErrNoLog), 1},
		{fmt.Errorf("%w: %w", feed.ErrUnknown, feed.ErrFenced), 1},
		{&feed.MismatchError{What: "stored at 9 of another stream"}, 1},
		{errors.New("nobody knows"), 1},
		{nil, 1}, // the last, as it changes the log
	} {
		n.lease.uses.Store(0)
		n.log.fault(func(_ context.Context, appendIt func() (feed.LSN, error)) (feed.LSN, error) {
			if uses := n.lease.uses.Load(); uses != 1 {
				t.Errorf("%v: %d uses as the append begins", test.err, uses)
			}
			if test.err != nil {
				return 0, test.err
			}
			return appendIt()
		})
		if err := n.takeOver(t.Context(), a); (err == nil) != (test.err == nil) {
			t.Errorf("%v: taken over: %v", test.err, err)
		}
		if uses := n.lease.uses.Load(); uses != test.uses {
			t.Errorf("%v: %d uses after it, want %d", test.err, uses, test.uses)
		}
	}
}

// TestDamage_APartitionThatRefusesWritesIsBound until its log is whole again.
func TestDamage_APartitionThatRefusesWritesIsBound(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	harm := n.damaged(nil, "its log lacks LSN 3")
	n.refuseWrites(harm)
	if !n.lease.bound.Load() {
		t.Error("it may move to a process that cannot open it")
	}
	n.takeWrites(harm)
	if n.lease.bound.Load() {
		t.Error("it stays where it is, though its log is whole")
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
