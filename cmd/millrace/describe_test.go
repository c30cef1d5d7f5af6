package main

import (
	"testing"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/store"
)

// TestPartitionRow_Standbys shows a copy that is made anew as what it is, also where nobody owns the partition.
func TestPartitionRow_Standbys(t *testing.T) {
	p := inspect.Partition{Standbys: []inspect.Standby{{Node: "b", Remark: "differed"}, {Node: "c", Applied: 7}}}
	for what, c := range map[string]struct {
		status         *store.PartitionStatus
		failed         string
		standbys, note string
	}{
		"owned":    {&store.PartitionStatus{Applied: 9}, "", "b, not ready; c, 2 behind", "the copy of b differed"},
		"no owner": {nil, "nobody answers", "b, not ready; c, LSN 7", "nobody answers; the copy of b differed"},
	} {
		p.Status, p.Error = c.status, c.failed
		row := partitionRow(&p)
		if standbys, note := row[len(row)-2], row[len(row)-1]; standbys != c.standbys || note != c.note {
			t.Errorf("%s: %q and %q, where %q and %q are expected", what, standbys, note, c.standbys, c.note)
		}
	}
}
