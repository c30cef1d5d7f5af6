package owner

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/tombstone"
)

// recordsOf counts the engine's records of a kind.
func (n *node) recordsOf(kind byte) (count int) {
	n.w.t.Helper()
	snap := n.engine.Snapshot()
	defer snap.Close()
	for _, err := range snap.Records(kind, nil) {
		if err != nil {
			n.w.t.Fatal(err)
		}
		count++
	}
	return count
}

// TestForget_InBatchesThatAreBounded: one commit forgets whatever has become too old since the one
// before, which may be all that an hour of many writes left. It never holds all of that in memory.
func TestForget_InBatchesThatAreBounded(t *testing.T) {
	const all, most = 250, 100
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	info := w.info
	n.wants(&info, kindA)
	at := w.clock.Load()
	later := at + max(2*idempotencyWindow.Milliseconds(), 2*n.state.Load().schema.settings.TombstonesKept)

	old := func(a *applier, b *engine.Batch) error {
		for i := range all {
			key := fmt.Sprintf("%032x", i)
			if err := b.PutRecord(recordIdempotency, []byte(key), encodeIdempotency(1, 0, []feed.Change{{Op: feed.OpCreate}})); err != nil {
				return err
			}
			if err := b.PutRecord(recordIdemTime, idemTimeKey(at, key), nil); err != nil {
				return err
			}
			stone := &tombstone.Stone{Time: at, Position: feed.Position{LSN: 1, Index: uint32(i)}}
			if err := a.putStone(b, a.schema.stones[0], engine.ItemKey(pk(t, "x"), key), stone); err != nil {
				return err
			}
		}
		return b.Commit()
	}
	forget := func(a *applier) error {
		a.forgetMax = most
		if err := old(a, n.engine.NewBatch(a.engineSchema())); err != nil {
			return err
		}
		b := n.engine.NewBatch(a.engineSchema())
		check := func(when string, want int, kinds ...byte) {
			for _, kind := range kinds {
				if got := n.recordsOf(kind); got != want {
					t.Errorf("%s: %d records of kind %c, not %d", when, got, kind, want)
				}
			}
		}
		check("before", all, recordIdempotency, recordIdemTime, recordTombstone, recordTombTime)
		if err := a.forgetIdempotencyKeys(b, later); err != nil {
			return err
		}
		check("keys but for what the batch holds", all%most, recordIdempotency, recordIdemTime)
		if err := b.Commit(); err != nil {
			return err
		}
		if err := a.forgetStones(b, later); err != nil {
			return err
		}
		check("tombstones but for what the batch holds", all%most, recordTombstone, recordTombTime)
		if err := b.Commit(); err != nil {
			return err
		}
		check("all", 0, recordIdempotency, recordIdemTime, recordTombstone, recordTombTime)
		return nil
	}
	done := make(chan error, 1)
	select {
	case n.committerTasks <- func(c *committer) { done <- forget(c.applier) }:
	case <-time.After(time.Minute):
		t.Fatal("the committer is not free")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
