package feed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/feed/natsd/ports"
	"github.com/millrace/millrace/integration/poll"
)

func TestI1_SecondAppenderIsFenced(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	old, young := newWriter(t, b.log(t)), newWriter(t, b.log(t))
	old.append(3)
	young.last, young.sum = old.last, old.sum
	young.append(1)
	c, data := old.commit(1)
	_, err := old.l.Append(t.Context(), old.last, c.ID, data)
	if !errors.Is(err, feed.ErrFenced) {
		t.Fatalf("error %v, want %v", err, feed.ErrFenced)
	}
	for _, want := range []string{b.p.String(), "LSN 4", "node-1/a"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %s", err, want)
		}
	}
	if _, last, err := old.l.Bounds(t.Context()); last != 4 || err != nil {
		t.Errorf("log ends at %d, %v", last, err)
	}
}

// A single stream answers 10071, a replicated one may answer 10164.
func TestI1_BothCodesFence(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"10071", "10164"} {
		t.Run(code, func(t *testing.T) {
			b := newBed(t)
			other, w := newWriter(t, b.log(t)), newWriter(t, b.log(t))
			other.append(1)
			seen := false
			w.l.Lose(func(m *nats.Msg) bool {
				seen = seen || bytes.Contains(m.Data, []byte("10071"))
				m.Data = bytes.ReplaceAll(m.Data, []byte("10071"), []byte(code))
				return false
			})
			c, data := w.commit(1)
			if _, err := w.l.Append(t.Context(), 0, c.ID, data); !errors.Is(err, feed.ErrFenced) || !seen {
				t.Errorf("error %v, want %v; refusal seen: %v", err, feed.ErrFenced, seen)
			}
		})
	}
}

