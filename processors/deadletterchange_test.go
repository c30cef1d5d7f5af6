package processors_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// keeper gives everything up, and shows what a retry is handed.
type keeper struct {
	recorder
	retried chan processors.Parked
}

func newKeeper() *keeper {
	return &keeper{
		recorder: recorder{fail: func([]string) error { return processors.Reject(errors.New("it is bad")) }},
		retried:  make(chan processors.Parked, 1),
	}
}

func (k *keeper) Retry(_ context.Context, p *processors.Parked) error {
	k.retried <- *p
	return p.Missing
}

// next waits for the next retry.
func (k *keeper) next(t *testing.T) processors.Parked {
	t.Helper()
	select {
	case p := <-k.retried:
		return p
	case <-time.After(time.Minute):
		t.Fatal("nothing was tried again")
		panic("unreachable")
	}
}

// pieces returns the ids of what is kept of changes.
func (s *stage) pieces() (ids []string) {
	s.t.Helper()
	c, err := s.client.Container(s.t.Context(), processors.DeadLetterDatabase, processors.DeadLetterContainer)
	if err != nil {
		s.t.Fatal(err)
	}
	key, err := feed.NewPartitionKey("names/changes")
	if err != nil {
		s.t.Fatal(err)
	}
	for scan := (store.Scan{Scope: store.Scope{Key: key}, Barrier: true}); ; {
		page, err := c.Scan(s.t.Context(), c.PartitionFor(key), scan)
		if err != nil {
			s.t.Fatalf("pieces of changes: %v", err)
		}
		for i := range page.Items {
			ids = append(ids, page.Items[i].ID)
		}
		if scan.After = page.Cursor; scan.After == nil {
			break
		}
	}
	return ids
}

// retry asks for a retry of a dead letter, and done waits until it is gone, with its change.
func (s *stage) retry(id string) {
	s.t.Helper()
	if err := s.letters.Retry(s.t.Context(), "names", id); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) done(id string) {
	s.t.Helper()
	poll.Until(s.t, func() error {
		_, err := s.letters.Get(s.t.Context(), "names", id)
		kept := slices.ContainsFunc(s.pieces(), func(piece string) bool { return strings.HasPrefix(piece, id) })
		return poll.Unless(errors.Is(err, store.ErrNotFound) && !kept, fmt.Sprintf("%v, pieces %v", err, s.pieces()))
	})
}

// A change as large as the log takes one is kept whole, in pieces, and what is kept goes
// with its dead letter.
func TestADeadLetterKeepsItsChange(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	body := func(fill string) []byte {
		return fmt.Appendf(nil, `{"id":"a","fill":%q}`, strings.Repeat(fill, (store.ItemBytesMax-30)/len(fill)))
	}
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		t.Fatal(err)
	}
	change := feed.Change{
		Op: feed.OpReplace, Key: key, ID: "a", After: body("after "), Before: body("before "), Prev: feed.Position{LSN: 3, Index: 1}, PrevModified: 5,
		Modified: 6, Written: 2,
	}
	small := feed.Change{Op: feed.OpCreate, Key: key, ID: "b", After: []byte(`{"id":"b"}`)}
	transaction := feed.Transaction{TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Changes: []feed.Change{small, change}}
	s.appendTransaction(transaction)
	k := newKeeper()
	l := newLease()
	s.run(l, k)
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return len(cp.Parked) == 2 })

	list, err := s.letters.List(t.Context(), "names", 10)
	if err != nil || len(list) != 2 || list[1].Position != (feed.Position{LSN: 1, Index: 1}) {
		t.Fatalf("dead letters: %+v, %v", list, err)
	}
	if ids := s.pieces(); len(ids) != 1+5 {
		t.Errorf("the two changes are kept as %v", ids)
	}
	s.retry(list[1].ID)
	p := k.next(t)
	got := *p.Change
	if !bytes.Equal(got.After, change.After) || !bytes.Equal(got.Before, change.Before) {
		t.Errorf("the change that is tried again has %d and %d bytes, want %d and %d", len(got.Before), len(got.After), len(change.Before), len(change.After))
	}
	want := change
	got.Before, got.After, want.Before, want.After = nil, nil, nil, nil
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(feed.PartitionKey{})); diff != "" {
		t.Errorf("the change that is tried again (-want +got):\n%s", diff)
	}
	if p.Item != `["k"]/a` || p.At != list[1].Position || p.Commit.LSN != 1 || p.Commit.Time == 0 || p.Transaction.TraceParent != transaction.TraceParent {
		t.Errorf("tried again: %s at %s, commit %+v", p.Item, p.At, p.Commit)
	}
	if err := s.letters.Drop(t.Context(), "names", list[0].ID); err != nil {
		t.Fatal(err)
	}
	s.done(list[1].ID)
}

