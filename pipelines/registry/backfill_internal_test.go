package registry

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pipelines/spec"
)

// The generation whose rows are read while others are built beside them goes on with
// what it was to backfill, by the processors that it has.
func TestFormerGenerationBackfillsOn(t *testing.T) {
	rows := spec.Project{Sink: spec.Sink{Parquet: &spec.ParquetSink{Path: "rows"}}}
	rec := Record{ID: "x", Database: "default", Name: "rows", Generation: 3, Spec: spec.PipelineSpec{Project: &rows}, Backfills: 2, BackfillScope: BackfillScope{Where: "size > 5", Key: `["t1"]`}}
	next := rec
	next.succeed(&rec, &ApplyOptions{Backfill: true})
	next.Generation++
	if next.Backfills != 0 || next.BackfillScope != (BackfillScope{}) || !next.Shadow {
		t.Errorf("the next generation is to backfill %d, %+v; shadow %t", next.Backfills, next.BackfillScope, next.Shadow)
	}
	read, err := decodeRecord(registryKey(next.Metadata()), next.encode(), 1)
	if err != nil {
		t.Fatal(err)
	}
	former := read.FormerRecord()
	if former.Backfills != rec.Backfills || former.BackfillScope != rec.BackfillScope {
		t.Errorf("the former generation is to backfill %d, %+v", former.Backfills, former.BackfillScope)
	}
	if diff := cmp.Diff(rec.Fingerprint(), former.Fingerprint()); diff != "" {
		t.Errorf("its processors are made anew (-want +got):\n%s", diff)
	}
}
