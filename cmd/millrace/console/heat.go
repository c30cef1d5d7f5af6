package console

import (
	"net/http"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/pipelines/format"
)

const (
	// On the overview stand the hotOverview hottest partitions and keys.
	hotOverview = 5
	// On the page of the heat stand so many.
	hotPartitions = 100
	hotKeys       = 50
)

// heatPage is where the load is.
type heatPage struct {
	Partitions []hotPartition
	Keys       []hotKey
	Advice     []inspect.Advice
	// More counts the partitions that have some load and do not stand here.
	More    int
	Unknown int
	Failed  string
}

// hotPartition is a partition as a row of a table.
type hotPartition struct{ *inspect.HotPartition }

// Reads and the others are a second, of the time of the report.
func (p hotPartition) Reads() string { return format.Rate(p.Heat.PerSecond(p.Heat.Reads.Requests)) }

// Writes are requests that were decided.
func (p hotPartition) Writes() string { return format.Rate(p.Heat.PerSecond(p.Heat.Writes.Requests)) }

// Read is bytes.
func (p hotPartition) Read() string { return format.Size(p.Heat.PerSecond(p.Heat.Reads.Bytes)) }

// Written is bytes.
func (p hotPartition) Written() string { return format.Size(p.Heat.PerSecond(p.Heat.Writes.Bytes)) }

// Reading is part of the time of one processor.
func (p hotPartition) Reading() string { return format.Percent(p.Heat.Busy(p.Heat.Reads.Time)) }

// Deciding is part of the time of one processor.
func (p hotPartition) Deciding() string { return format.Percent(p.Heat.Busy(p.Heat.Writes.Time)) }

// hotKey is a partition key as a row of a table.
type hotKey struct{ *inspect.HotKey }

// ShareText is its part of the load of its partition.
func (k hotKey) ShareText() string { return inspect.Share(&k.Key) }

// ReadRate and the others are a second, of the time of the report.
func (k hotKey) ReadRate() string { return format.Rate(k.Heat.PerSecond(k.Reads.Requests)) }

// WriteRate is of requests that were decided.
func (k hotKey) WriteRate() string { return format.Rate(k.Heat.PerSecond(k.Writes.Requests)) }

// Bytes are those read and written.
func (k hotKey) Bytes() string {
	return format.Size(k.Heat.PerSecond(k.Key.Reads.Plus(k.Key.Writes).Bytes))
}

// BusyText is part of the time of one processor.
func (k hotKey) BusyText() string {
	return format.Percent(k.Heat.Busy(k.Key.Reads.Plus(k.Key.Writes).Time))
}

// heatOf makes the page of what the owners said last: at most so many partitions and keys.
func heatOf(s *sample, partitions, keys int) (*heatPage, *inspect.Heat) {
	page := &heatPage{Failed: s.Failed}
	if s.Storage == nil {
		return page, nil
	}
	h := inspect.HeatOf(s.Storage.Asked)
	page.Unknown, page.Advice = h.Unknown, h.Advice
	for _, k := range h.Keys(keys) {
		page.Keys = append(page.Keys, hotKey{&k})
	}
	page.More = max(0, len(h.Partitions)-partitions)
	for i := range h.Partitions[:len(h.Partitions)-page.More] {
		page.Partitions = append(page.Partitions, hotPartition{&h.Partitions[i]})
	}
	return page, h
}

// heat shows the hottest partitions and keys.
func (c *Console) heat(x *exchange) error {
	s, err := c.sampler.newest(x.r.Context())
	if err != nil {
		return err
	}
	if s.Failed != "" && wantsJSON(x.r) {
		return &refusal{http.StatusServiceUnavailable, s.Failed}
	}
	page, behind := heatOf(s, hotPartitions, hotKeys)
	if behind == nil {
		if wantsJSON(x.r) {
			return &refusal{http.StatusServiceUnavailable, "What the owners of the partitions say is not known."}
		}
		return c.show(x, "heat", "Heat", page, nil)
	}
	return c.show(x, "heat", "Heat", page, behind)
}
