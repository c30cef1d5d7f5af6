package owner

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// What a commit drops because it is too old by the log's time is looked for in the engine, so what was written before must
// be there: of commits that are applied at once too.
func TestI3_CommitsAppliedAtOnceForgetWhatOneByOneDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	info := w.info
	n.wants(&info, kindA)
	k := pk(t, "x")
	write := func(key string, op store.Operation) {
		t.Helper()
		resp := n.ask(&store.Request{Transact: &store.Transact{Key: k, Ops: []store.Operation{op}, IdempotencyKey: key}})
		if resp.Err != nil {
			t.Fatal(resp.Err)
		}
	}
	for round := range 4 {
		for i := range 20 {
			id := fmt.Sprint(round, "-", i)
			write(fmt.Sprintf("%030d%02d", round, i), upsert(fmt.Sprintf(`{"id":%q,"a":"x","kind":"a","name":"n"}`, id)))
			if i%2 == 0 {
				n.mustOne(k, remove(id))
			}
		}
		// Keys are too old two rounds later, and tombstones too when the last round begins.
		w.clock.Add(idempotencyWindow.Milliseconds() * 2 / 3)
		if round == 2 {
			w.clock.Add(n.state.Load().schema.settings.TombstonesKept)
		}
	}
	n.mustOne(k, create(`{"id":"last","a":"x"}`))
	want, err := n.engine.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if keys, stones := n.recordsOf(recordIdempotency), n.recordsOf(recordTombstone); keys != 20 || stones != 10 {
		t.Fatalf("%d idempotency keys and %d tombstones are kept, want those of the last round", keys, stones)
	}
	if got := w.openAt(t.TempDir(), n.state.Load().lsn); got != want {
		t.Errorf("digest of a rebuilt engine is %x, of the owner's %x", got, want)
	}
}

// Commits that only write are written at once; who reads the engine stands first, or alone.
func TestApplier_Together(t *testing.T) {
	plain := func(time int64) *feed.Commit {
		return &feed.Commit{Time: time, Transactions: []feed.Transaction{{Changes: []feed.Change{{Op: feed.OpCreate, ID: "x", After: []byte("{}")}}}}}
	}
	with := func(txn feed.Transaction) *feed.Commit {
		return &feed.Commit{Transactions: []feed.Transaction{{}, txn}}
	}
	setting := with(feed.Transaction{Control: &feed.Control{Kind: store.ControlSettings, Data: []byte("{}")}})
	asks := with(feed.Transaction{Effect: &feed.Effect{Producer: feed.Producer{Pipeline: "p", Generation: 2}}})
	large := plain(0)
	large.Transactions[0].Changes[0].After = make([]byte, togetherBytesMax*2/3)
	for name, c := range map[string]struct {
		commits []*feed.Commit
		want    int
	}{
		"one":                                   {[]*feed.Commit{plain(0)}, 1},
		"all that only write":                   {[]*feed.Commit{plain(0), plain(1), plain(59_999)}, 3},
		"up to another minute":                  {[]*feed.Commit{plain(59_998), plain(59_999), plain(60_000), plain(60_001)}, 2},
		"from another minute on":                {[]*feed.Commit{plain(60_000), plain(60_001)}, 2},
		"up to a setting":                       {[]*feed.Commit{plain(0), plain(0), setting, plain(0)}, 2},
		"a setting alone":                       {[]*feed.Commit{setting, plain(0)}, 1},
		"up to a generation that begins":        {[]*feed.Commit{plain(0), asks}, 1},
		"a generation that begins, alone":       {[]*feed.Commit{asks, plain(0)}, 1},
		"as many as one transaction may hold":   {[]*feed.Commit{plain(0), large, large}, 2},
		"one that is too large, for all others": {[]*feed.Commit{large, large}, 1},
	} {
		if got := new(applier).together(c.commits); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
