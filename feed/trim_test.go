package feed_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
)

// trimTo appends a commit with a trim point.
func (w *writer) trimTo(lsn feed.LSN) {
	w.trimmed = lsn
	w.append(1)
}

func isTrimmed(err error, want, first feed.LSN) bool {
	e, ok := errors.AsType[*feed.TrimmedError](err)
	return ok && e.Want == want && e.First == first && errors.Is(err, feed.ErrNotFound) && !feed.Damaged(err)
}

// TestI4_ATrimmedLogIsToldFromAGap: the first sequence may lie anywhere up to the trim
// point, and not behind it.
func TestI4_ATrimmedLogIsToldFromAGap(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	l := b.log(t)
	w := newWriter(t, l)
	w.append(8)
	shape := func() *feed.Shape {
		t.Helper()
		s, err := l.Shape(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	w.trimTo(5)
	w.append(2) // 11 commits
	// A crash between the commit and the purge leaves the log whole.
	if s := shape(); s.Trimmed != 5 || s.First != 1 || s.Missing != nil || s.Begin() != 1 {
		t.Errorf("before the purge: %+v, begins at %d", s, s.Begin())
	}
	expect(t, mustTail(t, l, 1, feed.TailOptions{}), 1, 11)
	reading := mustTail(t, l, 1, feed.TailOptions{CommitsMax: 2})
	expect(t, reading, 1, 1)

	if n, err := l.Trim(t.Context(), 3); err != nil || n != 3 {
		t.Fatalf("first step: %d commits, %v", n, err)
	}
	if s := shape(); s.First != 4 || s.Missing != nil || s.Begin() != 4 {
		t.Errorf("between two steps: %+v", s)
	}
	if n, err := l.Trim(t.Context(), 5); err != nil || n != 2 {
		t.Fatalf("second step: %d commits, %v", n, err)
	}
	if n, err := l.Trim(t.Context(), 5); err != nil || n != 0 {
		t.Errorf("again: %d commits, %v", n, err)
	}
	if oldest, err := l.Oldest(t.Context()); oldest != 6 || err != nil {
		t.Errorf("the oldest is %d, %v", oldest, err)
	}
	if s := shape(); s.First != 6 || s.Missing != nil || s.Begin() != 6 || s.Misses(2) {
		t.Errorf("after the purge: %+v", s)
	}

	if err := fails(t, mustTail(t, l, 2, feed.TailOptions{})); !isTrimmed(err, 2, 6) {
		t.Errorf("a tail that begins too early: %v", err)
	}
	if err := fails(t, reading); !isTrimmed(err, 2, 6) && !isTrimmed(err, 3, 6) && !isTrimmed(err, 4, 6) && !isTrimmed(err, 5, 6) {
		t.Errorf("a tail that was overtaken: %v", err)
	}
	if _, err := l.Read(t.Context(), 3); !isTrimmed(err, 3, 6) {
		t.Errorf("read: %v", err)
	}
	if _, err := l.Read(t.Context(), 12); !errors.Is(err, feed.ErrNotFound) || isTrimmed(err, 12, 6) {
		t.Errorf("read behind the end: %v", err)
	}
	if _, err := l.ReadPage(t.Context(), 4, 10, 1<<20); !isTrimmed(err, 4, 6) {
		t.Errorf("page: %v", err)
	}
	expect(t, mustTail(t, l, 6, feed.TailOptions{}), 6, 11)

	// What is gone behind the trim point is missing.
	stream := b.purge(t, 8)
	if s := shape(); !cmp.Equal(s.Missing, []feed.Stretch{{From: 6, To: 7}}) || s.Begin() != 6 || !s.Misses(6) || s.Misses(5) {
		t.Errorf("with a gap: %+v", s)
	}
	gap := func(err error) bool {
		e, ok := errors.AsType[*feed.GapError](err)
		return ok && e.Want == 6 && e.Got == 8 && feed.Damaged(err)
	}
	if err := fails(t, mustTail(t, l, 2, feed.TailOptions{})); !gap(err) {
		t.Errorf("a tail before the gap: %v", err)
	}
	if err := fails(t, mustTail(t, l, 6, feed.TailOptions{})); !gap(err) {
		t.Errorf("a tail at the gap: %v", err)
	}
	if _, err := l.ReadPage(t.Context(), 6, 10, 1<<20); !gap(err) {
		t.Errorf("page at the gap: %v", err)
	}
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := shape(); len(s.Missing) != 1 || s.Missing[0] != (feed.Stretch{From: 1, To: 11}) {
		t.Errorf("with nothing left: %+v", s)
	}
}

// TestShape_AnEndIsReadOnce: the end of a log that stays as it is, which a server reads a whole
// block of its disk for, is read once.
func TestShape_AnEndIsReadOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	nc, js := b.connect(t)
	l, err := feed.OpenLog(t.Context(), js, b.p, feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	l.AskAgain(time.Minute) // requests are counted
	w := newWriter(t, b.log(t))
	shape := func(first, trimmed feed.LSN, missing []feed.Stretch, requests uint64) {
		t.Helper()
		before := nc.Stats().OutMsgs
		s, err := l.Shape(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.First != first || s.Last != w.last || s.Trimmed != trimmed || !slices.Equal(s.Missing, missing) {
			t.Errorf("%+v", s)
		}
		if n := nc.Stats().OutMsgs - before; n != requests {
			t.Errorf("%d requests, want %d", n, requests)
		}
	}
	w.append(5)
	shape(1, 0, nil, 2)
	shape(1, 0, nil, 1)
	w.trimTo(3)
	shape(1, 3, nil, 2)
	if _, err := b.log(t).Trim(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	shape(4, 3, nil, 1)

	// What is missing is believed of what the log says now.
	b.purge(t, 6)
	for range 2 {
		shape(6, 3, []feed.Stretch{{From: 4, To: 5}}, 2)
	}

	// Another stream takes its place, of another history, and ends at the same LSN.
	if err := feed.DeleteLog(t.Context(), b.js, b.p); err != nil {
		t.Fatal(err)
	}
	if err := feed.CreateLog(t.Context(), b.js, b.p, b.id, feed.LogConfig{}); err != nil {
		t.Fatal(err)
	}
	other := b.log(t)
	w = newWriter(t, other)
	w.append(5)
	w.trimTo(5)
	if _, err := other.Trim(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	shape(6, 5, nil, 2)
}

// purge removes the messages below an LSN as somebody does who does not know of trim points.
func (b *bed) purge(t *testing.T, lsn uint64) jetstream.Stream {
	t.Helper()
	stream, err := b.js.Stream(t.Context(), b.p.Stream())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(lsn)); err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestI4_ABeginningThatIsGoneIsSaid: nobody who asks for all gets the rest without a word.
func TestI4_ABeginningThatIsGoneIsSaid(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	l := b.log(t)
	w := newWriter(t, l)
	w.append(6)
	w.trimTo(4)
	if at, err := l.Resolve(t.Context(), feed.StartBeginning()); err != nil || !at.IsZero() {
		t.Errorf("before the purge: %s, %v", at, err)
	}
	if _, err := l.Trim(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Resolve(t.Context(), feed.StartBeginning()); !isTrimmed(err, 1, 5) {
		t.Errorf("from the beginning: %v", err)
	}
	for _, c := range []struct {
		name string
		ms   int64
		want feed.Position
		gone bool
	}{
		{name: "before what is kept", ms: 1_700_000_004_500, gone: true},
		{name: "at the first that is kept", ms: 1_700_000_005_000, gone: true},
		{name: "behind it", ms: 1_700_000_005_500, want: feed.Position{LSN: 5}},
	} {
		at, err := l.Resolve(t.Context(), feed.StartTime(time.UnixMilli(c.ms)))
		if c.gone != isTrimmed(err, 4, 5) || !c.gone && err != nil || at != c.want {
			t.Errorf("%s: %s, %v", c.name, at, err)
		}
	}
}

func TestTrim_NeverTakesTheLastCommit(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	l := b.log(t)
	w := newWriter(t, l)
	w.append(3)
	for _, lsn := range []feed.LSN{3, 4, 100} {
		if _, err := l.Trim(t.Context(), lsn); err == nil {
			t.Errorf("trimmed up to %d of 3", lsn)
		}
	}
	if first, last, err := l.Bounds(t.Context()); first != 1 || last != 3 || err != nil {
		t.Errorf("left are %d to %d: %v", first, last, err)
	}
	// A trim point that is not before its commit is none.
	w.trimmed = 4
	w.append(1)
	if err := fails(t, mustTail(t, l, 4, feed.TailOptions{})); !isMismatch(err) {
		t.Errorf("a trim point at its own commit: %v", err)
	}
}

// TestTrim_LogsOfEarlierReleasesSayThatTheyCannot because JetStream never takes it back.
func TestTrim_LogsOfEarlierReleasesSayThatTheyCannot(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	stream, err := b.js.Stream(t.Context(), b.p.Stream())
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.DenyPurge = true
	p := feed.Partition{Container: feed.NewResourceID()}
	cfg.Name, cfg.Subjects = p.Stream(), []string{p.Subject()}
	if _, err := b.js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	b.p = p
	l := b.log(t)
	newWriter(t, l).append(3)
	if _, err := l.Trim(t.Context(), 1); !errors.Is(err, feed.ErrUntrimmable) {
		t.Errorf("error %v", err)
	}
	if s, err := l.Shape(t.Context()); err != nil || !s.Untrimmable || s.Missing != nil {
		t.Errorf("shape %+v, %v", s, err)
	}
}

// TestI2_AnAppendThatWasTrimmedStaysUnknown: its sequence has another's trim behind it.
func TestI2_AnAppendThatWasTrimmedStaysUnknown(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	l := b.log(t)
	w := newWriter(t, l)
	w.append(2)
	c, data := w.commit(1)
	other := newWriter(t, b.log(t))
	other.last, other.sum = w.last, w.sum
	other.append(2)
	other.trimTo(4)
	if _, err := other.l.Trim(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	_, err := l.Append(t.Context(), w.last, c.ID, data)
	if _, trimmed := errors.AsType[*feed.TrimmedError](err); !trimmed || !errors.Is(err, feed.ErrUnknown) {
		t.Errorf("error %v", err)
	}
}
