package doctor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/store/upkeep"
)

// TestExamine_TellsOfReplicasThatAreBehind: with them a stream has its number, and the loss of
// one more server may stop it.
func TestExamine_TellsOfReplicasThatAreBehind(t *testing.T) {
	for _, c := range []struct {
		name   string
		stream upkeep.Stream
		want   string
	}{
		{"all are well", upkeep.Stream{Wanted: 3, Actual: 3}, ""},
		{"two are behind", upkeep.Stream{Wanted: 3, Actual: 3, Behind: []string{"n2", "n3"}}, "not up to date: those on n2, n3"},
		{"one is missing", upkeep.Stream{Wanted: 3, Actual: 2}, "it has 2 of 3 replicas"},
	} {
		c.stream.Name = "MILLRACE_c7k2x4ab_0"
		r := &Report{}
		tellReplicas(r, &upkeep.Report{Wanted: 3, Streams: []upkeep.Stream{c.stream}})
		if text := fmt.Sprint(r.Findings); (c.want == "") != (len(r.Findings) == 0) || !strings.Contains(text, c.want) {
			t.Errorf("%s: %s", c.name, text)
		}
	}
}
