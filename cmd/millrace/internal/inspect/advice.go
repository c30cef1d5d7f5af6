package inspect

import (
	"fmt"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/store"
)

// When a partition is so hot that something should be done. Loads are parts of the time of one processor, see heat.Report.
const (
	// hotBusy is the load of a partition that is hot by itself: its decider is one goroutine, so it has as much again at most.
	hotBusy = 0.5
	// hotShare is the part of its container's load with which a partition is hot that has hotMean times the mean of all and
	// at least hotBusyMin: of a load that nobody feels nobody need know how it is spread.
	hotShare   = 0.5
	hotMean    = 2
	hotBusyMin = 0.1
	// hotKeyShare is the part of its partition's load, at least, with which one partition key is the heat.
	hotKeyShare = 0.5
)

// Advice says what helps against the heat of a partition. It names no partition key: these are data.
type Advice struct {
	Database  string `json:"database"`
	Container string `json:"container"`
	Partition uint32 `json:"partition"`
	// Split says that a split helps.
	Split bool   `json:"split"`
	Text  string `json:"text"`
}

// Advise tells of the partitions that are too hot what helps. It is given those of whole containers, one container behind
// the other, with those that were asked for nothing or did not answer.
func Advise(asked []status.Asked) []Advice {
	var all []Advice
	for len(asked) > 0 {
		n := 1
		for n < len(asked) && asked[n].Database == asked[0].Database && asked[n].Container == asked[0].Container {
			n++
		}
		all = append(all, adviseContainer(asked[:n])...)
		asked = asked[n:]
	}
	return all
}

// adviseContainer is Advise for one container. Who did not answer counts for nothing: the mean is of those who did.
func adviseContainer(asked []status.Asked) (found []Advice) {
	var total float64
	answered := 0
	busy := make([]float64, len(asked))
	for i := range asked {
		if s := asked[i].Status; s != nil && s.Heat != nil {
			busy[i] = s.Heat.Busy(s.Heat.Weight())
			total += busy[i]
			answered++
		}
	}
	for i := range asked {
		a, b := &asked[i], busy[i]
		uneven := b >= hotBusyMin && b > hotShare*total && b >= hotMean*total/float64(max(answered, 1))
		if b <= hotBusy && !uneven || a.Status.Splitting != "" { // it is being split already
			continue
		}
		name := a.Database + "/" + a.Container
		is := Advice{Database: a.Database, Container: a.Container, Partition: a.Partition.Number}
		is.Text = fmt.Sprintf("partition %d of %s has %s of its container's load and is busy for %s of a processor: ",
			a.Partition.Number, name, format.Percent(b/total), format.Percent(b))
		switch keys := a.Status.Heat.Keys; {
		case len(keys) > 0 && keys[0].Share >= hotKeyShare: // the hottest is the first
			is.Text += "one partition key has most of it, which no split helps"
		case len(asked) >= store.PartitionsMax:
			is.Text += fmt.Sprintf("the container has the %d partitions that it may have, so it cannot be split", store.PartitionsMax)
		default:
			is.Split = true
			is.Text += fmt.Sprintf("split it: millrace split %s %d", name, a.Partition.Number)
		}
		found = append(found, is)
	}
	return found
}
