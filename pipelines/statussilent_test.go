package pipelines_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/status"
)

// TestStatus_TellsTheRestWhileALogIsSilent: JetStream does not answer for a stream without a leader. The pipeline that reads
// it is not well, and its lag not known; the others are as they are. It is waited for once, and told of when it answers.
func TestStatus_TellsTheRestWhileALogIsSilent(t *testing.T) {
	n := rooted(t, t.TempDir())
	n.apply(t, decode(t, strings.ReplaceAll(saleContainer, "sale", "mute")))
	n.put(t, "mute", `{"id":"s1","customerId":"k1"}`)
	n.apply(t, decode(t, saleRows("./sales")))
	n.apply(t, decode(t, strings.NewReplacer("sales", "muted", "container: sale", "container: mute").Replace(saleRows("./muted"))))
	n.idle(t)

	mute := n.container(t, "mute").Partitions()[0]
	js, speak := without(t, n.js, "STREAM.INFO."+mute.Stream())
	monitor := status.NewMonitor(js, n.registry, status.MonitorConfig{AnswerTimeout: 5 * time.Second})
	t.Cleanup(monitor.Close)
	read := func() (s *status.Status, muted *status.Pipeline) {
		t.Helper()
		s, err := monitor.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Pipelines {
			if s.Pipelines[i].Name == "muted" {
				muted = &s.Pipelines[i]
			}
		}
		if len(s.Pipelines) != 2 || muted == nil {
			t.Fatalf("there are %+v", s.Pipelines)
		}
		return s, muted
	}
	for _, first := range []bool{true, false} {
		s, _ := read()
		for _, p := range s.Pipelines {
			silent := p.Name == "muted"
			if silent != (p.State == status.Stuck) || silent != p.Lag.Unknown || silent != slices.Equal(p.Unread, []string{mute.String()}) {
				t.Errorf("%s is %s: %s; its lag is %+v, and unread are %v", p.Name, p.State, p.Reason, p.Lag, p.Unread)
			}
		}
		if first != (s.Waited > 0) || s.Healthy() {
			t.Errorf("first %t: the reading tells that it has waited %s, and that all is well: %t", first, s.Waited, s.Healthy())
		}
	}
	speak()
	poll.Until(t, func() error {
		s, muted := read()
		return poll.Unless(muted.State == status.Idle && !muted.Lag.Unknown && s.Healthy(), muted.Reason)
	})
}

// without returns a JetStream that does not answer one request, until speak is called.
func without(t *testing.T, js jetstream.JetStream, mute string) (partial jetstream.JetStream, speak func()) {
	t.Helper()
	nc := js.Conn()
	var speaks atomic.Bool
	const prefix = "all.but."
	sub, err := nc.Subscribe(prefix+">", func(m *nats.Msg) {
		request := strings.TrimPrefix(m.Subject, prefix)
		if request == mute && !speaks.Load() {
			return
		}
		if err := nc.PublishRequest("$JS.API."+request, m.Reply, m.Data); err != nil {
			t.Errorf("hand on %s: %v", request, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sub.Unsubscribe(); err != nil {
			t.Error(err)
		}
	})
	if partial, err = jetstream.NewWithAPIPrefix(nc, strings.TrimSuffix(prefix, ".")); err != nil {
		t.Fatal(err)
	}
	return partial, func() { speaks.Store(true) }
}
