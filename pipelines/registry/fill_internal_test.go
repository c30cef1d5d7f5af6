package registry

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pipelines/spec"
)

// The generation whose rows are read while others are built beside them goes on with
// what it was to fill, by the processors that it has.
func TestFormerGenerationFillsOn(t *testing.T) {
	rows := spec.Project{Sink: spec.Sink{Parquet: &spec.ParquetSink{Path: "rows"}}}
	rec := Record{ID: "x", Database: "default", Name: "rows", Generation: 3, Spec: spec.PipelineSpec{Project: &rows}, Fills: 2, FillScope: FillScope{Where: "size > 5", Key: `["t1"]`}}
	next := rec
	next.succeed(&rec, &ApplyOptions{Backfill: true})
	next.Generation++
	if next.Fills != 0 || next.FillScope != (FillScope{}) || !next.Shadow {
		t.Errorf("the next generation is to fill %d, %+v; shadow %t", next.Fills, next.FillScope, next.Shadow)
	}
	read, err := decodeRecord(registryKey(next.Metadata()), next.encode(), 1)
	if err != nil {
		t.Fatal(err)
	}
	former := read.FormerRecord()
	if former.Fills != rec.Fills || former.FillScope != rec.FillScope {
		t.Errorf("the former generation is to fill %d, %+v", former.Fills, former.FillScope)
	}
	if diff := cmp.Diff(rec.Form(), former.Form()); diff != "" {
		t.Errorf("its processors are made anew (-want +got):\n%s", diff)
	}
}
