package pipelines

import (
	"slices"
	"strconv"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// Former is the generation of a projection whose rows are read while those of the
// next one are built beside them. It goes on as it was, also with what it was to fill.
type Former struct {
	Generation uint32            `json:"generation"`
	Spec       PipelineSpec      `json:"spec"`
	Tables     []feed.ResourceID `json:"tables,omitempty"`
	From       []Start           `json:"from,omitempty"`
	Heads      []Start           `json:"heads,omitempty"`
	Fills      uint32            `json:"fills,omitempty"`
	FillScope  FillScope         `json:"fillScope,omitzero"`
}

// former returns the record of the generation that stands until the present one
// takes its place, nil if there is none.
func (r *Record) former() *Record {
	if r.Former == nil {
		return nil
	}
	f := *r
	f.Generation, f.Spec, f.Tables = r.Former.Generation, r.Former.Spec, r.Former.Tables
	f.From, f.Heads, f.Former, f.Shadow = r.Former.From, r.Former.Heads, nil, false
	f.Fills, f.FillScope = r.Former.Fills, r.Former.FillScope
	return &f
}

// generations returns the records of all generations that run, the present one
// first.
func (r *Record) generations() []*Record {
	all := []*Record{r}
	if f := r.former(); f != nil {
		all = append(all, f)
	}
	return all
}

// generation returns the record of one generation that runs, nil if it does not.
func (r *Record) generation(number uint32) *Record {
	for _, g := range r.generations() {
		if g.Generation == number {
			return g
		}
	}
	return nil
}

// form tells apart what the processors of a generation are made from: when it
// changes, they are made anew.
func (r *Record) form() string {
	return string(r.Spec.json()) + strconv.FormatUint(uint64(r.Rewinds), 10) + " " + strconv.FormatUint(uint64(r.Fills), 10)
}

// positionOf returns the position of one partition, the zero Position if it is
// not there.
func positionOf(starts []Start, partition uint32) feed.Position {
	for _, s := range starts {
		if s.Partition == partition {
			return s.After
		}
	}
	return feed.Position{}
}

// start returns the position behind which a target's partition is checked.
func (r *Record) start(partition uint32) feed.Position { return positionOf(r.Starts, partition) }

// begin returns the position behind which a reader begins that has no checkpoint.
func (r *Record) begin(reader processors.Resource) feed.Position {
	if reader.Role == processors.RoleTarget {
		return r.start(reader.Partition.Number)
	}
	return positionOf(r.From, reader.Partition.Number)
}

// find returns the container with an id, nil if it is not there or not ready.
func (r *Record) find(containers []store.ContainerInfo, id feed.ResourceID) *store.ContainerInfo {
	for i := range containers {
		if containers[i].ID == id && containers[i].State == store.ContainerReady {
			return &containers[i]
		}
	}
	return nil
}

// bound are the containers that a generation was registered for.
type bound struct {
	source *store.ContainerInfo
	target *store.ContainerInfo   // nil for a projection
	tables []*store.ContainerInfo // of a projection into containers, as Record.Tables
}

// bound finds the record's containers. If one is not there, or not ready, gone is
// its name.
func (r *Record) bound(containers []store.ContainerInfo) (b bound, gone string) {
	if b.source = r.find(containers, r.Source); b.source == nil {
		return b, r.Spec.Source.Container
	}
	if name := r.Spec.target(); name != "" {
		if b.target = r.find(containers, r.Target); b.target == nil {
			return b, name
		}
	}
	for i, name := range r.Spec.tables() {
		var table *store.ContainerInfo
		if i < len(r.Tables) {
			table = r.find(containers, r.Tables[i])
		}
		if table == nil {
			return b, name
		}
		b.tables = append(b.tables, table)
	}
	return b, ""
}

// resources returns what the processors of a pipeline hold leases on: none while
// it is paused or a container that it was registered for is not there.
func (r *Record) resources(containers []store.ContainerInfo) []processors.Resource {
	if r.Paused {
		return nil
	}
	var all []processors.Resource
	for _, g := range r.generations() {
		if b, gone := g.bound(containers); gone == "" {
			all = append(all, g.readers(&b)...)
		}
	}
	return all
}

// readers returns one resource for each partition that a generation reads: those
// of its source, and of a cascade those of its target.
func (r *Record) readers(b *bound) []processors.Resource {
	all := r.readersOf(processors.RoleSource, b.source)
	if r.Spec.Kind() == CascadeKind {
		all = append(all, r.readersOf(processors.RoleTarget, b.target)...)
	}
	return all
}

func (r *Record) readersOf(role processors.Role, c *store.ContainerInfo) []processors.Resource {
	all := make([]processors.Resource, 0, len(c.Partitions))
	for _, p := range c.Partitions {
		all = append(all, processors.Resource{
			Pipeline: r.ID, Generation: r.Generation, Role: role, Partition: feed.Partition{Container: c.ID, Number: p.Number},
		})
	}
	return all
}

// sameContainers tells whether a declaration finds the containers for which the
// record was registered.
func (r *Record) sameContainers(b *bound) bool {
	tables := func(ids []feed.ResourceID) []feed.ResourceID { return slices.Sorted(slices.Values(ids)) }
	return r.Source == b.source.ID && r.Target == idOf(b.target) && slices.Equal(tables(r.Tables), tables(idsOf(b.tables)))
}

func idOf(c *store.ContainerInfo) feed.ResourceID {
	if c == nil {
		return ""
	}
	return c.ID
}

func idsOf(containers []*store.ContainerInfo) []feed.ResourceID {
	var ids []feed.ResourceID
	for _, c := range containers {
		ids = append(ids, c.ID)
	}
	return ids
}

// goals returns the LSNs between which the reading of a source partition is a
// backfill. They are the same where there is none.
func (r *Record) goals(reader processors.Resource) (from, to uint64) {
	if reader.Role != processors.RoleSource {
		return 0, 0
	}
	from = uint64(positionOf(r.From, reader.Partition.Number).LSN)
	return from, max(from, uint64(positionOf(r.Heads, reader.Partition.Number).LSN))
}

// resourceNames returns the names of the leases that records need, in order.
func resourceNames(records []Record, containers []store.ContainerInfo) []string {
	var names []string
	for i := range records {
		for _, r := range records[i].resources(containers) {
			names = append(names, r.String())
		}
	}
	slices.Sort(names)
	return names
}
