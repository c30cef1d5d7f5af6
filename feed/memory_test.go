package feed_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
)

// What bounds commits in memory counts what they take there, whatever their
// shape: not the bytes of their messages, of which one order with its aggregate
// took seven times as much.
func TestCommit_MemoryIsWhatItTakes(t *testing.T) {
	for _, n := range []int{1, 3, 50, 500} {
		for shape, c := range map[string]*feed.Commit{
			"a page of a fan-out":                page(t, n),
			"items with the folds of their rule": folded(t, n),
		} {
			t.Run(fmt.Sprintf("%s/%d", shape, n), func(t *testing.T) {
				data := feed.AppendCommit(nil, c)
				took, one := decoded(t, data)
				got := one.Memory()
				t.Logf("message %d bytes, takes %d, Memory says %d", len(data), took, got)
				// Rounding to size classes and pools may differ; a factor may not.
				if got < took*3/4 || got > took*3/2 {
					t.Errorf("Memory says %d bytes, the commit takes %d", got, took)
				}
			})
		}
	}
}

// folded is a commit of n transactions as a rule leaves them: an item made, the
// item of its group patched, and the records of the group.
func folded(tb testing.TB, n int) *feed.Commit {
	tb.Helper()
	c := &feed.Commit{ID: feed.NewCommitID(), Log: feed.NewLogID(), Owner: "node-1/2", Epoch: 4, Time: 1_700_000_000_000}
	for i := range n {
		key, err := feed.NewPartitionKey(fmt.Sprintf("customer-%08d", i))
		if err != nil {
			tb.Fatal(err)
		}
		c.Transactions = append(c.Transactions, feed.Transaction{
			Folds: []feed.Fold{{Pipeline: "customer-totals", Generation: 1, Records: []feed.Record{{Key: []byte("group"), Value: []byte("state of the group")}}}},
			Changes: []feed.Change{
				{Op: feed.OpCreate, Key: key, ID: fmt.Sprintf("order-%08d", i), After: []byte(`{"id":"order","type":"salesOrder"}`), Modified: c.Time},
				{
					Op: feed.OpReplace, Key: key, ID: fmt.Sprintf("customer-%08d", i), After: []byte(`{"id":"customer","salesOrderCount":3}`),
					Undo: []document.Splice{{Path: "/salesOrderCount", Offset: 34, Len: 1, Old: []byte("2")}},
					Prev: feed.Position{LSN: 7}, PrevModified: c.Time, Modified: c.Time,
				},
			},
		})
	}
	return c
}

// decoded returns what a decoded commit takes, its message included, as the mean
// of many, and one of them.
func decoded(tb testing.TB, data []byte) (int, *feed.Commit) {
	tb.Helper()
	copies := max(16, 4<<20/len(data))
	held := make([]*feed.Commit, copies)
	messages := make([][]byte, copies)
	var before, after runtime.MemStats
	// Twice: what a finalizer or a pool kept goes with the second.
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range held {
		messages[i] = append([]byte(nil), data...)
		var err error
		if held[i], err = feed.DecodeCommit(messages[i]); err != nil {
			tb.Fatal(err)
		}
	}
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	took := int(int64(after.HeapAlloc)-int64(before.HeapAlloc)) / copies
	runtime.KeepAlive(messages)
	return took, held[0]
}
