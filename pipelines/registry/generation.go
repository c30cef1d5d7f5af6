package registry

import (
	"slices"
	"strconv"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// Former is the generation of a projection whose rows are read while those of the
// next one are built beside them. It goes on as it was, also with what it was to backfill.
type Former struct {
	Generation    uint32            `json:"generation"`
	Spec          spec.PipelineSpec `json:"spec"`
	Tables        []feed.ResourceID `json:"tables,omitempty"`
	From          []Start           `json:"from,omitempty"`
	Walks         []Walk            `json:"walks,omitempty"`
	Heads         []Start           `json:"heads,omitempty"`
	Backfills     uint32            `json:"fills,omitempty"`
	BackfillScope BackfillScope     `json:"fillScope,omitzero"`
}

// asFormer returns what a record keeps of the generation of r when another one follows it.
func (r *Record) asFormer() *Former {
	return &Former{
		Generation: r.Generation, Spec: r.Spec, Tables: r.Tables, From: r.From, Walks: r.Walks, Heads: r.Heads,
		Backfills: r.Backfills, BackfillScope: r.BackfillScope,
	}
}

// recordOf returns the record of another generation of the pipeline.
func (r *Record) recordOf(g *Former) *Record {
	// All but what a generation has of its own is the pipeline's: name, id, containers, pause.
	f := *r
	f.Generation, f.Spec, f.Tables, f.From, f.Walks, f.Heads = g.Generation, g.Spec, g.Tables, g.From, g.Walks, g.Heads
	f.Backfills, f.BackfillScope = g.Backfills, g.BackfillScope
	f.Shadow, f.Swapping, f.SwapRefused, f.Former, f.Between = false, false, "", nil, nil
	return &f
}

// FormerRecord returns the record of the generation that stands until the present one
// takes its place, nil if there is none.
func (r *Record) FormerRecord() *Record {
	if r.Former == nil {
		return nil
	}
	return r.recordOf(r.Former)
}

// BetweenRecord returns the record of the generation that may have taken the place of
// the former one, as it was: a shadow that is swapping. It is nil if there is none.
func (r *Record) BetweenRecord() *Record {
	if r.Between == nil {
		return nil
	}
	b := r.recordOf(r.Between)
	b.Shadow, b.Swapping = true, true
	return b
}

// Generations returns the records of all generations that run, the present one
// first.
func (r *Record) Generations() []*Record {
	all := []*Record{r}
	for _, g := range []*Record{r.FormerRecord(), r.BetweenRecord()} {
		if g != nil {
			all = append(all, g)
		}
	}
	return all
}

// Seen returns the records of the generations whose rows readers may see, the oldest first:
// one, or all that it may be where a swap was begun and nobody has noted yet that it was
// done; none while the first rows are built in a place.
func (r *Record) Seen() []*Record {
	if !r.Shadow {
		return []*Record{r}
	}
	seen := r.Generations()[1:]
	if r.swapOpen() {
		seen = append(seen, r)
	}
	return seen
}

// swapOpen tells whether the rows may have taken the place of those before them.
func (r *Record) swapOpen() bool { return r.Swapping && r.SwapRefused == "" }

// GenerationRecord returns the record of one generation that runs, nil if it does not.
func (r *Record) GenerationRecord(number uint32) *Record {
	for _, g := range r.Generations() {
		if g.Generation == number {
			return g
		}
	}
	return nil
}

// Fingerprint tells apart what the processors of a generation are made from: when it
// changes, they are made anew.
func (r *Record) Fingerprint() string {
	return string(r.Spec.JSON()) + strconv.FormatUint(uint64(r.Rewinds), 10) + " " + strconv.FormatUint(uint64(r.Backfills), 10)
}

// PositionOf returns the position of one partition, the zero Position if it is
// not there.
func PositionOf(starts []Start, partition uint32) feed.Position {
	for _, s := range starts {
		if s.Partition == partition {
			return s.After
		}
	}
	return feed.Position{}
}

// RowsBegin returns behind which position of a partition of a projection's source all changes are in its rows.
func (r *Record) RowsBegin(partition uint32) feed.Position {
	if len(r.RowsFrom) > 0 {
		return PositionOf(r.RowsFrom, partition)
	}
	return PositionOf(r.From, partition)
}

// rowsFrom returns the RowsFrom of a generation that goes on among the rows of r, and reads from.
func (r *Record) rowsFrom(source *store.ContainerInfo, from []Start) []Start {
	expires := source.Spec.TTL != 0
	rows := slices.Clone(from)
	for i := range rows {
		begin := r.RowsBegin(rows[i].Partition)
		switch walked := slices.ContainsFunc(r.Walks, func(w Walk) bool { return w.Partition == rows[i].Partition }); {
		// Rows of items that expired before those with which r began are not there, and the log does
		// not tell them from others.
		case walked && expires && r.Spec.Project.OnExpire != spec.DeleteRows:
			continue
		case !expires && r.Backfills > 0 && r.BackfillScope == (BackfillScope{}):
			begin = feed.Position{} // it went through all items; or has yet to, which the next one takes over
		}
		if begin.Before(rows[i].After) {
			rows[i].After = begin
		}
	}
	return rows
}

// start returns the position behind which a target's partition is checked.
func (r *Record) start(partition uint32) feed.Position { return PositionOf(r.Starts, partition) }

// Begin returns the position behind which a reader begins that has no checkpoint.
func (r *Record) Begin(reader processors.Resource) feed.Position {
	if reader.Role == processors.RoleTarget {
		return r.start(reader.Partition.Number)
	}
	return PositionOf(r.From, reader.Partition.Number)
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

// Bound are the containers that a generation was registered for.
type Bound struct {
	Source *store.ContainerInfo
	Target *store.ContainerInfo   // nil for a projection
	Tables []*store.ContainerInfo // of a projection into containers, as Record.Tables
}

// Bound finds the record's containers. If one is not there, or not ready, gone is
// its name.
func (r *Record) Bound(containers []store.ContainerInfo) (b Bound, gone string) {
	if b.Source = r.find(containers, r.Source); b.Source == nil {
		return b, r.Spec.Source.Container
	}
	if name := r.Spec.Target(); name != "" {
		if b.Target = r.find(containers, r.Target); b.Target == nil {
			return b, name
		}
	}
	for i, name := range r.Spec.Tables() {
		var table *store.ContainerInfo
		if i < len(r.Tables) {
			table = r.find(containers, r.Tables[i])
		}
		if table == nil {
			return b, name
		}
		b.Tables = append(b.Tables, table)
	}
	return b, ""
}

// resources returns what the processors of a pipeline hold leases on: none while
// it is paused or a container that it was registered for is not there.
func (r *Record) resources(containers []store.ContainerInfo, at Checkpoints) []processors.Resource {
	if r.Paused {
		return nil
	}
	var all []processors.Resource
	for _, g := range r.Generations() {
		if b, gone := g.Bound(containers); gone == "" {
			all = append(all, g.Readers(&b, at)...)
		}
	}
	return all
}

// readsTarget says whether a generation reads its target too.
func (r *Record) readsTarget() bool { return r.Spec.Kind() == spec.CascadeKind }

// present returns the readers that a generation begins with that begins now: one for each partition that is there.
func (r *Record) present(b *Bound) []processors.Resource {
	var all []processors.Resource
	r.roles(b, func(role processors.Role, c *store.ContainerInfo) { all = append(all, r.readersOf(role, c)...) })
	return all
}

// readersOf returns one reader for each partition that is there, whether it has begun or not.
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
func (r *Record) sameContainers(b *Bound) bool {
	tables := func(ids []feed.ResourceID) []feed.ResourceID { return slices.Sorted(slices.Values(ids)) }
	return r.Source == b.Source.ID && r.Target == idOf(b.Target) && slices.Equal(tables(r.Tables), tables(idsOf(b.Tables)))
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

// Goals returns the LSNs between which the reading of a source partition is a
// backfill. They are the same where there is none.
func (r *Record) Goals(reader processors.Resource) (from, to uint64) {
	if reader.Role != processors.RoleSource {
		return 0, 0
	}
	from = uint64(PositionOf(r.From, reader.Partition.Number).LSN)
	return from, max(from, uint64(PositionOf(r.Heads, reader.Partition.Number).LSN))
}

// ResourceNames returns the names of the leases that records need, in order; at is how far their readers have come, which
// counts where partitions were split, see HasSplits.
func ResourceNames(records []Record, containers []store.ContainerInfo, at Checkpoints) []string {
	var names []string
	for i := range records {
		for _, r := range records[i].resources(containers, at) {
			names = append(names, r.String())
		}
	}
	slices.Sort(names)
	return names
}
