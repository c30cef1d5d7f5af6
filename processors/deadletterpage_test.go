package processors_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// fill writes n dead letters of a processor as items, a batch at a time.
func (s *stage) fill(r processors.Resource, n int, tune func(i int, l map[string]any)) {
	s.t.Helper()
	c, err := s.client.Container(s.t.Context(), processors.DeadLetterDatabase, processors.DeadLetterContainer)
	if err != nil {
		s.t.Fatal(err)
	}
	key, err := feed.NewPartitionKey(r.Pipeline)
	if err != nil {
		s.t.Fatal(err)
	}
	var ops []store.Operation
	for i := range n {
		position := fmt.Sprintf("%d.0", i+2)
		l := map[string]any{
			"id":      fmt.Sprintf("%s-%s-%d-%s", r.Role, strings.ReplaceAll(r.Partition.String(), "/", "."), r.Generation, position),
			"version": 1, "pipeline": r.Pipeline, "generation": r.Generation, "role": r.Role, "partition": r.Partition.String(),
			"time": time.UnixMilli(int64(i)).UTC(), "item": fmt.Sprintf(`["k"]/i%d`, i), "position": position, "reason": "it is bad",
		}
		if tune != nil {
			tune(i, l)
		}
		body, err := json.Marshal(l)
		if err != nil {
			s.t.Fatal(err)
		}
		if ops = append(ops, store.Operation{Kind: store.OpCreate, Body: body}); len(ops) == store.BatchOpsMax || i == n-1 {
			if result, err := c.Batch(s.t.Context(), key, ops, ""); err != nil {
				s.t.Fatal(err, result)
			}
			ops = nil
		}
	}
}

// A dead letter is tried again however many others of its pipeline were given up before it.
func TestRetry_FindsWhatIsBehindMany(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	s.fill(resource, processors.DeadLetterPageMax, nil)
	s.append("a")
	l := newLease()
	r := &counted{retrier{recorder: recorder{fail: func([]string) error { return processors.Reject(errors.New("it is bad")) }}, retry: func(string) error { return nil }}}
	s.run(l, r)
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return len(cp.Parked) == 1 })
	s.retry("source-" + strings.ReplaceAll(partition.String(), "/", ".") + "-1-1.0")
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return len(cp.Parked) == 0 })
}

// A page of dead letters is bounded in number and bytes, and page by page all of them are seen.
func TestDeadLetters_ArePaged(t *testing.T) {
	t.Parallel()
	const n, large = processors.DeadLetterPageMax + 301, 4500
	s := newStage(t, processors.Config{})
	s.fill(resource, n, func(i int, l map[string]any) {
		// The latest changes were given up first.
		l["time"] = time.UnixMilli(int64(n - i)).UTC()
		if i < large {
			l["reason"] = strings.Repeat("x", 4<<10)
		}
	})
	if l, err := s.letters.List(t.Context(), "names", 1); err != nil || len(l) != 1 || l[0].Item != fmt.Sprintf(`["k"]/i%d`, n-1) {
		t.Errorf("the oldest is %+v, %v", l, err)
	}
	seen, pages := 0, 0
	var after processors.DeadLetterMark
	for {
		page, err := s.letters.Page(t.Context(), "names", after, processors.DeadLetterPageMax)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Letters {
			if want := fmt.Sprintf(`["k"]/i%d`, n-1-seen-i); page.Letters[i].Item != want {
				t.Fatalf("%s at %d, want %s", page.Letters[i].Item, seen+i, want)
			}
		}
		seen += len(page.Letters)
		pages++
		if page.Total != n || page.More != n-seen {
			t.Fatalf("%d seen, %d are said to follow of %d", seen, page.More, page.Total)
		}
		bounded(t, page.Letters)
		if page.More == 0 {
			break
		}
		if after, err = processors.ParseDeadLetterMark(page.Next.String()); err != nil {
			t.Fatal(err)
		}
	}
	if seen != n || pages < 3 {
		t.Errorf("%d seen on %d pages, want %d on 3 or more", seen, pages, n)
	}
}

// bounded fails if a page is larger than one may be.
func bounded(t *testing.T, page []processors.DeadLetter) {
	t.Helper()
	bytes := 0
	for i := range page {
		bytes += len(page[i].Reason)
	}
	if len(page) > processors.DeadLetterPageMax || bytes > 8<<20 {
		t.Errorf("a page has %d dead letters with reasons of %d bytes", len(page), bytes)
	}
}

