package pipelines_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/verify"
)

const deletedSources = `
apiVersion: millrace/v1
kind: Container
metadata: {name: maker}
spec: {partitionKey: [/id], changeFeed: {tombstones: 48h}}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: kept}
spec: {partitionKey: [/id]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: cleared}
spec: {partitionKey: [/id]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: shortened}
spec: {partitionKey: [/id]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: deleted}
spec: {partitionKey: [/id]}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: kept}
spec:
  source: {container: maker}
  cascade: {into: kept, match: {maker: id}, set: {name: name}, onSourceDelete: keep}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: cleared}
spec:
  source: {container: maker}
  cascade: {into: cleared, match: {maker: id}, set: {name: name}, onSourceDelete: clear}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: shortened}
spec:
  source: {container: maker}
  cascade: {into: shortened, each: makers, match: {id: id}, set: {name: name}, onSourceDelete: clear}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: deleted}
spec:
  source: {container: maker}
  cascade: {into: deleted, match: {maker: id}, set: {name: name}, onSourceDelete: delete}
`

// Copies of sources that were deleted before the pipelines came, and whose deletes are
// known from the log alone: what the pipelines make of them, what verify says of what
// differs behind their back, and what repair does about it.
func TestVerify_JudgesCopiesOfDeletedSources(t *testing.T) {
	t.Parallel()
	m := newMart(t)
	all := decode(t, deletedSources)
	m.apply(t, &spec.Resources{Containers: all.Containers})
	m.put(t, "maker", `{"id":"m1","name":"Old"}`)
	m.put(t, "maker", `{"id":"m1","name":"Last"}`)
	m.put(t, "deleted", `{"id":"before","maker":"m1"}`)
	key, err := feed.NewPartitionKey("m1")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.container(t, "maker").Delete(t.Context(), key, "m1"); err != nil {
		t.Fatal(err)
	}
	m.apply(t, &spec.Resources{Pipelines: all.Pipelines})
	m.idle(t)
	m.put(t, "kept", `{"id":"p","maker":"m1","name":"Old"}`)
	m.put(t, "cleared", `{"id":"p","maker":"m1","name":"Old"}`)
	m.put(t, "shortened", `{"id":"p","makers":[{"id":"m1","name":"Old"},{"id":"m2","name":"Never"}]}`)
	m.put(t, "deleted", `{"id":"after","maker":"m1","name":"Old"}`)
	m.idle(t)
	for container, want := range map[string]string{"kept": `"Last"`, "cleared": ""} {
		if got := m.read(t, container, "p", "p", "name"); got != want {
			t.Errorf("%s: the name is %s, want %s", container, got, want)
		}
	}
	if got, want := m.read(t, "shortened", "p", "p", "makers"), `[{"id":"m2","name":"Never"}]`; got != want {
		t.Errorf("the makers are %s, want %s", got, want)
	}
	r, by := m.verify(t, verify.Config{})
	if r.Verdict != verify.VerdictEqual || by["kept"].Copies != 1 || by["cleared"].Copies != 1 || by["deleted"].Copies != 0 {
		t.Errorf("at rest:\n%s", text(r))
	}
	want := map[string][]string{
		"shortened": {`dangling ["p"]/p element 0: there is no source ["m2"]/m2`},
		"deleted":   {`dangling ["after"]/after: there is no source ["m1"]/m1`},
	}
	for name, listed := range want {
		if diff := cmp.Diff(listed, lines(by[name])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	m.plantItem(t, "kept", "p", "p", `"name":"Last"`, `"name":"Lost"`)
	m.plantItem(t, "cleared", "p", "p", `"maker":"m1"`, `"maker":"m1","name":"Lost"`)
	m.plantItem(t, "shortened", "p", "p", `{"id":"m2","name":"Never"}`, `{"id":"m2","name":"Never"},{"id":"m1","name":"Lost"}`)
	_, by = m.verify(t, verify.Config{})
	drift := map[string]string{
		"kept":      `drift ["p"]/p: name is "Lost", of its source "Last" (source ["m1"]/m1)`,
		"cleared":   `drift ["p"]/p: name is "Lost", of its source absent, its source was deleted, and the copy has to go (source ["m1"]/m1)`,
		"shortened": `drift ["p"]/p element 1: name is "Lost", of its source absent, its source was deleted, and the element has to go (source ["m1"]/m1)`,
	}
	for name, line := range drift {
		if got := lines(by[name]); len(got) == 0 || got[len(got)-1] != line {
			t.Errorf("%s: %s\nwant %s", name, got, line)
		}
	}
	_, by = m.repair(t, verify.Config{})
	for name, line := range drift {
		if got := lines(by[name]); len(got) == 0 || got[len(got)-1] != strings.Replace(line, "drift", "repaired", 1) {
			t.Errorf("%s: %s\nwant it repaired: %s", name, got, line)
		}
	}
	if r, _ := m.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual {
		t.Errorf("after the repair:\n%s", text(r))
	}
}
