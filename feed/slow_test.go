package feed_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
)

// slowLink returns a JetStream whose direct gets are answered by the real one, but whose answers
// take some time each. asked counts the gets.
func (b *bed) slowLink(t *testing.T, first, each time.Duration) (js jetstream.JetStream, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	js = b.api(t, func(nc *nats.Conn, m *nats.Msg, question string) {
		if !strings.HasPrefix(question, "DIRECT.GET.") { // what is small is not slow
			forward(t, nc, m, "$JS.API."+question)
			return
		}
		// One get is on the link. Further ones only add to its load.
		if asked.Add(1) > 1 {
			return
		}
		inbox := nc.NewInbox()
		wait := first
		answers, err := nc.Subscribe(inbox, func(answer *nats.Msg) {
			<-time.After(wait)
			wait = each
			if err := m.RespondMsg(&nats.Msg{Header: answer.Header, Data: answer.Data}); err != nil && !nc.IsClosed() {
				t.Error(err)
			}
		})
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = answers.Unsubscribe() })
		if err := nc.PublishRequest("$JS.API."+question, inbox, m.Data); err != nil {
			t.Error(err)
		}
	})
	return js, asked
}

// TestLog_MessageOnASlowLinkArrives reads a commit that takes longer than a question may take.
func TestLog_MessageOnASlowLinkArrives(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	newWriter(t, b.log(t)).append(1)
	js, asked := b.slowLink(t, 6*time.Second, 0)
	l, err := feed.OpenLog(t.Context(), js, b.p, feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c, err := l.Read(t.Context(), 1)
	if err != nil || c.LSN != 1 {
		t.Errorf("read %v, %v; want the commit", c, err)
	}
	// After 0, 0.5, 1.5 and 3.5 s. The next one is after 7.5 s, where the machine is as slow.
	if n := asked.Load(); n > 4 && time.Since(began) < 7500*time.Millisecond {
		t.Errorf("the commit was asked for %d times in 6 s, want 4 at most", n)
	}
}

// TestLog_PageOnASlowLinkArrives reads a page of which each commit comes in time, and the whole
// takes longer than one may take.
func TestLog_PageOnASlowLinkArrives(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	newWriter(t, b.log(t)).append(4)
	js, _ := b.slowLink(t, 4*time.Second, 4*time.Second)
	l, err := feed.OpenLog(t.Context(), js, b.p, feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	page, err := l.ReadPage(t.Context(), 1, 10, 1<<20)
	if err != nil || len(page) != 4 {
		t.Errorf("read %d commits, %v; want 4", len(page), err)
	}
}
