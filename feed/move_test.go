package feed_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/clustertest"
	"github.com/millrace/millrace/integration/poll"
)

// deny makes the stream of the log one of an earlier release.
func (b *bed) deny(tb testing.TB) {
	tb.Helper()
	stream, err := b.js.Stream(tb.Context(), b.p.Stream())
	if err != nil {
		tb.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.DenyPurge = true
	if _, err := b.js.UpdateStream(tb.Context(), cfg); err != nil {
		tb.Fatal(err)
	}
}

// close appends the commit that closes the log.
func (w *writer) close(data feed.MoveData) {
	w.t.Helper()
	text, err := json.Marshal(data)
	if err != nil {
		w.t.Fatal(err)
	}
	w.time++
	c := &feed.Commit{ID: feed.NewCommitID(), Log: w.l.ID(), Prev: w.sum, Epoch: 1, Owner: "node-1/a", Time: w.time, Trimmed: w.trimmed}
	c.Transactions = []feed.Transaction{{Control: &feed.Control{Kind: feed.ControlMove, Data: text}}}
	encoded := feed.AppendCommit(nil, c)
	if w.last, err = w.l.Append(w.t.Context(), w.last, c.ID, encoded); err != nil {
		w.t.Fatal(err)
	}
	w.sum = c.Sum
}

// copyAll brings a move to the end of the log.
func copyAll(tb testing.TB, m *feed.Move) {
	tb.Helper()
	for left := uint64(1); left > 0; {
		var err error
		if left, err = m.Step(tb.Context(), 3); err != nil {
			tb.Fatal(err)
		}
	}
}

func (b *bed) begin(tb testing.TB, l *feed.Log, first feed.LSN) *feed.Move {
	tb.Helper()
	m, err := l.BeginMove(tb.Context(), first)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(m.Close)
	return m
}

func (b *bed) streams(tb testing.TB) (names []string) {
	tb.Helper()
	names, err := feed.StreamNames(tb.Context(), b.js)
	if err != nil {
		tb.Fatal(err)
	}
	return names
}

// TestI4_ALogGoesOnInANewStream: LSNs, bytes and the chain are what they were, for those who
// read meanwhile and for those who come later.
func TestI4_ALogGoesOnInANewStream(t *testing.T) {
	t.Parallel()
	for name, cache := range map[string]*feed.TailCache{"read from the stream": nil, "read from memory": feed.NewTailCache()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.cache = cache
			logGoesOn(t, b)
		})
	}
}

// A move reads both streams, also where the process keeps what it appends: the copy is not the end of the log, and what is
// read back is what the new stream has.
func TestI4_AMoveReadsTheStreams(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.cache = feed.NewTailCache()
	l := b.log(t)
	w := newWriter(t, l)
	const more = 1300 // than a tail reads ahead
	w.append(more)
	b.deny(t)
	w.trimTo(10)
	atEnd := mustTail(t, b.log(t), w.last+1, feed.TailOptions{WatchInterval: never})
	m := b.begin(t, l, 11)
	if left, err := m.Step(t.Context(), 600); err != nil || left == 0 {
		t.Fatalf("%d are left, %v", left, err)
	}
	if _, bytes := b.cache.Kept(); bytes != 0 {
		t.Errorf("%d bytes are kept of a copy", bytes)
	}
	w.append(1)
	expect(t, atEnd, w.last, w.last)
	if atEnd.Consumer() != "" {
		t.Error("the copy took the end of the log from its tail")
	}
	w.close(m.Data())
	m.Close()
	l.Close() // the next one who opens the log finishes the move, before he appends
	w.l = b.log(t)
	if moved, err := w.l.FinishMove(t.Context()); !moved || err != nil {
		t.Fatalf("finish: %v, %v", moved, err)
	}
	w.append(1)
	expect(t, mustTail(t, b.log(t), 11, feed.TailOptions{}), 11, w.last)
	expect(t, atEnd, w.last-1, w.last)
}

