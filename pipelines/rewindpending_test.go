package pipelines_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/verify"
)

// TestI2_ARewindKeepsTheRowsThatWait: the item of a row that waits for its key may not change behind the place to
// which a pipeline is set back. When the key is free the row takes it all the same.
func TestI2_ARewindKeepsTheRowsThatWait(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.apply(t, decode(t, saleContainer+"---"+strings.ReplaceAll(peoplePipeline, "SINK", "{container: {}}")))
	for i, placeNow := range []func() string{
		func() string { return "now" },
		func() string { return time.Now().UTC().Format(time.RFC3339Nano) },
	} {
		n.put(t, "sale", `{"id":"first","customerId":"k1","type":"person","name":"Ann","n":1}`)
		n.idle(t)
		n.put(t, "sale", `{"id":"twin","customerId":"k9","type":"person","name":"Ann","n":2}`)
		n.idle(t)
		place, now := placeNow(), time.Now()
		to, err := registry.ParseRewindTo(place, now)
		if err != nil {
			t.Fatal(err)
		}
		if rec, err := n.registry.Rewind(t.Context(), "default", "flat", to, leases.DefaultBucket); err != nil || int(rec.Generation) != i+2 {
			t.Fatalf("%+v, %v", rec, err)
		}
		n.idle(t)
		n.delete(t, "sale", "k1", "first")
		n.idle(t)
		if r, by := n.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual || by["flat"].Copies != 1 {
			t.Errorf("set back to %s, and the key is free:\n%s", place, text(r))
		}
		n.delete(t, "sale", "k9", "twin")
		n.idle(t)
	}
}
