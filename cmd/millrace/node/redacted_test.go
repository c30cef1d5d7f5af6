package node_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/configs"
)

// TestRedacted_LeavesOutSecrets in every form in which the client takes a server.
func TestRedacted_LeavesOutSecrets(t *testing.T) {
	for server, want := range map[string]string{
		"nats://10.0.0.7:4222":                               "nats://10.0.0.7:4222",
		"10.0.0.7:4222":                                      "10.0.0.7:4222",
		"nats://user:secret@10.0.0.7:4222":                   "nats://user:xxxxx@10.0.0.7:4222",
		"user:secret@10.0.0.7:4222":                          "nats://user:xxxxx@10.0.0.7:4222",
		"nats://secret@10.0.0.7:4222":                        "nats://xxxxx@10.0.0.7:4222",
		"secret@10.0.0.7:4222":                               "nats://xxxxx@10.0.0.7:4222",
		"nats://user:secret%@10.0.0.7:4222":                  "xxxxx@10.0.0.7:4222",
		"nats://a:secret@h:1, nats://b:secret@h:2,tls://h:3": "nats://a:xxxxx@h:1,nats://b:xxxxx@h:2,tls://h:3",
	} {
		if got := node.Redacted(server); got != want {
			t.Errorf("%s is shown as %s, want %s", server, got, want)
		}
	}
}

// TestConnect_AnErrorTellsNoSecret, also where the URL itself is wrong.
func TestConnect_AnErrorTellsNoSecret(t *testing.T) {
	cfg := &configs.Config{Server: "nats://user:secret%@127.0.0.1:4222"}
	_, err := node.Connect(t.Context(), cfg, &node.Login{}, "test", slog.New(slog.DiscardHandler))
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}
