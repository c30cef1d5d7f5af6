package project_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/sinktest"
	"github.com/millrace/millrace/store"
)

var _ processors.Retrier = (*project.RowWriter)(nil)

const day = "2014-08-16T00:00:00"

func TestI6_RowsFollowTheirItems(t *testing.T) {
	t.Parallel()
	for name, buffer := range map[string]bool{"written through": false, "buffered": true} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			cfg := analytics(t)
			cfg.OnExpire = project.Delete
			cfg.Sink = sinktest.NewMemory(sinktest.NewDisk(), buffer)
			cfg.FlushInterval = 5 * time.Millisecond
			p := compile(t, cfg)
			l := newLease()
			stop := s.run(l, p)
			s.append(set{id: "c1", body: `{"id":"c1","type":"customer","firstName":"Ann","lastName":"Lee"}`}, set{id: "o1", body: orderItem("o1", day, "a", "b", "c")})
			s.append(set{id: "o1", body: orderItem("o1", day, "b", "c")}, set{id: "o2", body: orderItem("o2", "never", "a")})
			s.append(set{id: "x", body: `{"id":"x","type":"other"}`})
			s.done(l)
			s.equal(p)
			s.append(set{id: "o2", body: orderItem("o2", day, "z")}, set{id: "x"}, set{id: "c1", body: `{"id":"c1","type":"gone"}`})
			s.append(set{id: "o1", op: feed.OpExpire})
			cp := s.done(l)
			s.equal(p)
			if cp.Counts.Rejects != 1 || cp.Counts.Rows < 12 || !cp.Taken.IsZero() || cp.Recorded.LSN != s.last {
				t.Errorf("the checkpoint is %+v", cp)
			}
			want := []string{`orders customer/["c1"]/o2 column orderDate: is "never", and the column takes times such as 2024-01-31T08:30:00Z`}
			if diff := cmp.Diff(want, cp.Rejected); diff != "" {
				t.Errorf("rejects that are told (-want +got):\n%s", diff)
			}
			if err := stop(); err != nil {
				t.Errorf("the term ended with %v", err)
			}
			s.noDeadLetters()
		})
	}
}

