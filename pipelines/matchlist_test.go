package pipelines_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/pipelines/verify"
)

const customerNames = `
apiVersion: millrace/v1
kind: Container
metadata: {name: customer}
spec: {partitionKey: [/customerId], partitions: 2}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: customer-names}
spec:
  source: {container: customer, where: type = "customer"}
  cascade:
    into: customer
    where: type = "salesOrder"
    match: {customerId: [customerId, id]}
    set: {customerName: lastName}
`

// A parent whose id is its partition key is copied into the items beside it: set,
// verified and repaired. One of another id under that key is nobody's source.
func TestMatch_AParentWhoseIDIsItsPartitionKey(t *testing.T) {
	t.Parallel()
	n := newMart(t)
	n.apply(t, decode(t, customerNames))
	n.put(t, "customer",
		`{"id":"k1","customerId":"k1","type":"customer","lastName":"Ek"}`,
		`{"id":"impostor","customerId":"k1","type":"customer","lastName":"Nobody"}`,
		`{"id":"o1","customerId":"k1","type":"salesOrder","customerName":"old"}`,
		`{"id":"o2","customerId":"k2","type":"salesOrder","customerName":"kept"}`)
	check := func(when, want string) {
		t.Helper()
		n.idle(t)
		got := n.read(t, "customer", "k1", "o1", "customerName") + " " + n.read(t, "customer", "k2", "o2", "customerName")
		if got != want {
			t.Errorf("%s: the copies are %s, want %s", when, got, want)
		}
		r, by := n.verify(t, verify.Config{})
		if p := by["customer-names"]; r.Verdict != verify.VerdictEqual || p.Copies != 1 || p.Dangling != 1 {
			t.Errorf("%s:\n%s", when, text(r))
		}
	}
	check("made", `"Ek" "kept"`)
	n.put(t, "customer", `{"id":"k1","customerId":"k1","type":"customer","lastName":"Berg"}`,
		`{"id":"impostor","customerId":"k1","type":"customer","lastName":"Somebody"}`)
	check("renamed", `"Berg" "kept"`)

	n.plantItem(t, "customer", "k1", "o1", `"customerName":"Berg"`, `"customerName":"wrong"`)
	want := `repaired ["k1"]/o1: customerName is "wrong", of its source "Berg" (source ["k1"]/k1)`
	if _, by := n.repair(t, verify.Config{}); !slices.Contains(lines(by["customer-names"]), want) {
		t.Errorf("repaired: %v\nwant %s", lines(by["customer-names"]), want)
	}
	check("repaired", `"Berg" "kept"`)
}

// Records without a list are written as the release before reads them; one with a
// list is refused by it by name. Both are read back.
func TestMatch_RecordsOfBothVersions(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.apply(t, decode(t, customerNames+strings.NewReplacer("customer-names", "names", "[customerId, id]", "customerId",
		`type = "customer"`, `id = "k1"`, "customerName", "otherName").Replace(customerNames[strings.Index(customerNames, "---"):])))
	kv, err := s.js.KeyValue(t.Context(), "millrace_pipelines")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"customer-names": {`"version":3`, `"match":{"customerId":["customerId","id"]}`},
		"names":          {`"version":2`, `"match":{"customerId":"customerId"}`},
	} {
		entry, err := kv.Get(t.Context(), "pipeline.default."+name)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range want {
			if !strings.Contains(string(entry.Value()), part) {
				t.Errorf("%s has no %s: %s", name, part, entry.Value())
			}
		}
		s.record(t, name)
	}
}
