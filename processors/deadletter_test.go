package processors_test

import (
	"errors"
	"strings"
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

// An item among the dead letters that is none hides no other of its pipeline: it is told of, and
// can be dropped.
func TestDeadLetters_HidesNoneForOneThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{})
	good := &processors.DeadLetter{Pipeline: "names-x", Generation: 2, Role: processors.RoleSource, Partition: partition.String(), Time: time.Now(), Item: `["k"]/a`, Reason: "too large"}
	if err := s.letters.Write(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	container, err := s.client.Container(t.Context(), processors.DeadLetterDatabase, processors.DeadLetterContainer)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range []string{`{"id":"later","pipeline":"names-x","version":9}`, `{"id":"torn","pipeline":"names-x","version":1,"attempts":"two"}`} {
		if _, err := container.Create(t.Context(), []byte(item)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.letters.List(t.Context(), "names-x", 10)
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v, want three", all, err)
	}
	unread := 0
	for i := range all {
		switch l := &all[i]; {
		case l.ID == "later" && strings.Contains(l.Reason, "version 9"), l.ID == "torn" && strings.Contains(l.Reason, "cannot be read"):
			unread++
			if err := s.letters.Drop(t.Context(), "names-x", l.ID); err != nil {
				t.Error(err)
			}
		case l.Item != good.Item:
			t.Errorf("%+v is neither the one that was written nor named as one that cannot be read", l)
		}
	}
	if unread != 2 {
		t.Errorf("%d are named as ones that cannot be read, want 2", unread)
	}
	if left, err := s.letters.List(t.Context(), "names-x", 10); err != nil || len(left) != 1 {
		t.Errorf("%+v, %v are left, want the one that was written", left, err)
	}
}