// What a batch says of a row is its newest state, and only what has changed.
func TestBatchesAreCoalesced(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := analytics(t)
	var mu sync.Mutex
	var said [][]string
	cfg.Sink = &tap{Memory: sinktest.NewMemory(sinktest.NewDisk(), false), write: func(b *project.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		lines := []string{b.After.String() + " " + b.UpTo.String()}
		for what, rows := range map[string][]project.Row{"put": b.Put, "drop": b.Drop} {
			for _, r := range rows {
				lines = append(lines, fmt.Sprintf("%s %d %v %s", what, r.Table, r.Key, r.Element))
			}
		}
		for what, rejects := range map[string][]project.Reject{"reject": b.Reject, "accept": b.Accept} {
			for _, r := range rejects {
				lines = append(lines, fmt.Sprintf("%s %d %s %s", what, r.Table, r.Element, r.Column))
			}
		}
		said = append(said, lines)
		return nil
	}}
	p := compile(t, cfg)
	l := newLease()
	check := func(name string, want ...string) {
		t.Helper()
		s.done(l)
		mu.Lock()
		defer mu.Unlock()
		var got []string
		if len(said) == 1 {
			got = said[0]
		} else if len(said) > 1 {
			t.Errorf("%s: %d batches: %v", name, len(said), said)
		}
		sortStrings(want)
		sortStrings(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		said = nil
	}
	s.append(set{id: "c1", body: `{"id":"c1","type":"customer"}`}, set{id: "o1", body: orderItem("o1", day, "a", "b")},
		set{id: "o1", body: orderItem("o1", day, "c")}, set{id: "c1"}, set{id: "o2", body: orderItem("o2", "bad")}, set{id: "o2", body: orderItem("o2", day)})
	s.run(l, p)
	check("the newest state of each", "0.0 1.5", "drop 0 [c1] ", "put 1 [o1] ", "put 2 [o1 0] 0", "drop 2 [o1 1] 1", "put 1 [o2] ", "accept 1  ")
	s.append(set{id: "o1", body: strings.Replace(orderItem("o1", day, "c"), "{", `{"note":"not read",`, 1)})
	check("nothing that is read changed")
	s.append(set{id: "z", body: `{"id":"z","type":"other"}`})
	check("nothing that is selected")
	s.append(set{id: "o1", op: feed.OpExpire})
	check("an expired item keeps its rows")
	s.append(set{id: "o1", body: orderItem("o1", day, "c", "d")})
	check("the interval goes on where the sink is", "1.5 5.0", "put 1 [o1] ", "put 2 [o1 0] 0", "put 2 [o1 1] 1")
	s.append(set{id: "o1"})
	check("a deleted one does not", "5.0 6.0", "drop 1 [o1] ", "drop 2 [o1 0] 0", "drop 2 [o1 1] 1")
	s.append(set{id: "o3", body: orderItem("o3", day, "a")}, set{id: "o4", body: orderItem("o4", day, "b", "c")})
	check("two more", "6.0 7.1", "put 1 [o3] ", "put 2 [o3 0] 0", "put 1 [o4] ", "put 2 [o4 0] 0", "put 2 [o4 1] 1")
	s.append(set{id: "o4"}, set{id: "o3"}, set{id: "o2", body: orderItem("o2", day, "d")})
	check("the rows of each of several that go", "7.1 8.2", "drop 1 [o4] ", "drop 2 [o4 0] 0", "drop 2 [o4 1] 1", "drop 1 [o3] ", "drop 2 [o3 0] 0", "put 2 [o2 0] 0")
}

// A sink is given a few megabytes at once, however many rows a few changes make.
func TestBatchesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := analytics(t)
	cfg.Tables = []project.Table{{
		Name: "lines", Each: "details", Key: []string{"order", "line"},
		Columns: []project.Column{{Name: "order", Expr: "item.id"}, {Name: "line", Expr: "index"}, {Name: "note", Expr: "item.note"}},
	}}
	var mu sync.Mutex
	var most, all int
	cfg.Sink = &tap{Memory: sinktest.NewMemory(sinktest.NewDisk(), false), write: func(b *project.Batch) error {
		bytes := 0
		for i := range b.Put {
			bytes += len(b.Put[i].Values[2].Text())
		}
		mu.Lock()
		defer mu.Unlock()
		most, all = max(most, bytes), all+bytes
		return nil
	}}
	p := compile(t, cfg)
	var changes []set
	for i := range 10 {
		id := fmt.Sprint("o", i)
		details := strings.Repeat(`,{}`, 20)[1:]
		changes = append(changes, set{id: id, body: `{"id":"` + id + `","note":"` + strings.Repeat("n", 90_000) + `","details":[` + details + `]}`})
	}
	s.append(changes...)
	l := newLease()
	s.run(l, p)
	s.done(l)
	s.equal(p)
	mu.Lock()
	defer mu.Unlock()
	if most > 10<<20 || all < 18_000_000 {
		t.Errorf("of %d bytes in all a batch has %d", all, most)
	}
}

func TestI5_WhatWasNotDurableIsReadAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := analytics(t)
	disk := sinktest.NewDisk()
	cfg.Sink = sinktest.NewMemory(disk, true)
	cfg.FlushInterval, cfg.FlushRowsMax = time.Hour, 10
	p := compile(t, cfg)
	l := newLease()
	stop := s.run(l, p)
	s.append(set{id: "o1", body: orderItem("o1", day, "a", "b")})
	cp := l.wait(t, func(cp *processors.Checkpoint) bool { return cp.Taken.LSN == 1 })
	if !cp.Position.IsZero() || !cp.Recorded.IsZero() {
		t.Errorf("three rows are held, and the checkpoint is %+v", cp)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	// The next process finds nothing, reads again, and flushes when the sink is full.
	cfg.Sink = sinktest.NewMemory(disk, true)
	p = compile(t, cfg)
	s.run(l, p)
	s.append(set{id: "o2", body: orderItem("o2", day, "a", "b", "c", "d", "e", "f", "g")})
	s.done(l)
	s.equal(p)
	s.noDeadLetters()
}

