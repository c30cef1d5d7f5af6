package pipelines_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/verify"
)

// TestVerify_JudgesNothingByACheckpointThatCannotBeRead: its reader may be anywhere.
func TestVerify_JudgesNothingByACheckpointThatCannotBeRead(t *testing.T) {
	n := rooted(t, t.TempDir())
	n.apply(t, decode(t, saleRows("./sales")))
	n.idle(t)
	kv, err := n.js.KeyValue(t.Context(), leases.DefaultBucket)
	if err != nil {
		t.Fatal(err)
	}
	const resource = "pipe/names-k2x4c7ab/1/target/d7k2x4ab/0"
	lease, err := json.Marshal(map[string]any{"v": 1, "resource": resource, "epoch": 1, "write": 1, "ttlMs": 10_000, "checkpoint": []byte(`{"version":200}`)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), "lease.worker."+resource, lease); err != nil {
		t.Fatal(err)
	}
	r, by := n.verify(t, verify.Config{Timeout: -1})
	if p := by["sales"]; p.Verdict != verify.VerdictUnjudged || !strings.Contains(p.Reason, "lease "+resource+": ") {
		t.Errorf("judged with a checkpoint that cannot be read:\n%s", text(r))
	}
}
