package spec_test

import (
	"fmt"
	"os"
	"time"

	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

func ExampleDecode() {
	_, err := spec.Decode("shop.yaml", []byte(`
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: category-names}
spec:
  source: {container: productMeta, where: type = }
  cascade:
    into: product
    match: {categoryId: id}
    sets: {categoryName: name}
    onSourceDelete: drop
`))
	fmt.Println(err)
	// Output:
	// shop.yaml:6:49: spec.source.where: want an expression, at the end
	// shop.yaml:10:5: unknown field spec.cascade.sets; did you mean set?
	// shop.yaml:11:21: spec.cascade.onSourceDelete is "drop"; keep, clear or delete is expected
}

func ExampleResources_Check() {
	r, err := spec.Decode("tree.yaml", []byte(`
apiVersion: millrace/v1
kind: Container
metadata: {name: node}
spec: {partitionKey: [/tree], partitions: 4}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: root-names}
spec:
  source: {container: node}
  cascade:
    into: node
    match: {tree: tree, parent: id}
    set: {rootName: rootName}
`))
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(r.Check(spec.Existing{Containers: []store.ContainerInfo{{
		Database: "default", Name: "node", Spec: store.ContainerSpec{PartitionKey: []string{"/tree"}, Partitions: 2},
	}}}))
	// Output:
	// tree.yaml:5:43: spec.partitions of container default/node is 2 and cannot be changed to 4; keep it, or declare a container of another name and import the items there
	// tree.yaml:15:11: spec.cascade.set.rootName: a cycle of fields that need not come to rest: node.rootName -> node.rootName (pipeline root-names); leave one of these copies out, or keep their items apart by wheres
}

func ExampleStatus_Print() {
	s := &status.Status{Pipelines: []status.Pipeline{
		{
			Database: "default", Name: "category-names", State: status.Behind, Rate: 81234,
			Lag:    status.Lag{Commits: 3, Changes: 3, Jobs: 1, Seconds: 0.41},
			Counts: processors.Counts{Copies: 43210},
			FanOuts: []status.FanOut{{
				Source: `["category"]/75BF1ACB`, Scanned: 43000, Changed: 43000, Total: 100000, Percent: 43, ETA: 700 * time.Millisecond, Rate: 81234,
			}},
		},
		{Database: "default", Name: "tag-names", State: status.Paused, Reason: "millrace resume tag-names", Parked: 1, Counts: processors.Counts{DeadLetters: 2}},
	}}
	if err := s.Print(os.Stdout, false); err != nil {
		fmt.Println(err)
	}
	// Output:
	// PIPELINE        STATE   LAG  OLDEST  COPIES  RATE      FAN-OUTS  PARKED  DEAD LETTERS  VERIFIED
	// category-names  behind  3    410ms   43,210  81,234/s  1         0       0             -
	// tag-names       paused  0    -       0       0/s       0         1       2             -
	//
	// Fan-outs of category-names
	//   ["category"]/75BF1ACB  43% of 100,000  43,000 changed  81,234/s  ETA 700ms
	//
	// tag-names is paused: millrace resume tag-names
}

func ExampleReport_Print() {
	r := &verify.Report{Verdict: verify.VerdictDrift, Pipelines: []verify.PipelineReport{
		{Database: "default", Name: "category-names", Verdict: verify.VerdictEqual, Copies: 295},
		{
			Database: "default", Name: "tag-names", Verdict: verify.VerdictDrift, Copies: 766, Drift: 1, Dangling: 1,
			Differences: []verify.Difference{
				{
					Kind: verify.DifferenceDrift, Item: `["26C7"]/027D`, Element: 1, Source: `["tag"]/6C2F`,
					Fields: []verify.FieldDifference{{Field: "name", Has: []byte(`"Tag-5"`), Want: []byte(`"Fifth"`)}},
				},
				{Kind: verify.DifferenceDangling, Item: `["26C7"]/027D`, Element: 4, Source: `["tag"]/DCF6`},
			},
		},
	}}
	if err := r.Print(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// PIPELINE        VERDICT  COPIES  DRIFT  BEHIND  DANGLING
	// category-names  equal    295     0      0       0
	// tag-names       drift    766     1      0       1
	//
	// Differences of tag-names
	//   drift ["26C7"]/027D element 1: name is "Tag-5", of its source "Fifth" (source ["tag"]/6C2F)
	//   dangling ["26C7"]/027D element 4: there is no source ["tag"]/DCF6
}