func TestTheSinkIsWaitedFor(t *testing.T) {
	t.Parallel()
	for step, buffer := range map[string]bool{"open": false, "flush": true, "flush when full": true} {
		t.Run(step, func(t *testing.T) {
			t.Parallel() // the pauses are long
			s := newStage(t)
			cfg := analytics(t)
			// More often than a change is tried before it is given up.
			f := &flaky{left: map[string]int{strings.TrimSuffix(step, " when full"): processors.AttemptsMax + 1}, cause: errAway}
			memory := sinktest.NewMemory(sinktest.NewDisk(), buffer)
			memory.Fail = f.fail
			cfg.Sink, cfg.FlushInterval = memory, time.Millisecond
			if strings.Contains(step, "full") {
				cfg.FlushInterval, cfg.FlushRowsMax = time.Hour, 1
			}
			p := compile(t, cfg)
			l := newLease()
			s.append(set{id: "o1", body: orderItem("o1", day, "a")})
			s.append(set{id: "o2", body: orderItem("o2", day, "a")})
			s.run(l, p)
			cp := l.wait(t, func(cp *processors.Checkpoint) bool { return cp.Attempts > 2 })
			if !strings.Contains(cp.LastError, errAway.Error()) || !cp.Position.IsZero() {
				t.Errorf("while the sink is away the checkpoint is %+v", cp)
			}
			cp = l.wait(t, func(cp *processors.Checkpoint) bool { return cp.Position.LSN == s.last && cp.Attempts == 0 })
			if cp.LastError != "" || len(cp.Parked) > 0 {
				t.Errorf("when it is back the checkpoint is %+v", cp)
			}
			s.equal(p)
			s.noDeadLetters()
		})
	}
}

// A row that the sink can never take ends in the dead letters, alone.
func TestARowThatIsRefusedIsIsolated(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := analytics(t)
	cfg.Sink = &tap{Memory: sinktest.NewMemory(sinktest.NewDisk(), false), write: func(b *project.Batch) error {
		for _, r := range b.Put {
			if r.Key[0].Text() == "o2" {
				return processors.Reject(errors.New("o2 is not liked"))
			}
		}
		return nil
	}}
	p := compile(t, cfg)
	l := newLease()
	s.append(set{id: "o1", body: orderItem("o1", day, "a")}, set{id: "o2", body: orderItem("o2", day, "a")}, set{id: "o3", body: orderItem("o3", day, "a")})
	s.append(set{id: "o4", body: orderItem("o4", day, "a")}, set{id: "o1"})
	s.run(l, p)
	cp := s.done(l)
	if len(cp.Parked) != 1 || cp.Parked[0].Source != `["c1"]/o2` {
		t.Errorf("parked: %+v", cp.Parked)
	}
	deadLetters, err := s.letters.List(t.Context(), "analytics", 10)
	if err != nil || len(deadLetters) != 1 || deadLetters[0].Item != `["c1"]/o2` || !strings.Contains(deadLetters[0].Reason, "not liked") {
		t.Errorf("dead letters: %+v, %v", deadLetters, err)
	}
	delete(s.items, "o2")
	s.equal(p)
}

func TestI5_ALateTermEnds(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := analytics(t)
	disk := sinktest.NewDisk()
	cfg.Sink = sinktest.NewMemory(disk, false)
	p := compile(t, cfg)
	l := newLease()
	s.run(l, p)
	s.append(set{id: "o1", body: orderItem("o1", day, "a")})
	s.done(l)
	other := sinktest.NewMemory(disk, false)
	if _, _, err := other.Open(t.Context(), p.Schema(), project.Term{Producer: p.Resource(partition).Producer(), Epoch: 99}); err != nil {
		t.Fatal(err)
	}
	s.append(set{id: "o2", body: orderItem("o2", day, "a")})
	err := s.ends(newLease(), p)
	if behind, ok := errors.AsType[*leases.EpochBehindError](err); !errors.Is(err, processors.ErrFenced) || !ok || behind.Seen != 99 {
		t.Errorf("the late term ended with %v, want ErrFenced", err)
	}
	s.noDeadLetters()
}

func TestAnEmptiedSinkIsNoticed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := analytics(t)
	p := compile(t, cfg)
	l := newLease()
	stop := s.run(l, p)
	s.append(set{id: "o1", body: orderItem("o1", day, "a")})
	s.done(l)
	s.append(set{id: "x", body: `{"id":"x","type":"other"}`}) // says nothing to the sink
	s.done(l)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	stop = s.run(l, p) // the sink is behind the checkpoint, and lacks nothing
	s.append(set{id: "o2", body: orderItem("o2", day, "a")})
	s.done(l)
	s.equal(p)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	cfg.Sink = sinktest.NewMemory(sinktest.NewDisk(), false)
	p = compile(t, cfg)
	s.append(set{id: "o3", body: orderItem("o3", day, "a")})
	if err := s.ends(l, p); err == nil || !strings.Contains(err.Error(), "emptied or restored older") || !strings.Contains(err.Error(), "rewind analytics") {
		t.Errorf("the term ended with %v", err)
	}
	// A sink that says so only when it is written to ends it too.
	cfg.Sink = &tap{Memory: sinktest.NewMemory(sinktest.NewDisk(), false), write: func(*project.Batch) error { return project.ErrPosition }}
	p = compile(t, cfg)
	if err := s.ends(newLease(), p); !errors.Is(err, project.ErrPosition) {
		t.Errorf("the term ended with %v, want ErrPosition", err)
	}
	s.noDeadLetters()
}

