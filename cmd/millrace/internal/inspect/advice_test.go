package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/heat"
)

func TestAdvise(t *testing.T) {
	const (
		silent = -1.0
		split  = ": split it: millrace split d/c 0"
		key    = ": one partition key has most of it, which no split helps"
	)
	// Loads are of partitions 0, 1 … of one container; the hottest key of each has so much of it.
	for _, c := range []struct {
		name      string
		busy      []float64
		key       float64
		splitting string
		want      string // of partition 0; "" for none of any
	}{
		{"busy for more than half of a processor", []float64{0.6}, 0, "", "100 % of its container's load and is busy for 60 % of a processor" + split},
		{"no more than half", []float64{0.5}, 0, "", ""},
		{"a key has half of it", []float64{0.6}, 0.5, "", "100 % of its container's load and is busy for 60 % of a processor" + key},
		{"a key has less than half", []float64{0.6}, 0.49, "", "100 % of its container's load and is busy for 60 % of a processor" + split},
		{"more than half of the load and twice the mean", []float64{0.3, 0.05, 0.05, 0.1}, 0, "", "60 % of its container's load and is busy for 30 % of a processor" + split},
		{"half of the load", []float64{0.2, 0.1, 0.1}, 0, "", ""},
		{"more than half, and less than twice the mean", []float64{0.3, 0.1}, 0, "", ""},
		{"all that there is", []float64{0.3, 0}, 0, "", "100 % of its container's load and is busy for 30 % of a processor" + split},
		{"a load that nobody feels", []float64{0.09, 0, 0, 0}, 0, "", ""},
		{"who is silent lowers no mean", []float64{0.3, silent, silent}, 0, "", ""},
		{"nobody answers", []float64{silent, silent}, 0, "", ""},
		{"it is being split", []float64{0.6}, 0, "its split begins", ""},
		{"as many partitions as there may be", append(make([]float64, store.PartitionsMax), 0.6)[1:], 0, "", ""},
	} {
		var asked []status.Asked
		for n, busy := range c.busy {
			a := status.Asked{Database: "d", Container: "c", Partition: feed.Partition{Number: uint32(n)}}
			if busy != silent {
				r := &heat.Report{Over: 100 * time.Second, Writes: heat.Load{Time: time.Duration(busy * float64(100*time.Second))}}
				if c.key > 0 {
					r.Keys = []heat.Key{{Key: `["k"]`, Share: c.key, ShareMax: 1}}
				}
				a.Status = &store.PartitionStatus{Heat: r, Splitting: c.splitting}
			}
			asked = append(asked, a)
		}
		// Another container beside it is none of its business.
		asked = append(asked, status.Asked{Database: "d", Container: "idle", Status: &store.PartitionStatus{Heat: &heat.Report{}}})
		got := Advise(asked)
		if len(c.busy) == store.PartitionsMax {
			if len(got) != 1 || got[0].Split || got[0].Partition != store.PartitionsMax-1 {
				t.Errorf("%s: %+v", c.name, got)
			}
			continue
		}
		var want []Advice
		if c.want != "" {
			want = []Advice{{Database: "d", Container: "c", Split: c.want[len(c.want)-1] == '0', Text: "partition 0 of d/c has " + c.want}}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

// What a status prints of it is what the others say.
func TestAround_AddsAdvice(t *testing.T) {
	hot := status.Asked{Database: "d", Container: "c", Status: &store.PartitionStatus{Heat: &heat.Report{Over: time.Second, Reads: heat.Load{Time: time.Second}}}}
	around, s := &Around{Storage: &status.Storage{Asked: []status.Asked{hot}}}, &status.Status{}
	around.AddTo(s)
	want := HeatOf(around.Storage.Asked).Advice
	var out strings.Builder
	if err := s.Print(&out, false); err != nil || len(want) != 1 || !strings.Contains(out.String(), "hot: "+want[0].Text+"\n") || !s.Healthy() {
		t.Errorf("%v: %+v is expected in\n%s", err, want, out.String())
	}
	(&Around{}).AddTo(&status.Status{}) // nobody was asked
}
