package feed_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
)

// quick makes the watchdog look soon.
var quick = feed.TailOptions{WatchInterval: 50 * time.Millisecond}

func TestI4_SilentConsumerIsNoticed(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	reading := b.log(t)
	var silent atomic.Bool
	reading.Lose(func(m *nats.Msg) bool { return silent.Load() })
	w.append(3)
	tail := mustTail(t, reading, 1, quick)
	expect(t, tail, 1, 3)
	before := tail.Consumer()
	silent.Store(true)
	w.append(1)
	expect(t, tail, 4, 4) // by the watchdog: the consumer says nothing
	silent.Store(false)
	w.append(5)
	expect(t, tail, 5, 9)
	// On a slow machine the watchdog may be faster with the last one than the consumer.
	for last := feed.LSN(9); tail.Consumer() == ""; last++ {
		w.append(1)
		expect(t, tail, last+1, last+1)
	}
	if after := tail.Consumer(); before != "" && after == before {
		t.Errorf("consumer %q is the one before: it was not made anew", after)
	}
}

// TestTail_TakesWhatOthersHaveAsked has somebody ask a Log for its bounds while a tail of it is
// silent: the tail asks only for what was not asked since, and misses nothing.
func TestTail_TakesWhatOthersHaveAsked(t *testing.T) {
	b := newBed(t)
	w := newWriter(t, b.log(t))
	nc, js := b.connect(t)
	l, err := feed.OpenLog(t.Context(), js, b.p, feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	l.AskAgain(time.Minute) // requests are counted
	w.append(3)
	tail := mustTail(t, l, 1, feed.TailOptions{})
	expect(t, tail, 1, 3)
	check := func(requests uint64) {
		t.Helper()
		before := nc.Stats().OutMsgs
		if c := tail.CheckSilence(t.Context()); c != nil {
			t.Errorf("it delivers %d", c.LSN)
		}
		if asked := nc.Stats().OutMsgs - before; asked != requests {
			t.Errorf("it has made %d requests, want %d", asked, requests)
		}
	}
	ask := func() {
		t.Helper()
		if _, _, err := l.BoundsSince(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	check(0)
	check(1) // nobody has asked since the last check
	ask()
	l.Lose(func(*nats.Msg) bool { return true })
	w.append(1)
	check(0) // what was learned before it was written
	expect(t, tail, 4, 4)
}

func TestI4_LostMessageIsFetched(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	reading := b.log(t)
	count := 0
	reading.Lose(func(m *nats.Msg) bool { count++; return count%7 == 3 })
	w.append(60)
	tail := mustTail(t, reading, 1, feed.TailOptions{WatchInterval: 200 * time.Millisecond})
	expect(t, tail, 1, 60)
}

func TestI4_DeletedConsumerIsMadeAnew(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	w.append(2)
	tail := mustTail(t, w.l, 1, feed.TailOptions{})
	expect(t, tail, 1, 2)
	for range 3 {
		if err := b.js.DeleteConsumer(t.Context(), b.p.Stream(), tail.Consumer()); err != nil {
			t.Fatal(err)
		}
		w.append(2)
		expect(t, tail, w.last-1, w.last)
	}
}

func TestI4_ServerRestart(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	w.append(2)
	tail := mustTail(t, w.l, 1, feed.TailOptions{})
	expect(t, tail, 1, 2)
	if err := b.server.Reopen(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.append(10)
	expect(t, tail, 3, 12)
}

// damaged makes a log whose stream allows what a log's does not.
func damaged(t *testing.T, commits int) (*bed, *writer, jetstream.Stream) {
	t.Helper()
	b := newBed(t)
	b.p = feed.Partition{Container: feed.NewResourceID()}
	stream, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: b.p.Stream(), Subjects: []string{b.p.Subject()}, AllowDirect: true,
		Metadata: map[string]string{"millrace.log": b.id.String()},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := newWriter(t, b.log(t))
	w.append(commits)
	return b, w, stream
}

func TestI4_GapIsNotSkipped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		lost      []uint64
		want, got feed.LSN
		text      string
	}{
		{"in the middle", []uint64{4, 5}, 4, 6, "LSN 4 to 5 are"},
		{"one commit", []uint64{4}, 4, 5, "LSN 4 is"},
		{"at the start", []uint64{1, 2}, 1, 3, "LSN 1 to 2 are"},
		{"at the end", []uint64{9, 10}, 9, 0, "LSN 9 and all after it are"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, w, stream := damaged(t, 10)
			for _, lsn := range c.lost {
				if err := stream.DeleteMsg(t.Context(), lsn); err != nil {
					t.Fatal(err)
				}
			}
			tail := mustTail(t, w.l, 1, quick)
			expect(t, tail, 1, c.want-1)
			for range 2 {
				gap, ok := errors.AsType[*feed.GapError](fails(t, tail))
				if !ok || *gap != (feed.GapError{Partition: b.p, Stream: b.p.Stream(), Want: c.want, Got: c.got}) || !strings.Contains(gap.Error(), c.text) {
					t.Errorf("error %+v: %v", gap, gap)
				}
			}
		})
	}
}

func TestI3_LogMadeAnewIsNoticed(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	w.append(3)
	tail := mustTail(t, w.l, 1, quick)
	expect(t, tail, 1, 3)
	if err := feed.DeleteLog(t.Context(), b.js, b.p); err != nil {
		t.Fatal(err)
	}
	if err := feed.CreateLog(t.Context(), b.js, b.p, feed.NewLogID(), feed.LogConfig{}); err != nil {
		t.Fatal(err)
	}
	newWriter(t, b.log(t)).append(9)
	if err := fails(t, tail); !isMismatch(err) || !strings.Contains(err.Error(), b.p.String()) {
		t.Errorf("error %v", err)
	}
}

func TestI3_DeletedLogIsNoticed(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	w.append(3)
	tail := mustTail(t, w.l, 1, quick)
	expect(t, tail, 1, 3)
	if err := feed.DeleteLog(t.Context(), b.js, b.p); err != nil {
		t.Fatal(err)
	}
	if err := fails(t, tail); !errors.Is(err, feed.ErrNoLog) {
		t.Errorf("error %v, want %v", err, feed.ErrNoLog)
	}
}

// The stream has the same name and identity, but is an older copy of itself.
func TestI3_LogRestoredOlderIsNoticed(t *testing.T) {
	t.Parallel()
	b, w, stream := damaged(t, 5)
	tail := mustTail(t, w.l, 1, quick)
	expect(t, tail, 1, 5)
	older := *w
	w.append(5)
	expect(t, tail, 6, 10)
	restore := func() {
		t.Helper()
		if err := b.js.DeleteStream(t.Context(), b.p.Stream()); err != nil {
			t.Fatal(err)
		}
		if _, err := b.js.CreateStream(t.Context(), stream.CachedInfo().Config); err != nil {
			t.Fatal(err)
		}
	}
	restore()
	again := newWriter(t, b.log(t))
	again.append(5)
	if err := fails(t, tail); !isMismatch(err) || !strings.Contains(err.Error(), "ends at LSN 5") {
		t.Errorf("tail: %v", err)
	}
	c, data := w.commit(1)
	if _, err := w.l.Append(t.Context(), 10, c.ID, data); !isMismatch(err) {
		t.Errorf("append: %v", err)
	}

	// Grown again beyond what was read, only the chain tells.
	again.append(10)
	behind := mustTail(t, w.l, 6, feed.TailOptions{Prev: older.sum})
	if err := fails(t, behind); !isMismatch(err) || !strings.Contains(err.Error(), "follows checksum") {
		t.Errorf("tail behind LSN 5: %v", err)
	}
}

func TestI3_ChainIsVerified(t *testing.T) {
	t.Parallel()
	w := newWriter(t, newBed(t).log(t))
	w.append(3)
	w.sum++ // as if another commit 3 had been the predecessor
	w.append(1)
	tail := mustTail(t, w.l, 1, feed.TailOptions{})
	expect(t, tail, 1, 3)
	mismatch, ok := errors.AsType[*feed.MismatchError](fails(t, tail))
	if !ok || mismatch.LSN != 4 {
		t.Errorf("error %v", mismatch)
	}
}

func TestI3_ForeignMessageIsNoticed(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	w.append(2)
	if _, err := b.js.Publish(t.Context(), b.p.Subject(), []byte("\x01 hello")); err != nil {
		t.Fatal(err)
	}
	tail := mustTail(t, w.l, 1, feed.TailOptions{})
	expect(t, tail, 1, 2)
	if err := fails(t, tail); !isFormat(err) || !strings.Contains(err.Error(), "LSN 3") {
		t.Errorf("error %v", err)
	}
	other := newWriter(t, b.log(t))
	c, _ := other.commit(1)
	c.Log = feed.NewLogID()
	if _, err := w.l.Append(t.Context(), 3, c.ID, feed.AppendCommit(nil, c)); err != nil {
		t.Fatal(err)
	}
	if err := fails(t, mustTail(t, w.l, 4, feed.TailOptions{})); !isMismatch(err) {
		t.Errorf("commit of another log: %v", err)
	}
}

func TestTail_ReadsAheadInBounds(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	big := make([]byte, 1<<20)
	for i := range big {
		big[i] = 'x'
	}
	for range 40 {
		c, _ := w.commit(1)
		c.Transactions[0].Changes[0].After = big
		lsn, err := w.l.Append(t.Context(), w.last, c.ID, feed.AppendCommit(nil, c))
		if err != nil {
			t.Fatal(err)
		}
		w.last, w.sum = lsn, c.Sum
	}
	tail := mustTail(t, w.l, 1, feed.TailOptions{BytesMax: 1})
	ahead := 0
	for lsn := feed.LSN(1); lsn <= 40; lsn++ {
		expect(t, tail, lsn, lsn)
		ahead = max(ahead, tail.Buffered())
	}
	// Requests grew to hold one message, of which two MiB are the next power of two.
	if limit := 2 * 2; ahead > limit {
		t.Errorf("%d MiB read ahead, at most %d", ahead, limit)
	}
	few := mustTail(t, w.l, 1, feed.TailOptions{CommitsMax: 4})
	for lsn := feed.LSN(1); lsn <= 40; lsn++ {
		expect(t, few, lsn, lsn)
		if n := few.Buffered(); n > 4+2 {
			t.Fatalf("%d messages read ahead, at most 4 commits", n)
		}
	}
}

func TestTail_NextAfterCloseIsRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	tail := mustTail(t, w.l, 1, feed.TailOptions{})
	w.append(2)
	expect(t, tail, 1, 1)
	tail.Close()
	tail.Close()
	if _, err := tail.Next(t.Context()); !errors.Is(err, feed.ErrClosed) {
		t.Errorf("next after close: %v", err)
	}
}

