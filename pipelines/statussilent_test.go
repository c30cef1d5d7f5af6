package pipelines_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pipelines/status"
)

// TestStatus_TellsTheRestWhileALogIsSilent: JetStream does not answer for a stream without a leader. The pipeline that reads
// it is not well, and its lag not known; the others are as they are.
func TestStatus_TellsTheRestWhileALogIsSilent(t *testing.T) {
	n := rooted(t, t.TempDir())
	n.apply(t, decode(t, strings.ReplaceAll(saleContainer, "sale", "mute")))
	n.put(t, "mute", `{"id":"s1","customerId":"k1"}`)
	n.apply(t, decode(t, saleRows("./sales")))
	n.apply(t, decode(t, strings.NewReplacer("sales", "muted", "container: sale", "container: mute").Replace(saleRows("./muted"))))
	n.idle(t)

	mute := n.container(t, "mute").Partitions()[0]
	js := without(t, n.js, "STREAM.INFO."+mute.Stream())
	monitor := status.NewMonitor(js, n.registry, status.MonitorConfig{AnswerTimeout: 5 * time.Second})
	t.Cleanup(monitor.Close)
	s, err := monitor.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Pipelines {
		if silent := p.Name == "muted"; silent != (p.State == status.Stuck) || silent != p.Lag.Unknown {
			t.Errorf("%s is %s: %s; its lag is %+v", p.Name, p.State, p.Reason, p.Lag)
		}
	}
	if s.Waited <= 0 {
		t.Error("the reading does not tell that it has waited")
	}
	if len(s.Pipelines) != 2 {
		t.Errorf("there are %+v", s.Pipelines)
	}
}

// without returns a JetStream that does not answer one request.
func without(t *testing.T, js jetstream.JetStream, mute string) jetstream.JetStream {
	t.Helper()
	nc := js.Conn()
	const prefix = "all.but."
	sub, err := nc.Subscribe(prefix+">", func(m *nats.Msg) {
		request := strings.TrimPrefix(m.Subject, prefix)
		if request == mute {
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
	partial, err := jetstream.NewWithAPIPrefix(nc, strings.TrimSuffix(prefix, "."))
	if err != nil {
		t.Fatal(err)
	}
	return partial
}