// Many appenders race for each LSN: one wins, all others are fenced, and each
// finds out the truth about itself.
func TestI1_OneWinsEachSequence(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	const appenders, rounds = 4, 25
	var logs [appenders]*feed.Log
	for i := range logs {
		logs[i] = b.log(t)
	}
	prev := feed.Checksum(0)
	for round := range rounds {
		var group sync.WaitGroup
		var won [appenders]bool
		var sums [appenders]feed.Checksum
		for i := range logs {
			w := newWriter(t, logs[i])
			w.sum, w.last = prev, feed.LSN(round)
			c, data := w.commit(1)
			sums[i] = c.Sum
			group.Go(func() {
				_, err := logs[i].Append(t.Context(), feed.LSN(round), c.ID, data)
				won[i] = err == nil
				if err != nil && !errors.Is(err, feed.ErrFenced) {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		group.Wait()
		c, err := logs[0].Read(t.Context(), feed.LSN(round+1))
		if err != nil {
			t.Fatal(err)
		}
		for i := range won {
			if won[i] != (c.Sum == sums[i]) {
				t.Errorf("round %d: appender %d believes that it won: %v", round, i, won[i])
			}
		}
		prev = c.Sum
	}
	expect(t, mustTail(t, logs[0], 1, feed.TailOptions{}), 1, rounds)
}

func TestI2_LostReplyIsSettledByTheSameBytes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.logWith(t, feed.LogConfig{AppendTimeout: 50 * time.Millisecond}))
	w.append(1)
	lost := 0
	w.l.Lose(func(*nats.Msg) bool { lost++; return lost <= 2 })
	w.append(1)
	if lost < 3 {
		t.Errorf("%d answers, want at least 3", lost)
	}
	w.append(1)
	expect(t, mustTail(t, w.l, 1, feed.TailOptions{}), 1, 3)
	if _, last, _ := w.l.Bounds(t.Context()); last != 3 {
		t.Errorf("log ends at %d, want 3: a commit was stored twice", last)
	}
}

// The reply is lost and another owner appends behind it: ours is stored, and
// Append must say so, although the stream refuses the second try.
func TestI2_LostReplyThenAnotherOwner(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w, other := newWriter(t, b.logWith(t, feed.LogConfig{AppendTimeout: 100 * time.Millisecond})), newWriter(t, b.log(t))
	c, data := w.commit(1)
	first := true
	w.l.Lose(func(*nats.Msg) bool {
		if first {
			first = false
			other.last, other.sum = 1, c.Sum
			other.append(1)
			return true
		}
		return false
	})
	if lsn, err := w.l.Append(t.Context(), 0, c.ID, data); lsn != 1 || err != nil {
		t.Errorf("appended at %d, %v", lsn, err)
	}
	c, data = w.commit(1)
	if _, err := w.l.Append(t.Context(), 1, c.ID, data); !errors.Is(err, feed.ErrFenced) {
		t.Errorf("next append: %v, want %v", err, feed.ErrFenced)
	}
}

func TestI2_UnknownOutcomeIsSettledByAppendingAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.logWith(t, feed.LogConfig{AppendTimeout: 20 * time.Millisecond}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	silent, lost := true, 0
	w.l.Lose(func(*nats.Msg) bool {
		if lost++; lost == 3 {
			cancel()
		}
		return silent
	})
	c, data := w.commit(1)
	if _, err := w.l.Append(ctx, 0, c.ID, data); !errors.Is(err, feed.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want %v", err, feed.ErrUnknown)
	}
	silent = false
	if lsn, err := w.l.Append(t.Context(), 0, c.ID, data); lsn != 1 || err != nil {
		t.Errorf("again: appended at %d, %v", lsn, err)
	}
	if _, last, _ := w.l.Bounds(t.Context()); last != 1 {
		t.Errorf("log ends at %d, want 1", last)
	}
}

// The answer is lost, and then the stream is not there: a server that cannot read a stream's
// file starts without it, and has it again, with what was appended, when it can.
func TestI2_LostReplyThenNoLogIsUnknown(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.logWith(t, feed.LogConfig{AppendTimeout: 100 * time.Millisecond}))
	w.append(2)
	lost := false
	w.l.Lose(func(m *nats.Msg) bool {
		if lost || !bytes.Contains(m.Data, []byte(b.p.Stream())) {
			return false
		}
		lost = true
		if err := feed.DeleteLog(t.Context(), b.js, b.p); err != nil {
			t.Error(err)
		}
		return true
	})
	c, data := w.commit(1)
	_, err := w.l.Append(t.Context(), w.last, c.ID, data)
	if !errors.Is(err, feed.ErrUnknown) || !errors.Is(err, feed.ErrNoLog) || !lost {
		t.Errorf("error %v, want %v and %v", err, feed.ErrUnknown, feed.ErrNoLog)
	}
}

func TestAppend_NothingHappensBeforeItIsSent(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	c, data := w.commit(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.l.Append(ctx, 0, c.ID, data); !errors.Is(err, feed.ErrUnavailable) || errors.Is(err, feed.ErrUnknown) {
		t.Errorf("ended context: %v, want %v", err, feed.ErrUnavailable)
	}
	if _, err := w.l.Append(t.Context(), 0, c.ID, make([]byte, natsd.MaxPayloadDefault)); !errors.Is(err, feed.ErrTooLarge) {
		t.Errorf("too large: %v, want %v", err, feed.ErrTooLarge)
	}
	if _, last, _ := w.l.Bounds(t.Context()); last != 0 {
		t.Errorf("log ends at %d, want 0", last)
	}
	b.nc.Close()
	if _, err := w.l.Append(t.Context(), 0, c.ID, data); !errors.Is(err, feed.ErrUnavailable) {
		t.Errorf("closed connection: %v, want %v", err, feed.ErrUnavailable)
	}
}

func TestAppend_OutlivesTheServer(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	w.append(3)
	done := make(chan error, 1)
	go func() { done <- b.server.Reopen(t.Context()) }()
	w.append(20)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.append(1)
	expect(t, mustTail(t, w.l, 1, feed.TailOptions{}), 1, 24)
}

func TestAppend_NoSpaceIsCertain(t *testing.T) {
	t.Parallel()
	b := newBedWith(t, feed.LogConfig{}, natsd.Config{StoreMax: 1 << 20, SyncInterval: time.Minute})
	w := newWriter(t, b.log(t))
	w.append(1)
	var err error
	for range 30 {
		c, data := w.commit(5000)
		var lsn feed.LSN
		if lsn, err = w.l.Append(t.Context(), w.last, c.ID, data); err != nil {
			break
		}
		w.last, w.sum = lsn, c.Sum
	}
	if !errors.Is(err, feed.ErrStorage) || !strings.Contains(err.Error(), b.p.String()) {
		t.Fatalf("error %v, want %v", err, feed.ErrStorage)
	}
	if _, last, err := w.l.Bounds(t.Context()); last != w.last || err != nil {
		t.Errorf("log ends at %d, %v; want %d", last, err, w.last)
	}
}

func TestAppend_LogGoneOrMadeAnew(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	w.append(3)
	if err := feed.DeleteLog(t.Context(), b.js, b.p); err != nil {
		t.Fatal(err)
	}
	if err := feed.DeleteLog(t.Context(), b.js, b.p); err != nil {
		t.Errorf("delete twice: %v", err)
	}
	c, data := w.commit(1)
	if _, err := w.l.Append(t.Context(), w.last, c.ID, data); !errors.Is(err, feed.ErrNoLog) || errors.Is(err, feed.ErrUnknown) {
		t.Errorf("log gone: %v, want %v alone", err, feed.ErrNoLog)
	}
	if _, err := feed.OpenLog(t.Context(), b.js, b.p, feed.LogConfig{}); !errors.Is(err, feed.ErrNoLog) {
		t.Errorf("open: %v, want %v", err, feed.ErrNoLog)
	}
	if err := feed.CreateLog(t.Context(), b.js, b.p, feed.NewLogID(), feed.LogConfig{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.l.Append(t.Context(), w.last, c.ID, data); !isMismatch(err) {
		t.Errorf("log made anew: %v", err)
	}
	if _, _, err := w.l.Bounds(t.Context()); !isMismatch(err) {
		t.Errorf("bounds of a log made anew: %v", err)
	}
}

func TestCreateLog_IsIdempotentForOneLogAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	newWriter(t, b.log(t)).append(1)
	if err := feed.CreateLog(t.Context(), b.js, b.p, b.id, feed.LogConfig{}); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := feed.CreateLog(t.Context(), b.js, b.p, b.id, feed.LogConfig{Compression: true}); err != nil {
		t.Errorf("again with other options: %v", err)
	}
	if err := feed.CreateLog(t.Context(), b.js, b.p, feed.NewLogID(), feed.LogConfig{}); !isMismatch(err) {
		t.Errorf("another log: %v", err)
	}
	stream, err := b.js.Stream(t.Context(), b.p.Stream())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(t.Context(), 1); err == nil {
		t.Error("a commit can be deleted")
	}
}

func TestOpenLog_RefusesAForeignStream(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	p := feed.Partition{Container: feed.NewResourceID()}
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: p.Stream(), Subjects: []string{p.Subject()}}); err != nil {
		t.Fatal(err)
	}
	if _, err := feed.OpenLog(t.Context(), b.js, p, feed.LogConfig{}); !isMismatch(err) {
		t.Errorf("error %v", err)
	}
}

func isMismatch(err error) bool { _, ok := errors.AsType[*feed.MismatchError](err); return ok }

// Three servers: the codes, leaders and catching up of a replicated log.
func TestLog_Replicated(t *testing.T) {
	t.Parallel()
	servers := cluster(t, 3)
	b := &bed{server: servers[0], p: feed.Partition{Container: feed.NewResourceID()}, id: feed.NewLogID()}
	b.nc, b.js = b.connect(t)
	poll.Until(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return feed.CreateLog(ctx, b.js, b.p, b.id, feed.LogConfig{Replicas: 3})
	})
	stream, err := b.js.Stream(t.Context(), b.p.Stream())
	if err != nil {
		t.Fatal(err)
	}
	leader := 0
	for i := range servers {
		if stream.CachedInfo().Cluster.Leader == fmt.Sprintf("s%d", i) {
			leader = i
		}
	}
	// Work through a server that is not the leader, so that the leader can die.
	b.server = servers[(leader+1)%len(servers)]
	b.nc, b.js = b.connect(t)
	w := newWriter(t, b.log(t))
	tail := mustTail(t, w.l, 1, feed.TailOptions{})
	w.append(10)
	expect(t, tail, 1, 10)

	late := newWriter(t, b.log(t))
	c, data := late.commit(1)
	if _, err := late.l.Append(t.Context(), 4, c.ID, data); !errors.Is(err, feed.ErrFenced) {
		t.Errorf("late appender: %v, want %v", err, feed.ErrFenced)
	}
	servers[leader].Close()
	w.append(10)
	expect(t, tail, 11, 20)
}

// cluster starts n servers that know each other.
func cluster(t *testing.T, n int) []*natsd.Server {
	t.Helper()
	given, routes := make([]int, n), make([]string, n)
	for i := range given {
		given[i] = ports.Free(t)
		routes[i] = fmt.Sprintf("nats://127.0.0.1:%d", given[i])
	}
	servers := make([]*natsd.Server, n)
	for i := range servers {
		var err error
		servers[i], err = natsd.Open(t.Context(), natsd.Config{
			Dir: t.TempDir(), Name: fmt.Sprintf("s%d", i), Port: natsd.PortRandom, Log: slog.New(slog.DiscardHandler),
			Cluster: natsd.Cluster{Name: "c", Host: "127.0.0.1", Port: given[i], Routes: routes, User: "r", Password: "the secret of routes"},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(servers[i].Close)
	}
	return servers
}
