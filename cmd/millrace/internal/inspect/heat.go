package inspect

import (
	"cmp"
	"context"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/store/heat"
)

// HotPartition is what a partition was asked for of late.
type HotPartition struct {
	Database  string       `json:"database"`
	Container string       `json:"container"`
	Partition uint32       `json:"partition"`
	Owner     string       `json:"owner"`
	Heat      *heat.Report `json:"heat"`
}

// HotKey is a partition key with a part of the load of its partition.
type HotKey struct {
	*HotPartition
	heat.Key
}

// Heat is where the load is: the partitions that were asked for something, the hottest first.
type Heat struct {
	Partitions []HotPartition `json:"partitions"`
	// Unknown counts partitions whose owners did not answer, or do not measure.
	Unknown int `json:"unknown"`
	// Advice is what helps the partitions that are too hot.
	Advice []Advice `json:"advice,omitempty"`
}

// Heat asks the owners of all partitions what they were asked for of late.
func (i *Inspector) Heat(ctx context.Context) (*Heat, error) {
	s, err := i.Storage(ctx)
	if err != nil {
		return nil, err
	}
	return HeatOf(s.Asked), nil
}

// HeatOf is the heat that is in the answers of owners.
func HeatOf(asked []status.Asked) *Heat {
	h := &Heat{Partitions: []HotPartition{}, Advice: Advise(asked)}
	for k := range asked {
		a := &asked[k]
		switch {
		case a.Status == nil || a.Status.Heat == nil:
			h.Unknown++
		case a.Status.Heat.Total().Requests > 0:
			h.Partitions = append(h.Partitions, HotPartition{a.Database, a.Container, a.Partition.Number, a.Status.Owner, a.Status.Heat})
		}
	}
	slices.SortStableFunc(h.Partitions, func(a, b HotPartition) int { return cmp.Compare(b.Busy(), a.Busy()) })
	return h
}

// Advice is what helps the partitions of the container that are too hot.
func (c *Container) Advice() []Advice {
	asked := make([]status.Asked, len(c.Partitions))
	for k := range c.Partitions {
		p := &c.Partitions[k]
		asked[k] = status.Asked{Database: c.Database, Container: c.Name, Partition: feed.Partition{Container: c.ID, Number: p.Number}, Status: p.Status}
	}
	return Advise(asked)
}

// Busy is the load as a part of the time of one processor.
func (p *HotPartition) Busy() float64 { return p.Heat.Busy(p.Heat.Weight()) }

// Keys are the hottest partition keys of all partitions, the hottest first, at most n.
func (h *Heat) Keys(n int) []HotKey {
	var keys []HotKey
	for i := range h.Partitions {
		for _, k := range h.Partitions[i].Heat.Keys {
			keys = append(keys, HotKey{&h.Partitions[i], k})
		}
	}
	slices.SortStableFunc(keys, func(a, b HotKey) int { return cmp.Compare(b.Share*b.Busy(), a.Share*a.Busy()) })
	return keys[:min(len(keys), n)]
}

// Share tells which part of its partition's load a key has, from the least to the most that it
// may be.
func Share(k *heat.Key) string {
	least, most := format.Percent(k.Share), format.Percent(k.ShareMax)
	if least == most {
		return least
	}
	return least + " to " + most
}