func logGoesOn(t *testing.T, b *bed) {
	t.Helper()
	l := b.log(t)
	w := newWriter(t, l)
	w.append(20)
	b.deny(t)
	w.trimTo(10)
	if _, err := l.Trim(t.Context(), 10); !errors.Is(err, feed.ErrUntrimmable) {
		t.Fatalf("the old stream can be trimmed: %v", err)
	}
	before, err := l.Read(t.Context(), 15)
	if err != nil {
		t.Fatal(err)
	}
	// Readers of every kind: at the end, behind, in a hub, of one that has not read at all.
	atEnd, behind, unread := mustTail(t, b.log(t), 21, feed.TailOptions{}), mustTail(t, b.log(t), 12, feed.TailOptions{CommitsMax: 2}), mustTail(t, b.log(t), 11, feed.TailOptions{})
	expect(t, atEnd, 21, 21)
	expect(t, behind, 12, 13)
	hub := feed.NewHub(func(context.Context, feed.Partition) (*feed.Log, error) { return b.log(t), nil }, feed.HubConfig{})
	defer hub.Close()
	reader, err := hub.Reader(t.Context(), b.p, feed.Position{LSN: 17})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	expect(t, reader, 18, 21)
	early := mustTail(t, b.log(t), 5, feed.TailOptions{CommitsMax: 1})
	expect(t, early, 5, 5)

	m := b.begin(t, l, 11)
	copyAll(t, m)
	// The copy is no log: who looks finds the old stream.
	stream, err := feed.StreamOf(t.Context(), b.js, b.p)
	if err != nil || stream.CachedInfo().Config.Name != b.p.Stream() {
		t.Errorf("while it is copied: %v, %v", stream, err)
	}
	if moved, err := b.log(t).FinishMove(t.Context()); moved || err != nil {
		t.Errorf("a log that is not closed: %v, %v", moved, err)
	}
	w.append(5)
	copyAll(t, m)
	w.append(2) // not copied when it is closed
	w.close(m.Data())
	idle := b.log(t) // opened while the log was in the old stream
	if moved, err := l.FinishMove(t.Context()); !moved || err != nil {
		t.Fatalf("finish: %v, %v", moved, err)
	}
	if moved, err := l.FinishMove(t.Context()); moved || err != nil {
		t.Errorf("finish again: %v, %v", moved, err)
	}
	if names := b.streams(t); len(names) != 1 || names[0] != b.p.Stream()+"_2" {
		t.Fatalf("streams %v", names)
	}
	w.append(10) // 30 to 39
	expect(t, atEnd, 22, 39)
	expect(t, behind, 14, 39)
	expect(t, reader, 22, 39)
	expect(t, unread, 11, 39)
	expect(t, mustTail(t, b.log(t), 11, feed.TailOptions{}), 11, 39)
	if err := fails(t, early); !isTrimmed(err, 6, 11) && !isTrimmed(err, 7, 11) && !isTrimmed(err, 8, 11) {
		t.Errorf("who reads what went: %v", err)
	}
	for name, of := range map[string]*feed.Log{"the owner's": l, "one that was idle": idle, "a new one": b.log(t)} {
		s, err := of.Shape(t.Context())
		if err != nil || s.First != 11 || s.Last != 39 || s.Trimmed != 10 || s.Untrimmable || s.Missing != nil || s.Log != b.id {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if c, err := of.Read(t.Context(), 15); err != nil || c.Sum != before.Sum {
			t.Errorf("%s: LSN 15 is %v, %v", name, c, err)
		}
		if page, err := of.ReadPage(t.Context(), 30, 5, 1<<20); err != nil || len(page) != 5 {
			t.Errorf("%s: page of %d, %v", name, len(page), err)
		}
	}
	w.trimTo(30)
	if n, err := l.Trim(t.Context(), 30); n != 20 || err != nil {
		t.Errorf("trimmed %d, %v", n, err)
	}
	// Who was to make the log, and comes when it has moved, makes no empty one in its place.
	if err := feed.CreateLog(t.Context(), b.js, b.p, b.id, feed.LogConfig{}); err != nil {
		t.Error(err)
	}
	if err := feed.CreateLog(t.Context(), b.js, b.p, feed.NewLogID(), feed.LogConfig{}); !isMismatch(err) {
		t.Errorf("another log is made beside it: %v", err)
	}
	if names := b.streams(t); len(names) != 1 || names[0] != b.p.Stream()+"_2" {
		t.Errorf("made once more: %v", names)
	}
	if s, err := b.log(t).Shape(t.Context()); err != nil || s.First != 31 || s.Last != w.last {
		t.Errorf("made once more: %+v, %v", s, err)
	}
	if err := feed.DeleteLog(t.Context(), b.js, b.p); err != nil {
		t.Fatal(err)
	}
	if names := b.streams(t); len(names) != 0 {
		t.Errorf("after the deletion: %v", names)
	}
}

// TestI1_NobodyAppendsBehindAMove: an owner that was late is fenced, and one whose append got
// no answer learns what became of it.
func TestI1_NobodyAppendsBehindAMove(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		until string // how far the move is when the late one appends
		after feed.LSN
	}{
		{"while it is copied", "copied", 12},
		{"closed", "closed", 12},
		{"finished", "finished", 12},
		{"finished, long ago", "finished", 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			l := b.log(t)
			w := newWriter(t, l)
			w.append(12)
			b.deny(t)
			late := newWriter(t, b.log(t))
			late.last, late.sum, late.time = w.last, w.sum, w.time
			w.trimTo(5)
			m := b.begin(t, l, 6)
			copyAll(t, m)
			if c.until != "copied" {
				w.close(m.Data())
			}
			if c.until == "finished" {
				if moved, err := l.FinishMove(t.Context()); !moved || err != nil {
					t.Fatal(moved, err)
				}
				w.append(1)
			}
			commit, data := late.commit(1)
			_, err := late.l.Append(t.Context(), c.after, commit.ID, data)
			if want := feed.ErrFenced; c.after > 5 && !errors.Is(err, want) {
				t.Errorf("a late append: %v", err)
			}
			// What stood there is trimmed: nobody can tell any more whose it was.
			if c.after < 5 && !errors.Is(err, feed.ErrUnknown) {
				t.Errorf("a late append behind what was trimmed: %v", err)
			}
			if moved, err := b.log(t).FinishMove(t.Context()); err != nil || moved != (c.until == "closed") {
				t.Errorf("finish: %v, %v", moved, err)
			}
			expect(t, mustTail(t, b.log(t), 6, feed.TailOptions{}), 6, w.last)
			if _, last, err := b.log(t).Bounds(t.Context()); last != w.last || err != nil {
				t.Errorf("it ends at %d, want %d: %v", last, w.last, err)
			}
		})
	}
	t.Run("an answer was lost", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		l := b.log(t)
		w := newWriter(t, l)
		w.append(12)
		b.deny(t)
		w.trimTo(5)
		commit, data := w.commit(1)
		if _, err := b.log(t).Append(t.Context(), w.last, commit.ID, data); err != nil {
			t.Fatal(err)
		}
		before := *w
		w.last, w.sum = w.last+1, commit.Sum
		m := b.begin(t, l, 6)
		copyAll(t, m)
		w.close(m.Data())
		unanswered := b.log(t)
		if moved, err := b.log(t).FinishMove(t.Context()); !moved || err != nil {
			t.Fatal(moved, err)
		}
		lsn, err := unanswered.Append(t.Context(), before.last, commit.ID, data)
		if lsn != before.last+1 || err != nil {
			t.Errorf("an append that had happened: %d, %v", lsn, err)
		}
	})
}