// What was given up is done when an operator asks for it, though the item has
// changed since, and nothing of what it was stays.
func TestADeadLetterIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	source := s.container(t, "customer", 1, "/customerId")
	s.partition = source.Partitions()[0]
	cfg := analytics(t)
	var refuse atomic.Bool
	cfg.Source, cfg.Sink = source, &tap{Memory: sinktest.NewMemory(sinktest.NewDisk(), true), write: func(b *project.Batch) error {
		for _, r := range b.Put {
			if refuse.Load() && r.Table == 2 && r.Values[2].Text() == "refused" {
				return processors.Reject(errors.New("not now"))
			}
		}
		return nil
	}}
	cfg.FlushInterval = time.Millisecond
	p := compile(t, cfg)
	l := newLease()
	stop := s.run(l, p)
	put := func(id string, skus ...string) {
		t.Helper()
		s.items[id] = orderItem(id, day, skus...)
		if _, err := source.Upsert(t.Context(), []byte(s.items[id])); err != nil {
			t.Fatal(err)
		}
	}
	read := func() {
		t.Helper()
		status, err := source.Status(t.Context(), s.partition)
		if err != nil {
			t.Fatal(err)
		}
		s.last = status.Applied
		s.done(l)
	}
	put("o1", "a", "b", "c")
	put("o2", "a")
	read()
	s.equal(p)
	refuse.Store(true)
	put("o1", "refused", "b")
	put("o1", "refused", "d", "e") // says nothing of the first line again
	put("o3", "refused")
	put("o2", "z")
	read()
	parked(t, l, `["c1"]/o1`, `["c1"]/o3`)
	put("o1", "refused", "d", "f") // the sink takes what it says; the rows are still not right
	read()
	parked(t, l, `["c1"]/o1`, `["c1"]/o3`)
	deadLetters, err := s.letters.List(t.Context(), "analytics", 10)
	if err != nil || len(deadLetters) != 2 {
		t.Fatalf("dead letters: %+v, %v, want one of o1 and one of o3", deadLetters, err)
	}
	refuse.Store(false)
	for i := range deadLetters {
		if err := s.letters.Retry(t.Context(), "analytics", deadLetters[i].ID); err != nil {
			t.Fatal(err)
		}
		s.gone(l, deadLetters[i].ID)
		if err := stop(); err != nil { // the sink is ahead of the checkpoint then
			t.Fatal(err)
		}
		stop = s.run(l, p)
	}
	s.equal(p)
	parked(t, l)
	put("o1", "x")
	read()
	s.equal(p)

	// The same where a term begins at the end of a walk, behind which there is nothing yet.
	refuse.Store(true)
	put("o4", "refused")
	put("o5", "refused")
	read()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	refuse.Store(false)
	cp, err := processors.DecodeCheckpoint(l.Checkpoint())
	if err != nil {
		t.Fatal(err)
	}
	cp.Position = feed.WalkEnd(s.last)
	l.checkpoint = cp.Encode()
	if deadLetters, err = s.letters.List(t.Context(), "analytics", 10); err != nil || len(deadLetters) != 2 {
		t.Fatalf("dead letters: %+v, %v, want one of o4 and one of o5", deadLetters, err)
	}
	stop = s.run(l, p)
	for i := range deadLetters {
		if err := s.letters.Retry(t.Context(), "analytics", deadLetters[i].ID); err != nil {
			t.Fatal(err)
		}
		s.gone(l, deadLetters[i].ID)
	}
	s.equal(p)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// parked fails if the checkpoint does not say that just changes of these items are parked.
func parked(t *testing.T, l *lease, want ...string) {
	t.Helper()
	cp, err := processors.DecodeCheckpoint(l.Checkpoint())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range cp.Parked {
		got = append(got, cp.Parked[i].Source)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("parked: %q, want %q", got, want)
	}
}

// gone waits until a dead letter is not there any more.
func (s *stage) gone(l *lease, id string) {
	s.t.Helper()
	deadline := time.After(poll.Most)
	for {
		deadLetter, err := s.letters.Get(s.t.Context(), "analytics", id)
		if errors.Is(err, store.ErrNotFound) {
			return
		}
		if err != nil {
			s.t.Fatal(err)
		}
		select {
		case <-l.saves:
		case <-deadline:
			s.t.Fatalf("it is still there: %+v", deadLetter)
		}
	}
}
