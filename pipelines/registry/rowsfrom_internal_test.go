package registry

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

// From where on the rows of a projection have all changes, once it was set back to 50.
func TestRowsFrom(t *testing.T) {
	at := func(lsn feed.LSN) []Start { return []Start{{Partition: 0, After: feed.Position{LSN: lsn}}} }
	keeps, drops := &spec.Project{}, &spec.Project{OnExpire: spec.DeleteRows}
	walk := []Walk{{Partition: 0, LSN: 30}}
	for name, tc := range map[string]struct {
		was     Record
		expires bool
		want    feed.LSN
	}{
		"it began with the log":                                 {Record{Spec: spec.PipelineSpec{Project: keeps}}, true, 0},
		"from a moment on":                                      {Record{Spec: spec.PipelineSpec{Project: keeps}, From: at(20)}, false, 20},
		"from a later moment on":                                {Record{Spec: spec.PipelineSpec{Project: keeps}, From: at(90)}, false, 50},
		"set back before":                                       {Record{Spec: spec.PipelineSpec{Project: keeps}, From: at(40), RowsFrom: at(10)}, false, 10},
		"with items":                                            {Record{Spec: spec.PipelineSpec{Project: keeps}, Walks: walk}, false, 0},
		"with items, of which some had expired":                 {Record{Spec: spec.PipelineSpec{Project: keeps}, Walks: walk}, true, 50},
		"with items, and rows of expired ones go":               {Record{Spec: spec.PipelineSpec{Project: drops}, Walks: walk}, true, 0},
		"from a moment on, and backfilled":                      {Record{Spec: spec.PipelineSpec{Project: keeps}, From: at(20), Backfills: 1}, false, 0},
		"from a moment on, and backfilled, but some expired":    {Record{Spec: spec.PipelineSpec{Project: keeps}, From: at(20), Backfills: 1}, true, 20},
		"from a moment on, and backfilled but for some of them": {Record{Spec: spec.PipelineSpec{Project: keeps}, From: at(20), Backfills: 1, BackfillScope: BackfillScope{Where: "a = 1"}}, false, 20},
	} {
		source := &store.ContainerInfo{}
		if tc.expires {
			source.Spec.TTL = 60
		}
		if diff := cmp.Diff(at(tc.want), tc.was.rowsFrom(source, at(50))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
