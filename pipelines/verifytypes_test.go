package pipelines_test

import (
	"encoding/json"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/verify"
)

// TestContainerRows_KeepTheTypesOfValues in columns without a type, and verify sees a
// value of another type.
func TestContainerRows_KeepTheTypesOfValues(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.apply(t, decode(t, saleContainer+`
---
apiVersion: millrace/v1
kind: Container
metadata: {name: flat}
spec: {partitionKey: [/customerId]}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: flatten}
spec:
  source: {container: sale}
  project:
    sink: {container: {}}
    tables: {flat: {key: [customerId, saleId], columns: {customerId: customerId, saleId: id, n: n, on: on, name: name}}}
`))
	n.put(t, "sale", `{"id":"s1","customerId":"k1","n":5.50,"on":true,"name":"7"}`)
	n.idle(t)
	for field, want := range map[string]string{"n": "5.50", "on": "true", "name": `"7"`, "saleId": `"s1"`} {
		if got := n.read(t, "flat", "k1", "s1", field); got != want {
			t.Errorf("%s is %s, want %s", field, got, want)
		}
	}
	if r, _ := n.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual {
		t.Errorf("at rest:\n%s", text(r))
	}
	key, err := feed.NewPartitionKey("k1")
	if err != nil {
		t.Fatal(err)
	}
	c := n.container(t, "flat")
	item, err := c.Read(t.Context(), key, "s1")
	if err != nil {
		t.Fatal(err)
	}
	var body map[string]any
	if err := json.Unmarshal(item.Body, &body); err != nil {
		t.Fatal(err)
	}
	body["n"] = "5.50"
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Upsert(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	if r, _ := n.verify(t, verify.Config{}); r.Verdict != verify.VerdictDrift {
		t.Errorf("with text in place of the number:\n%s", text(r))
	}
}
