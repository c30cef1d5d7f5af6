package registry

import (
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// A partition that was split has two children, and its log stays until all have read it. Its reader is the only one that
// lets those of the children begin, by making their checkpoints when it has read all; see package processors. So of a
// generation
//
//	a partition                                   is read
//	that it began with                            from where the record says
//	that came by a split                          when it has a checkpoint
//	that was split                                until its checkpoint says that it is over
//
// Nobody makes a checkpoint for a child because there is none: with a parent that is not at its end, changes of a key would
// be read out of their order, and what the parent has yet to read would never be.

// BegunOf returns the checkpoints among leases, with an empty one in place of each that cannot be read. Whoever decides by
// whether there is one takes this: a child whose checkpoint a later release has written has begun.
func BegunOf(held []leases.Lease) Checkpoints {
	at, _ := CheckpointsOf(held)
	for i := range held {
		name := held[i].Resource
		if _, err := processors.ParseResource(name); err == nil && len(held[i].Checkpoint) > 0 && at[name] == nil {
			at[name] = &processors.Checkpoint{}
		}
	}
	return at
}

// lineage are the readers of one role of a generation in a container.
type lineage struct {
	record *Record
	role   processors.Role
	c      *store.ContainerInfo
	at     Checkpoints
}

func (l *lineage) resource(number uint32) processors.Resource {
	return processors.Resource{
		Pipeline: l.record.ID, Generation: l.record.Generation, Role: l.role, Partition: feed.Partition{Container: l.c.ID, Number: number},
	}
}

func (l *lineage) checkpoint(number uint32) *processors.Checkpoint {
	return l.at[l.resource(number).String()]
}

// isFirst says whether the generation began with a partition.
func (l *lineage) isFirst(number uint32) bool {
	named := func(s Start) bool { return s.Partition == number }
	if l.role == processors.RoleTarget && slices.ContainsFunc(l.record.Starts, named) {
		return true
	}
	if l.role == processors.RoleSource && (slices.ContainsFunc(l.record.Heads, named) || slices.ContainsFunc(l.record.From, named)) {
		return true
	}
	// A record of before there were splits may name none. And where the log of a parent is gone all have read it, so that
	// its child has a checkpoint; if that was lost, the beginning of its log is told to be gone.
	return l.c.FormerOf(number) == nil && l.c.ParentOf(number) == nil
}

// hasBegun says whether a reader has begun, though it may have ended since.
func (l *lineage) hasBegun(number uint32) bool {
	return l.checkpoint(number) != nil || l.hasEnded(number)
}

// hasEnded says whether nothing is left to do for a partition that was split.
func (l *lineage) hasEnded(number uint32) bool {
	if cp := l.checkpoint(number); cp != nil {
		return cp.Ended()
	}
	// Children begin when their parent is at its end. If the record of its lease is gone, they tell: it must not be read
	// again from where the generation began.
	f := l.c.FormerOf(number)
	return f != nil && !slices.ContainsFunc(f.Children, func(child uint32) bool { return !l.hasBegun(child) })
}

// isRead says whether a partition is to be read now.
func (l *lineage) isRead(number uint32) bool {
	return !l.hasEnded(number) && (l.isFirst(number) || l.checkpoint(number) != nil)
}

// numbers returns the partitions that are there and then those that were split.
func (l *lineage) numbers() []uint32 {
	all := make([]uint32, 0, len(l.c.Partitions)+len(l.c.Former))
	for i := range l.c.Partitions {
		all = append(all, l.c.Partitions[i].Number)
	}
	for i := range l.c.Former {
		all = append(all, l.c.Former[i].Number)
	}
	return all
}

// read returns the readers that there are to be now.
func (l *lineage) read() []processors.Resource {
	var all []processors.Resource
	for _, n := range l.numbers() {
		if l.isRead(n) {
			all = append(all, l.resource(n))
		}
	}
	return all
}

// waiting are readers that begin when those of their parents have ended, each with the LSN behind which it does.
type waiting struct {
	processors.Resource
	after feed.LSN
}

// waits returns the readers that have yet to begin.
func (l *lineage) waits() []waiting {
	var all []waiting
	for _, n := range l.numbers() {
		// The parent may have been a partition before the generation began with its children.
		if p := l.c.ParentOf(n); p != nil && !l.isFirst(n) && !l.hasBegun(n) && l.isAwaited(p.Number) {
			all = append(all, waiting{l.resource(n), p.First - 1})
		}
	}
	return all
}

// isAwaited says whether a partition that was split is read now, or begins when its own parent has ended.
func (l *lineage) isAwaited(number uint32) bool {
	if l.isRead(number) {
		return true
	}
	p := l.c.ParentOf(number)
	return !l.hasEnded(number) && p != nil && l.isAwaited(p.Number)
}

// lineage returns the readers of a role.
func (r *Record) lineage(role processors.Role, c *store.ContainerInfo, at Checkpoints) *lineage {
	return &lineage{r, role, c, at}
}

// roles calls f for each role of a generation, with the container whose partitions it reads.
func (r *Record) roles(b *Bound, f func(role processors.Role, c *store.ContainerInfo)) {
	f(processors.RoleSource, b.Source)
	if b.Target != nil && r.readsTarget() {
		f(processors.RoleTarget, b.Target)
	}
}

// Readers returns one resource for each partition that a generation reads now, as far as the checkpoints of its readers
// say: those of its source, and of a cascade those of its target. Without checkpoints these are the partitions with which it began.
func (r *Record) Readers(b *Bound, at Checkpoints) []processors.Resource {
	var all []processors.Resource
	r.roles(b, func(role processors.Role, c *store.ContainerInfo) {
		all = append(all, r.lineage(role, c, at).read()...)
	})
	return all
}

// SourceReaders returns the readers of a generation's source, c, that there are now. Those of partitions that were split are
// among them as long as something is open, or given up.
func (r *Record) SourceReaders(c *store.ContainerInfo, at Checkpoints) []processors.Resource {
	return r.lineage(processors.RoleSource, c, at).read()
}

// waitsFor returns the readers of a generation that begin when those of partitions that were split have ended.
func (r *Record) waitsFor(b *Bound, at Checkpoints) []waiting {
	var all []waiting
	r.roles(b, func(role processors.Role, c *store.ContainerInfo) {
		all = append(all, r.lineage(role, c, at).waits()...)
	})
	return all
}

// MayBegin says whether a reader that has no checkpoint is to begin where the record says. One of a partition that came by a
// split since is not: its parent's reader makes its checkpoint.
func (r *Record) MayBegin(reader processors.Resource, containers []store.ContainerInfo) bool {
	for i := range containers {
		if containers[i].ID == reader.Partition.Container {
			return r.lineage(reader.Role, &containers[i], nil).isFirst(reader.Partition.Number)
		}
	}
	return true
}

// HasSplits says whether which readers there are depends on how far they have come: a container that a pipeline reads has
// partitions that were split.
func HasSplits(records []Record, containers []store.ContainerInfo) bool {
	return slices.ContainsFunc(records, func(r Record) bool {
		return slices.ContainsFunc(r.Generations(), func(g *Record) bool {
			b, gone := g.Bound(containers)
			return gone == "" && (len(b.Source.Former) > 0 || b.Target != nil && len(b.Target.Former) > 0)
		})
	})
}

// Splitting says whether a reader of a partition that was split has not ended yet, or one of a child not begun.
func Splitting(records []Record, containers []store.ContainerInfo, at Checkpoints) bool {
	return slices.ContainsFunc(records, func(r Record) bool {
		return slices.ContainsFunc(r.Generations(), func(g *Record) bool {
			b, gone := g.Bound(containers)
			return gone == "" && (g.readsFormer(&b, at) || len(g.waitsFor(&b, at)) > 0)
		})
	})
}

// readsFormer says whether a partition that was split is still read.
func (r *Record) readsFormer(b *Bound, at Checkpoints) (reads bool) {
	r.roles(b, func(role processors.Role, c *store.ContainerInfo) {
		l := r.lineage(role, c, at)
		reads = reads || slices.ContainsFunc(c.Former, func(f store.FormerPartition) bool { return l.isAwaited(f.Number) })
	})
	return reads
}