// TestI2_AMoveIsFinishedFromAnyStep, by a process that knows nothing of it, after the server
// was killed too; and by several at a time.
func TestI2_AMoveIsFinishedFromAnyStep(t *testing.T) {
	t.Parallel()
	steps := []string{"begun", "copied in part", "copied", "closed", "closed, in part", "labelled", "finished", "closed, the copy is lost"}
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			l := b.log(t)
			w := newWriter(t, l)
			w.append(150)
			b.deny(t)
			w.trimTo(50)
			m := b.begin(t, l, 51)
			switch step {
			case "begun":
			case "copied in part", "closed, in part":
				if _, err := m.Step(t.Context(), 77); err != nil {
					t.Fatal(err)
				}
			default:
				copyAll(t, m)
			}
			data := m.Data()
			m.Close()
			if step != "begun" && step != "copied in part" && step != "copied" {
				w.append(20)
				w.close(data)
			}
			switch step {
			case "labelled":
				cfg := b.config(t, b.p.Stream()+"_2")
				cfg.Metadata = map[string]string{"millrace.log": b.id.String()}
				if _, err := b.js.UpdateStream(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
			case "closed, the copy is lost":
				if err := b.js.DeleteStream(t.Context(), b.p.Stream()+"_2"); err != nil {
					t.Fatal(err)
				}
			}
			if step == "begun" || step == "copied in part" || step == "copied" { // the next owner goes on with it
				next := b.log(t)
				m, err := next.Moving(t.Context())
				if err != nil || m == nil || m.First() != 51 {
					t.Fatalf("the move is not found: %+v, %v", m, err)
				}
				defer m.Close()
				if _, err := next.BeginMove(t.Context(), 40); err == nil {
					t.Error("a copy that lacks what is needed is gone on with")
				}
				w.append(5)
				copyAll(t, m)
				w.close(m.Data())
			}
			var all sync.WaitGroup
			moved := make([]bool, 4)
			for i := range moved {
				other := b.log(t)
				all.Go(func() {
					var err error
					if moved[i], err = other.FinishMove(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if names := b.streams(t); len(names) != 1 || names[0] != b.p.Stream()+"_2" {
				t.Fatalf("streams %v, %v", names, moved)
			}
			if moved, err := l.FinishMove(t.Context()); moved || err != nil {
				t.Errorf("again: %v, %v", moved, err)
			}
			w.append(1)
			expect(t, mustTail(t, b.log(t), 51, feed.TailOptions{}), 51, w.last)
			if s, err := l.Shape(t.Context()); err != nil || s.First != 51 || s.Last != w.last || s.Missing != nil {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}

func (b *bed) config(tb testing.TB, name string) jetstream.StreamConfig {
	tb.Helper()
	stream, err := b.js.Stream(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	return stream.CachedInfo().Config
}

// TestMove_ACopyThatIsNotTheLogIsNeverBelieved: nothing is deleted for its sake.
func TestMove_ACopyThatIsNotTheLogIsNeverBelieved(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	l := b.log(t)
	w := newWriter(t, l)
	w.append(20)
	b.deny(t)
	w.trimTo(10)
	m := b.begin(t, l, 11)
	if _, err := m.Step(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	m.Close()
	// Somebody writes a commit of his own to the end of the copy, in the chain.
	c, err := l.Read(t.Context(), 20)
	if err != nil {
		t.Fatal(err)
	}
	forged := &feed.Commit{ID: feed.NewCommitID(), Log: b.id, Prev: c.Sum, Owner: "somebody", Time: c.Time, Transactions: []feed.Transaction{{}}}
	if _, err := b.js.Publish(t.Context(), b.p.Subject()+".2", feed.AppendCommit(nil, forged)); err != nil {
		t.Fatal(err)
	}
	m, err = l.Moving(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for range 3 {
		if _, err = m.Step(t.Context(), 8); err != nil {
			break
		}
	}
	if err == nil {
		t.Error("the copy is believed while it is made")
	}
	w.close(feed.MoveData{First: 11})
	if moved, err := b.log(t).FinishMove(t.Context()); moved || err == nil {
		t.Errorf("finish: %v, %v", moved, err)
	}
	if names := b.streams(t); len(names) != 2 {
		t.Errorf("streams %v", names)
	}
	expect(t, mustTail(t, b.log(t), 1, feed.TailOptions{}), 1, w.last)

	// It does not become the log where the log is lost.
	if err := b.js.DeleteStream(t.Context(), b.p.Stream()); err != nil {
		t.Fatal(err)
	}
	if _, err := feed.OpenLog(t.Context(), b.js, b.p, feed.LogConfig{}); !errors.Is(err, feed.ErrNoLog) {
		t.Errorf("open: %v", err)
	}
	if _, err := l.Shape(t.Context()); !errors.Is(err, feed.ErrNoLog) {
		t.Errorf("shape: %v", err)
	}
	if _, err := feed.StreamOf(t.Context(), b.js, b.p); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("stream: %v", err)
	}

	// A stream that has nothing to do with it.
	other := newBed(t)
	w = newWriter(t, other.log(t))
	w.append(5)
	other.deny(t)
	if _, err := other.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: other.p.Stream() + "_2", Subjects: []string{"something.else"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.log(t).BeginMove(t.Context(), 3); err == nil {
		t.Error("a foreign stream is taken for the copy")
	}
	if _, err := other.log(t).Moving(t.Context()); err == nil {
		t.Error("a foreign stream is taken for a copy that was begun")
	}
}

// TestMove_IsBoundedByTheLog: a copy cannot begin where the log is not.
func TestMove_IsBoundedByTheLog(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	l := b.log(t)
	newWriter(t, l).append(5)
	b.deny(t)
	for _, first := range []feed.LSN{0, 6, 100} {
		if _, err := l.BeginMove(t.Context(), first); err == nil {
			t.Errorf("it begins at %d", first)
		}
	}
	if names := b.streams(t); len(names) != 1 {
		t.Errorf("streams %v", names)
	}
	if m, err := l.Moving(t.Context()); m != nil || err != nil {
		t.Errorf("%v, %v", m, err)
	}
	for name, want := range map[string]string{
		"MILLRACE_c7k2x4ab_12": "c7k2x4ab/12", "MILLRACE_c7k2x4ab_12_2": "c7k2x4ab/12", "MILLRACE_c7k2x4ab_2": "c7k2x4ab/2", "MILLRACE_c7k2x4ab_2_2": "c7k2x4ab/2",
		"MILLRACE_c7k2x4ab_12_3": "", "MILLRACE_c7k2x4ab_12_2_2": "", "MILLRACE_c7k2x4ab__2": "", "MILLRACE_c7k2x4ab_02_2": "", "MILLRACE_SNAPSHOTS": "",
	} {
		if p, ok := feed.ParseStream(name); ok != (want != "") || ok && p.String() != want {
			t.Errorf("%s: %s, %v", name, p, ok)
		}
	}
}

// TestI2_AMoveInACluster keeps the replicas, through elections of both streams and the loss
// of a server.
func TestI2_AMoveInACluster(t *testing.T) {
	t.Parallel()
	three := clustertest.Start(t)
	js := three.JetStream()
	b := &bed{nc: js.Conn(), js: js, p: feed.Partition{Container: feed.NewResourceID()}, id: feed.NewLogID()}
	three.Wait(func(ctx context.Context) error {
		return feed.CreateLog(ctx, js, b.p, b.id, feed.LogConfig{Replicas: 3})
	})
	l := b.log(t)
	w := newWriter(t, l)
	w.append(40)
	b.deny(t)
	w.trimTo(20)
	m := b.begin(t, l, 21)
	for range 4 {
		if _, err := m.Step(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
	}
	for _, stream := range []string{b.p.Stream(), b.p.Stream() + "_2"} {
		if _, err := js.Conn().Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	poll.Until(t, func() error {
		left, err := m.Step(t.Context(), 100)
		return cmp.Or(err, poll.Unless(left == 0, "not copied yet"))
	})
	w.append(5)
	w.close(m.Data())
	poll.Until(t, func() error {
		_, err := l.FinishMove(t.Context())
		return err
	})
	w.append(5)
	tail := mustTail(t, b.log(t), 21, feed.TailOptions{})
	expect(t, tail, 21, w.last)
	if cfg := b.config(t, b.p.Stream()+"_2"); cfg.Replicas != 3 || cfg.DenyPurge {
		t.Errorf("%d replicas, purges denied %t", cfg.Replicas, cfg.DenyPurge)
	}
	if names := b.streams(t); len(names) != 1 {
		t.Errorf("streams %v", names)
	}
	three.Servers[1].Shutdown()
	w.append(5)
	expect(t, tail, w.last-4, w.last)
}
