package feed_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed"
)

func newHub(t *testing.T, b *bed, cfg feed.HubConfig) *feed.Hub {
	t.Helper()
	h := feed.NewHub(func(ctx context.Context, p feed.Partition) (*feed.Log, error) {
		return feed.OpenLog(ctx, b.js, p, feed.LogConfig{})
	}, cfg)
	t.Cleanup(h.Close)
	return h
}

func mustReader(t *testing.T, h *feed.Hub, b *bed, after feed.Position) *feed.Reader {
	t.Helper()
	r, err := h.Reader(t.Context(), b.p, after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func TestHub_ReadersShareOneDecoding(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	w.append(5)
	h := newHub(t, b, feed.HubConfig{})
	one, two := mustReader(t, h, b, feed.Position{}), mustReader(t, h, b, feed.Position{})
	for range 5 {
		c1, err1 := one.Next(t.Context())
		c2, err2 := two.Next(t.Context())
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if c1 != c2 {
			t.Fatalf("commit %d was decoded twice", c1.LSN)
		}
	}
	consumers, err := b.js.Stream(t.Context(), b.p.Stream())
	if err != nil {
		t.Fatal(err)
	}
	if n := consumers.CachedInfo().State.Consumers; n != 1 {
		t.Errorf("%d consumers, want 1", n)
	}
}

// Arrived returns what is here, in order and checked, and never waits; the readers that share the tail get it too.
func TestHub_ArrivedNeverWaits(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	h := newHub(t, b, feed.HubConfig{})
	one, two := mustReader(t, h, b, feed.Position{}), mustReader(t, h, b, feed.Position{})
	if c := one.Arrived(t.Context()); c != nil {
		t.Fatalf("LSN %d has arrived of an empty log", c.LSN)
	}
	w.append(1)
	expect(t, one, 1, 1)
	w.append(20)
	for next := feed.LSN(2); next <= 21; {
		c := one.Arrived(t.Context())
		if c == nil { // it is on its way
			expect(t, one, next, next)
			next++
			continue
		}
		if c.LSN != next {
			t.Fatalf("LSN %d has arrived, want %d", c.LSN, next)
		}
		next++
	}
	for range 21 { // the tail of both has read them
		if two.Arrived(t.Context()) == nil {
			t.Fatal("what one reader has, the other has not")
		}
	}
	expected := mustReader(t, h, b, feed.Position{LSN: 20})
	expected.Expect(7)
	if c := expected.Arrived(t.Context()); c != nil {
		t.Fatalf("LSN %d has arrived behind another checkpoint", c.LSN)
	}
	if _, err := expected.Next(t.Context()); !feed.Damaged(err) {
		t.Errorf("%v, want what is wrong", err)
	}
	h.Close()
	if c := one.Arrived(t.Context()); c != nil {
		t.Errorf("LSN %d has arrived at a hub that is closed", c.LSN)
	}
}

func TestHub_Positions(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	w.append(8)
	h := newHub(t, b, feed.HubConfig{})
	for after, first := range map[feed.Position]feed.LSN{
		{}: 1, {LSN: 3}: 4, {LSN: 3, Index: 1}: 3, {Index: 7}: 1,
	} {
		r := mustReader(t, h, b, after)
		expect(t, r, first, 8)
	}
}

// A reader that falls behind what the ring keeps reads on its own until it has
// caught up; the fast one does not wait for it.
func TestHub_SlowReaderReadsOnItsOwnAndJoins(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	h := newHub(t, b, feed.HubConfig{RingBytesMax: 2000})
	fast, slow := mustReader(t, h, b, feed.Position{}), mustReader(t, h, b, feed.Position{})
	w.append(1)
	expect(t, fast, 1, 1)
	expect(t, slow, 1, 1)
	w.append(100)
	expect(t, fast, 2, 101)
	expect(t, slow, 2, 3)
	if !slow.Own() || fast.Own() {
		t.Fatalf("slow reads on its own: %v, fast: %v", slow.Own(), fast.Own())
	}
	expect(t, slow, 4, 101)
	w.append(1)
	expect(t, fast, 102, 102)
	expect(t, slow, 102, 102)
	if slow.Own() {
		t.Error("the slow reader has caught up and still reads on its own")
	}
}

// What every reader has passed is not held until the ring is full: it would be
// full for ever after the first burst of writes.
func TestHub_ForgetsWhatReadersHavePassed(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	const ringBytesMax = 256 << 10
	h := newHub(t, b, feed.HubConfig{RingBytesMax: ringBytesMax})
	fast, slow := mustReader(t, h, b, feed.Position{}), mustReader(t, h, b, feed.Position{})
	w.append(200)
	expect(t, slow, 1, 1)
	expect(t, fast, 1, 200)
	if held := h.Held(b.p); held <= ringBytesMax/8 || held > ringBytesMax {
		t.Fatalf("%d bytes are held for the slow reader, the ring has %d", held, ringBytesMax)
	}
	expect(t, slow, 2, 200)
	if slow.Own() {
		t.Fatal("the slow reader fell out of the ring")
	}
	w.append(1)
	expect(t, slow, 201, 201)
	expect(t, fast, 201, 201)
	if held := h.Held(b.p); held > ringBytesMax/8 {
		t.Errorf("%d bytes are held for nobody; at most %d for readers that come", held, ringBytesMax/8)
	}
}

// The first reader is far behind; one that begins at the end is not held up.
func TestHub_ReaderAheadOfTheShared(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	w.append(50)
	h := newHub(t, b, feed.HubConfig{})
	behind := mustReader(t, h, b, feed.Position{})
	expect(t, behind, 1, 2)
	ahead := mustReader(t, h, b, feed.Position{LSN: 49})
	expect(t, ahead, 50, 50)
	if !ahead.Own() {
		t.Error("the reader ahead shares what is behind it")
	}
	behind.Close()
	w.append(5)
	expect(t, ahead, 51, 55)
	if ahead.Own() {
		t.Error("alone, and still not the one that shares")
	}
	third := mustReader(t, h, b, feed.Position{LSN: 52})
	expect(t, third, 53, 55)
}

func TestHub_CancelledDriverPassesTheTailOn(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	h := newHub(t, b, feed.HubConfig{})
	one, two := mustReader(t, h, b, feed.Position{}), mustReader(t, h, b, feed.Position{})
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	ended := make(chan error, 1)
	go func() {
		_, err := one.Next(ctx)
		ended <- err
	}()
	got := make(chan error, 1)
	go func() {
		_, err := two.Next(t.Context())
		got <- err
	}()
	cancel(stop)
	if err := <-ended; !errors.Is(err, stop) {
		t.Errorf("cancelled: %v, want %v", err, stop)
	}
	w.append(1)
	if err := <-got; err != nil {
		t.Errorf("the other reader: %v", err)
	}
	expect(t, one, 1, 1)
}

func TestHub_ErrorsReachAllReaders(t *testing.T) {
	t.Parallel()
	b, _, stream := damaged(t, 6)
	if err := stream.DeleteMsg(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	h := newHub(t, b, feed.HubConfig{Tail: quick})
	for range 2 {
		r := mustReader(t, h, b, feed.Position{})
		expect(t, r, 1, 3)
		if _, ok := errors.AsType[*feed.GapError](fails(t, r)); !ok {
			t.Error("a reader has passed the gap")
		}
	}
}

func TestHub_ExpectVerifiesACheckpoint(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	w.append(4)
	h := newHub(t, b, feed.HubConfig{})
	right, wrong := mustReader(t, h, b, feed.Position{LSN: 4}), mustReader(t, h, b, feed.Position{LSN: 4})
	right.Expect(w.sum)
	wrong.Expect(w.sum + 1)
	w.append(1)
	expect(t, right, 5, 5)
	if err := fails(t, wrong); !isMismatch(err) {
		t.Errorf("error %v", err)
	}
}

// A reader with a wrong checkpoint opens the tail that others share: it alone fails.
func TestHub_AWrongCheckpointFailsItsReaderAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	w.append(4)
	h := newHub(t, b, feed.HubConfig{})
	wrong, right := mustReader(t, h, b, feed.Position{LSN: 4}), mustReader(t, h, b, feed.Position{LSN: 4})
	wrong.Expect(w.sum + 1)
	right.Expect(w.sum)
	join(t, wrong)
	join(t, right)
	w.append(1)
	err := fails(t, wrong)
	if !isMismatch(err) {
		t.Errorf("error %v", err)
	}
	expect(t, right, 5, 5)
	expect(t, mustReader(t, h, b, feed.Position{LSN: 4}), 5, 5)
	w.append(1)
	if again := fails(t, wrong); !errors.Is(again, err) {
		t.Errorf("error %v, then %v", err, again)
	}
}

// A checkpoint that names the next commit instead of the one before: the error stays, though the
// commit after the next follows what was expected.
func TestHub_AMismatchIsFinal(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	w.append(10)
	h := newHub(t, b, feed.HubConfig{})
	join(t, mustReader(t, h, b, feed.Position{LSN: 10})) // so the other one has a tail of its own
	r := mustReader(t, h, b, feed.Position{LSN: 3})
	c, err := w.l.Read(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	r.Expect(c.Sum)
	for range 2 {
		if err := fails(t, r); !isMismatch(err) {
			t.Errorf("error %v", err)
		}
	}
}

// The shared tail ends with an error that does not last. A reader that comes later reads on,
// though the one that met the error is not closed.
func TestHub_ATailThatEndedIsReplaced(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	w.append(1)
	var gone atomic.Bool
	js := b.api(t, func(nc *nats.Conn, m *nats.Msg, question string) {
		if !gone.Load() {
			forward(t, nc, m, "$JS.API."+question)
		} else if err := m.Respond([]byte(`{"error":{"code":404,"err_code":10059,"description":"stream not found"}}`)); err != nil {
			t.Error(err)
		}
	})
	h := feed.NewHub(func(ctx context.Context, p feed.Partition) (*feed.Log, error) {
		return feed.OpenLog(ctx, js, p, feed.LogConfig{})
	}, feed.HubConfig{Tail: quick})
	t.Cleanup(h.Close)
	before := mustReader(t, h, b, feed.Position{})
	gone.Store(true)
	if err := fails(t, before); !errors.Is(err, feed.ErrNoLog) {
		t.Fatalf("error %v, want %v", err, feed.ErrNoLog)
	}
	gone.Store(false)
	expect(t, mustReader(t, h, b, feed.Position{}), 1, 1)
	if err := fails(t, before); !errors.Is(err, feed.ErrNoLog) {
		t.Errorf("error %v, want %v again", err, feed.ErrNoLog)
	}
}

// join lets a reader that is at the end of the log join those that share a tail.
func join(t *testing.T, r *feed.Reader) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := r.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("commit %v, error %v; want none, and %v", c, err, context.Canceled)
	}
}

func TestHub_CloseWakesReaders(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	h := newHub(t, b, feed.HubConfig{})
	ended := make(chan error, 3)
	for range 3 {
		r := mustReader(t, h, b, feed.Position{})
		go func() {
			_, err := r.Next(t.Context())
			ended <- err
		}()
	}
	h.Close()
	h.Close()
	for range 3 {
		if err := <-ended; !errors.Is(err, feed.ErrClosed) {
			t.Errorf("next: %v, want %v", err, feed.ErrClosed)
		}
	}
	if _, err := h.Reader(t.Context(), b.p, feed.Position{}); !errors.Is(err, feed.ErrClosed) {
		t.Errorf("reader: %v, want %v", err, feed.ErrClosed)
	}
	r := mustReader(t, newHub(t, b, feed.HubConfig{}), b, feed.Position{})
	r.Close()
	if _, err := r.Next(t.Context()); !errors.Is(err, feed.ErrClosed) {
		t.Errorf("next of a closed reader: %v", err)
	}
}

// Readers come, go and fall behind while commits are written; each sees every
// commit once and in order.
func TestI4_HubUnderChurn(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	h := newHub(t, b, feed.HubConfig{RingBytesMax: 3000, Tail: feed.TailOptions{CommitsMax: 16}})
	const commits, readers = 400, 6
	w.append(20)
	var group sync.WaitGroup
	for i := range readers {
		r := mustReader(t, h, b, feed.Position{LSN: feed.LSN(i * 3)})
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			next := feed.LSN(i*3 + 1)
			for next <= commits {
				c, err := r.Next(ctx)
				if err != nil {
					t.Errorf("reader %d at %d: %v", i, next, err)
					return
				}
				if c.LSN != next {
					t.Errorf("reader %d: commit %d, want %d", i, c.LSN, next)
					return
				}
				next++
				if i%2 == 1 && next%50 == feed.LSN(i) {
					r.Close()
					if r, err = h.Reader(ctx, b.p, feed.Position{LSN: next - 1}); err != nil {
						t.Error(err)
						return
					}
					defer r.Close()
				}
			}
		})
	}
	w.append(commits - 20)
	group.Wait()
}