func TestLog_Resolve(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	at := func(start feed.Start) feed.Position {
		t.Helper()
		p, err := w.l.Resolve(t.Context(), start)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := at(feed.StartNow()); !p.IsZero() {
		t.Errorf("now, in an empty log: %s", p)
	}
	if p := at(feed.StartTime(time.Now())); !p.IsZero() {
		t.Errorf("a time, in an empty log: %s", p)
	}
	first := w.time + 1000
	w.append(20)
	for _, c := range []struct {
		name  string
		start feed.Start
		want  feed.LSN
	}{
		{"beginning", feed.StartBeginning(), 0},
		{"now", feed.StartNow(), 20},
		{"before the first", feed.StartTime(time.UnixMilli(0)), 0},
		{"at the first", feed.StartTime(time.UnixMilli(first)), 0},
		{"between", feed.StartTime(time.UnixMilli(first + 1)), 1},
		{"at the last", feed.StartTime(time.UnixMilli(first + 19_000)), 19},
		{"behind the last", feed.StartTime(time.UnixMilli(first + 19_001)), 20},
	} {
		if p := at(c.start); p != (feed.Position{LSN: c.want}) {
			t.Errorf("%s: %s, want %d.0", c.name, p, c.want)
		}
	}
	if p := at(feed.StartAt(feed.Position{LSN: 7, Index: 3})); p != (feed.Position{LSN: 7, Index: 3}) {
		t.Errorf("position: %s", p)
	}
}
