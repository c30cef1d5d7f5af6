package live_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/pipelines/internal/live"
	"github.com/millrace/millrace/processors"
)

// TestAsk_WhoDoesNotAnswerIsLeftOut so that who looks goes by the checkpoints.
func TestAsk_WhoDoesNotAnswerIsLeftOut(t *testing.T) {
	nc := natstest.Start(t).NC
	answers := func(node, data string) {
		if _, err := nc.Subscribe("millrace.read.worker."+node+".1", func(m *nats.Msg) { _ = m.Respond([]byte(data)) }); err != nil {
			t.Fatal(err)
		}
	}
	answers("right", `{"v":1,"counts":{"pipe/a":{"copies":7},"pipe/unasked":{"copies":9}}}`)
	answers("later", `{"v":2,"counts":{"pipe/b":{"copies":7}}}`)
	answers("broken", `{`)
	got := live.Ask(t.Context(), nc, map[string][]string{
		"right/1": {"pipe/a"}, "later/1": {"pipe/b"}, "broken/1": {"pipe/c"}, "gone/1": {"pipe/d"}, "no subject/*": {"pipe/e"}, "": {"pipe/f"},
	})
	if len(got) != 1 || got["pipe/a"] != (processors.Counts{Copies: 7}) {
		t.Errorf("the answers are %v", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := live.Ask(ended, nc, map[string][]string{"right/1": {"pipe/a"}}); len(got) != 0 {
		t.Errorf("after the end: %v", got)
	}
}
