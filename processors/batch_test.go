package processors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// commitOf returns a commit of transactions with so many changes each.
func commitOf(lsn feed.LSN, sizes ...int) *feed.Commit {
	c := &feed.Commit{LSN: lsn, Time: int64(lsn) * 1000}
	n := 0
	for _, size := range sizes {
		t := feed.Transaction{}
		for range size {
			t.Changes = append(t.Changes, feed.Change{Op: feed.OpCreate, ID: fmt.Sprintf("%d.%d", lsn, n), After: []byte(`{}`)})
			n++
		}
		c.Transactions = append(c.Transactions, t)
	}
	return c
}

// names lists a batch's changes: their ids say where they must be.
func names(t *testing.T, b *Batch) []string {
	t.Helper()
	var ids []string
	for at, ch := range b.Changes() {
		if at.String() != ch.ID {
			t.Errorf("change %s is said to be at %s", ch.ID, at)
		}
		ids = append(ids, ch.ID)
	}
	return ids
}

func TestBatchPositions(t *testing.T) {
	b := newBatch(feed.Partition{}, []*feed.Commit{commitOf(1, 2, 0, 1), commitOf(2), commitOf(3, 1)})
	want := []string{"1.0", "1.1", "1.2", "3.0"}
	if diff := cmp.Diff(want, names(t, b)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if b.Len() != 4 || len(b.Parts) != 3 {
		t.Errorf("%d changes in %d parts, want 4 in 3", b.Len(), len(b.Parts))
	}
}

// Whatever is split, the halves hold every change once, in order, where it was.
func TestBatchSplit(t *testing.T) {
	b := newBatch(feed.Partition{}, []*feed.Commit{commitOf(1, 3, 2), commitOf(2, 5), commitOf(3, 1)})
	all := names(t, b)
	var leaves []string
	var halve func(*Batch)
	halve = func(b *Batch) {
		if b.Len() < 2 {
			leaves = append(leaves, names(t, b)...)
			return
		}
		first, second := b.split()
		if first.Len() == 0 || second.Len() == 0 {
			t.Fatalf("a batch of %d splits into %d and %d", b.Len(), first.Len(), second.Len())
		}
		halve(first)
		halve(second)
	}
	halve(b)
	if diff := cmp.Diff(all, leaves); diff != "" {
		t.Errorf("halves (-want +got):\n%s", diff)
	}
}

// sliceReader delivers commits and then an error.
type sliceReader struct {
	commits []*feed.Commit
	err     error
}

func (r *sliceReader) Next(context.Context) (*feed.Commit, error) {
	if len(r.commits) == 0 {
		return nil, r.err
	}
	c := r.commits[0]
	r.commits = r.commits[1:]
	return c, nil
}

func TestReadAheadIsBounded(t *testing.T) {
	a := newReadAhead(1<<20, 3)
	r := &sliceReader{err: errors.New("end")}
	for lsn := feed.LSN(1); lsn <= 10; lsn++ {
		r.commits = append(r.commits, commitOf(lsn, 10))
	}
	done := make(chan error, 1)
	go func() { done <- a.run(t.Context(), r) }()
	var got []feed.LSN
	for len(got) < 10 {
		<-a.ready
		taken := a.takeCommits(25, 1<<20)
		if len(taken) > 2 {
			t.Errorf("took %d commits of 10 changes, want at most 25 changes", len(taken))
		}
		for _, c := range taken {
			got = append(got, c.LSN)
		}
		a.mu.Lock()
		if len(a.commits) > 3 {
			t.Errorf("%d commits wait, want at most 3", len(a.commits))
		}
		a.mu.Unlock()
	}
	if err := <-done; err == nil || err.Error() != "end" {
		t.Errorf("run ended with %v", err)
	}
	if !slices.IsSorted(got) {
		t.Errorf("order %v", got)
	}
}

// A commit larger than all bounds passes alone.
func TestReadAheadTakesOneLargeCommit(t *testing.T) {
	a := newReadAhead(10, 1)
	if !a.putCommit(t.Context(), commitOf(1, 50)) {
		t.Fatal("not put")
	}
	if taken := a.takeCommits(1, 1); len(taken) != 1 {
		t.Fatalf("took %d commits", len(taken))
	}
}

func TestFailureOf(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context //nolint:containedctx // a case of the table
		err  error
		want Failure
	}{
		"a fenced write":                       {t.Context(), fmt.Errorf("page: %w", store.ErrFenced), Fenced},
		"a fenced write after the end":         {ended, store.ErrFenced, Fenced},
		"anything after the end":               {ended, errors.New("x"), Canceled},
		"no owner":                             {t.Context(), &store.NoOwnerError{}, Unavailable},
		"an unknown outcome":                   {t.Context(), fmt.Errorf("x: %w", store.ErrUnknown), Unavailable},
		"an index that is being built":         {t.Context(), &store.Error{Status: store.StatusUnavailable, RetryAfter: 1}, Unavailable},
		"a full queue":                         {t.Context(), &store.Error{Status: store.StatusTooManyRequests}, Unavailable},
		"a full disk":                          {t.Context(), store.ErrDiskFull, Unavailable},
		"a request's own deadline":             {t.Context(), context.DeadlineExceeded, Unavailable},
		"an internal error":                    {t.Context(), &store.Error{Status: store.StatusInternal}, Transient},
		"an unknown error":                     {t.Context(), errors.New("x"), Transient},
		"a bad request":                        {t.Context(), store.ErrBadRequest, Permanent},
		"what a processor rejects":             {t.Context(), Reject(errors.New("x")), Permanent},
		"a rejection of something unreachable": {t.Context(), Reject(store.ErrUnavailable), Permanent},
	} {
		if got := FailureOf(c.ctx, c.err); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