// A walk comes to each dead letter that was there once and in the order of the changes, also where
// those that it has passed are given up again meanwhile, and others for the first time.
func TestDeadLetters_WalkComesToEachOnce(t *testing.T) {
	t.Parallel()
	const n = processors.DeadLetterPageMax + 301
	s := newStage(t, processors.Config{})
	// One clock is far ahead.
	s.fill(resource, n, func(i int, l map[string]any) {
		if i == 7 {
			l["time"] = time.Now().Add(24 * time.Hour).UTC()
		}
	})
	seen := 0
	again := func(l *processors.DeadLetter) {
		l.Time = time.Now().UTC()
		if err := s.letters.Write(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	err := s.letters.Walk(t.Context(), "names", func(page []processors.DeadLetter, all int) error {
		if all != n {
			t.Errorf("%d are said to be there, want %d", all, n)
		}
		bounded(t, page)
		for i := range page {
			if want := fmt.Sprintf(`["k"]/i%d`, seen+i); page[i].Item != want {
				t.Fatalf("%s at %d, want %s", page[i].Item, seen+i, want)
			}
		}
		again(&page[0])
		fresh := page[0]
		fresh.Position, fresh.Item = feed.Position{LSN: feed.LSN(n + 100 + seen)}, "new"
		again(&fresh)
		seen += len(page)
		return nil
	})
	if err != nil || seen != n {
		t.Errorf("came to %d, %v, want %d", seen, err, n)
	}
	stop := errors.New("stop")
	if err := s.letters.Walk(t.Context(), "names", func([]processors.DeadLetter, int) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a walk that each ends: %v", err)
	}
	if err := s.letters.Walk(t.Context(), "other", func([]processors.DeadLetter, int) error { return stop }); err != nil {
		t.Errorf("a walk through none: %v", err)
	}
}

// A retry is asked for of many at once, and one that is gone holds up no other.
func TestDeadLetters_RetryMany(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{})
	s.fill(resource, 5, nil)
	all, err := s.letters.List(t.Context(), "names", 10)
	if err != nil || len(all) != 5 {
		t.Fatalf("%+v, %v", all, err)
	}
	asked := func(ids ...string) (n int) {
		t.Helper()
		if err := s.letters.RetryMany(t.Context(), "names", ids); err != nil {
			t.Error(err)
		}
		now, err := s.letters.List(t.Context(), "names", 10)
		if err != nil {
			t.Fatal(err)
		}
		for i := range now {
			if !now[i].Retry.IsZero() {
				n++
			}
		}
		return n
	}
	if n := asked(all[0].ID, all[1].ID); n != 2 {
		t.Errorf("%d are asked for, want 2", n)
	}
	if n := asked(all[2].ID, "gone", all[3].ID); n != 4 {
		t.Errorf("%d are asked for, want 4", n)
	}
}

// handlerFunc answers requests.
type handlerFunc func(ctx context.Context, r *store.Request) *store.Response

func (f handlerFunc) Handle(ctx context.Context, r *store.Request) *store.Response { return f(ctx, r) }

// Forget drops what it has read before it reads on, and what it has dropped when it ends early
// stays dropped.
func TestForget_GoesPageByPage(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{})
	other := resource
	other.Generation = 2
	const n = 1001
	s.fill(resource, n, nil)
	s.fill(other, 3, nil)

	c, err := s.client.Container(t.Context(), processors.DeadLetterDatabase, processors.DeadLetterContainer)
	if err != nil {
		t.Fatal(err)
	}
	// Between Forget and the owner: the third reading of a page is refused.
	scans, held, heldMax := 0, 0, 0
	h := handlerFunc(func(ctx context.Context, r *store.Request) *store.Response {
		if r.Scan != nil {
			if scans++; scans == 3 {
				return &store.Response{Err: &store.Error{Status: store.StatusBadRequest, Message: "not now"}}
			}
		}
		resp, err := s.client.Do(ctx, r)
		if err != nil {
			refusal, ok := errors.AsType[*store.Error](err)
			if !ok {
				t.Error(err)
				refusal = &store.Error{Status: store.StatusBadRequest, Message: err.Error()}
			}
			return &store.Response{Err: refusal}
		}
		switch {
		case r.Scan != nil:
			held += len(resp.Scan.Items)
			heldMax = max(heldMax, held)
		case r.Transact != nil:
			held--
		}
		return resp
	})
	local := &store.Local{}
	for _, p := range c.Partitions() {
		local.Add(p, h)
	}
	letters := processors.FindDeadLetters(store.NewClient(nil, s.client.Catalog(), store.ClientConfig{Local: local, Timeout: time.Minute}))
	if err := letters.Forget(t.Context(), resource); err == nil {
		t.Error("it ended although a page could not be read")
	}
	if left, err := s.letters.List(t.Context(), "names", 2*n); err != nil || len(left) >= n {
		t.Errorf("%d are left, %v, want fewer than %d", len(left), err, n)
	}
	if err := letters.Forget(t.Context(), resource); err != nil {
		t.Fatal(err)
	}
	if heldMax > 250 {
		t.Errorf("it held %d dead letters at a time of %d", heldMax, n)
	}
	left, err := s.letters.List(t.Context(), "names", 10)
	if err != nil || len(left) != 3 {
		t.Errorf("%d are left, %v, want those of another generation", len(left), err)
	}
	if err := letters.Forget(t.Context(), resource); err != nil {
		t.Errorf("once more: %v", err)
	}
}
