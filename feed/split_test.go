package feed_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
)

// A reader of a partition that was split reads all of its log, the split commit too, and is told then where to go on.
func TestReader_EndsBehindTheSplitCommit(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	w.append(2)
	want := &feed.Split{ID: "s1", First: 1 << 20, Children: []feed.Offshoot{
		{Number: 4, Range: feed.Range{Max: "\x10"}, Log: feed.NewLogID(), Genesis: feed.NewCommitID()},
		{Number: 5, Range: feed.Range{Min: "\x10", Max: feed.EPKMax}, Log: feed.NewLogID(), Genesis: feed.NewCommitID()},
	}}
	control, err := want.Control(feed.ControlSplit)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := w.commit(0)
	c.Transactions = []feed.Transaction{{Control: control}}
	if w.last, err = w.l.Append(t.Context(), w.last, c.ID, feed.AppendCommit(nil, c)); err != nil {
		t.Fatal(err)
	}
	h := newHub(t, b, feed.HubConfig{})
	for range 2 { // the second one reads what the first has read
		r := mustReader(t, h, b, feed.Position{})
		expect(t, r, 1, 3)
		for range 2 {
			_, err := r.Next(t.Context())
			ended, ok := errors.AsType[*feed.SplitError](err)
			if !ok || ended.Last != 3 || ended.Sum != c.Sum || !reflect.DeepEqual(ended.Split, want) {
				t.Fatalf("behind the end: %+v, want a split at 3 into %+v", err, want)
			}
		}
	}
	if _, err := feed.DecodeSplit([]byte(`{"v":2,"id":"s9"}`)); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("a split of a later version: %v", err)
	}
}
