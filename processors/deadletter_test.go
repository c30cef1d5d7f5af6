package processors_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// A dead letter is one item, however often it is written; it may be asked for again
// and dropped.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	deadLetters := newStage(t, processors.Config{}).letters
	at := func(lsn feed.LSN, target string) *processors.DeadLetter {
		return &processors.DeadLetter{
			Pipeline: "names-x", Generation: 2, Role: processors.RoleSource, Partition: partition.String(), Time: time.UnixMilli(int64(lsn)).UTC(),
			Item: `["k"]/a`, Position: feed.Position{LSN: lsn, Index: 3}, Target: target, Status: 413, Reason: "too large", Attempts: 1,
		}
	}
	written := []*processors.DeadLetter{at(7, ""), at(9, `["k"]/b`), at(9, `["k"]/c`)}
	for range 2 {
		for _, l := range written {
			if err := deadLetters.Write(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := deadLetters.List(t.Context(), "names-x", 10)
	if err != nil || len(got) != len(written) {
		t.Fatalf("%d letters, %v, want %d", len(got), err, len(written))
	}
	for i := range got {
		want := *written[i]
		for _, w := range written {
			if w.Target == got[i].Target && w.Position == got[i].Position {
				want = *w
			}
		}
		want.ID = got[i].ID
		if diff := cmp.Diff(want, got[i]); diff != "" {
			t.Errorf("letter (-want +got):\n%s", diff)
		}
	}
	// The oldest, however many there are, and whatever the order of their ids.
	for lsn := feed.LSN(20); lsn < 30; lsn++ {
		l := at(lsn, "")
		l.Pipeline, l.Time = "many-x", time.UnixMilli(int64(100-lsn)).UTC()
		if err := deadLetters.Write(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	oldest, err := deadLetters.List(t.Context(), "many-x", 2)
	if err != nil || len(oldest) != 2 || oldest[0].Position.LSN != 29 || oldest[1].Position.LSN != 28 {
		t.Errorf("the oldest two of ten are %+v, %v", oldest, err)
	}
	id := got[0].ID
	if err := deadLetters.Retry(t.Context(), "names-x", id); err != nil {
		t.Fatal(err)
	}
	if l, err := deadLetters.Get(t.Context(), "names-x", id); err != nil || l.Retry.IsZero() {
		t.Errorf("after a retry was asked for: %+v, %v", l, err)
	}
	if err := deadLetters.Drop(t.Context(), "names-x", id); err != nil {
		t.Fatal(err)
	}
	if _, err := deadLetters.Get(t.Context(), "names-x", id); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a letter that was dropped: %v", err)
	}
	for _, err := range []error{deadLetters.Retry(t.Context(), "names-x", id), deadLetters.Drop(t.Context(), "names-x", id)} {
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("of a letter that is gone: %v", err)
		}
	}
}