// A change that the log does not hold, because it was trimmed or is an item that a walk
// came to, is tried again all the same; one that no dead letter keeps says what to do.
func TestADeadLetterNeedsNoLog(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		t.Fatal(err)
	}
	letter := func(at feed.Position) *processors.DeadLetter {
		return &processors.DeadLetter{
			Pipeline: "names", Generation: 1, Role: processors.RoleSource, Partition: partition.String(), Time: time.UnixMilli(int64(at.Index)).UTC(),
			Item: `["k"]/w`, Position: at, Reason: "it is bad", Attempts: 8,
		}
	}
	kept := letter(feed.Position{LSN: 1, Index: 1<<31 + 4})
	change := feed.Change{Op: feed.OpCreate, Key: key, ID: "w", After: []byte(`{"id":"w"}`)}
	kept.Change = &feed.Commit{LSN: 1, Transactions: []feed.Transaction{{Changes: []feed.Change{change}}}}
	lost := letter(feed.Position{LSN: 1, Index: 1<<31 + 5})
	gone := letter(feed.Position{LSN: 90})
	for _, l := range []*processors.DeadLetter{kept, lost, gone} {
		if err := s.letters.Write(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	s.append("a") // parked, so that dead letters are looked for
	list, err := s.letters.List(t.Context(), "names", 10)
	if err != nil || len(list) != 3 {
		t.Fatalf("dead letters: %+v, %v", list, err)
	}
	k := newKeeper()
	s.run(newLease(), k)
	for i := range list {
		s.retry(list[i].ID)
		p := k.next(t)
		if p.Item != `["k"]/w` || p.At != list[i].Position {
			t.Errorf("tried again: %s at %s", p.Item, p.At)
		}
		if list[i].Position == kept.Position {
			if p.Change == nil || p.Missing != nil || !bytes.Equal(p.Change.After, change.After) {
				t.Errorf("a change that is kept: %+v, missing %v", p.Change, p.Missing)
			}
			s.done(list[i].ID)
			continue
		}
		if p.Change != nil || p.Missing == nil || processors.FailureOf(t.Context(), p.Missing) != processors.Permanent {
			t.Errorf("a change that nobody has: %+v, missing %v", p.Change, p.Missing)
		}
		poll.Until(t, func() error {
			l, err := s.letters.Get(t.Context(), "names", list[i].ID)
			if err != nil {
				return err
			}
			return poll.Unless(!l.Asked() && strings.Contains(l.Reason, "millrace repair"), l.Reason)
		})
	}
}

// A generation that is forgotten leaves no change behind, not even one whose dead letter
// went alone.
func TestForgetDropsTheChangesOfDeadLetters(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	s.append("a", "b")
	l := newLease()
	stop := s.run(l, newKeeper())
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return len(cp.Parked) == 2 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	list, err := s.letters.List(t.Context(), "names", 10)
	if err != nil || len(list) != 2 || len(s.pieces()) != 2 {
		t.Fatalf("dead letters: %+v, %v, pieces %v", list, err, s.pieces())
	}
	c, err := s.client.Container(t.Context(), processors.DeadLetterDatabase, processors.DeadLetterContainer)
	if err != nil {
		t.Fatal(err)
	}
	key, err := feed.NewPartitionKey("names")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), key, list[0].ID); err != nil { // as an earlier release drops it
		t.Fatal(err)
	}
	if err := s.letters.Drop(t.Context(), "names", list[0].ID); !errors.Is(err, store.ErrNotFound) || len(s.pieces()) != 1 {
		t.Errorf("dropped again: %v, pieces %v", err, s.pieces())
	}
	other := resource
	other.Generation = 2
	if err := s.letters.Forget(t.Context(), other); err != nil || len(s.pieces()) != 1 {
		t.Errorf("after another generation was forgotten: %v, pieces %v", err, s.pieces())
	}
	if err := s.letters.Forget(t.Context(), resource); err != nil || len(s.pieces()) != 0 {
		t.Errorf("forgotten: %v, pieces %v", err, s.pieces())
	}
}
