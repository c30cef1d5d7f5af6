package feed_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
)

// TestUntouched: streams hold what their makers have put there, until somebody uses the log; what they have lost since
// counts too.
func TestUntouched(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	look := func(name, what string, want bool) {
		t.Helper()
		stream, err := b.js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if got := feed.Untouched(stream.CachedInfo()); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	old, moved := b.p.Stream(), b.p.Stream()+"_2"
	l := b.log(t)
	w := newWriter(t, l)
	look(old, "a log without its first commit", true)
	w.append(1)
	look(old, "a log with its first commit", true)
	w.append(1)
	look(old, "a log that was written to", false)
	w.append(8)
	w.trimTo(6)
	if _, err := l.Trim(t.Context(), 6); err != nil {
		t.Fatal(err)
	}
	look(old, "a log that was trimmed", false)

	m := b.begin(t, l, 9)
	look(moved, "a copy of nothing, to begin at LSN 9", true)
	if there, err := feed.StreamsOf(t.Context(), b.js, b.p); err != nil || len(there) != 2 {
		t.Errorf("streams %v, %v; want both", there, err)
	}
	if _, err := m.Step(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	look(moved, "a copy of something", false)
	stream, err := b.js.Stream(t.Context(), moved)
	if err == nil {
		err = stream.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	look(moved, "a copy of something, which is gone", false)
	if err := feed.DeleteLog(t.Context(), b.js, b.p); err != nil {
		t.Fatal(err)
	}
	if there, err := feed.StreamsOf(t.Context(), b.js, b.p); err != nil || len(there) != 0 {
		t.Errorf("streams %v, %v; want none", there, err)
	}

	if err := feed.CreateLog(t.Context(), b.js, b.p, b.id, feed.LogConfig{After: 7}); err != nil {
		t.Fatal(err)
	}
	look(old, "a log that continues another, without its first commit", true)
	w = newWriter(t, b.log(t))
	w.last, w.trimmed = 7, 7
	w.append(1)
	look(old, "a log that continues another, with its first commit", true)
	w.append(1)
	look(old, "a log that continues another and was written to", false)
	if _, err := b.js.Stream(t.Context(), moved); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("%v", err)
	}
	if feed.Untouched(&jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: "orders"}}) {
		t.Error("a stream that is not Millrace's counts")
	}
}
