package store

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/feed"
)

// A physical partition that is split gives its items to two others, and its number to none. Who has read the catalog
// before knows nothing of them. So a Container reads it again where it finds nobody, and goes on in the children:
//
//	a request for one logical partition    is sent to the child that holds it, by Container.Do
//	for items of several                   to the children that hold some of them
//	of all items                           to all children: queries, counts, scans
//	of changes                             changeslineage.go
//	what is meant for the partition        *SplitError: its sender knows what becomes of it in two
//
// Ranges are only ever cut, so what a partition had is in those that lie in its range.

// lookAgainInterval is the least time between two looks of requests into the catalog, lookAgainTime how long one takes
// at most: meanwhile the request that looks asks nobody.
const (
	lookAgainInterval = 25 * time.Millisecond
	lookAgainTime     = 400 * time.Millisecond
)

// known is what a Container, and all that were made of it, know of the container. Safe for concurrent use.
type known struct {
	info   atomic.Pointer[ContainerInfo]
	opened time.Time
	looked atomic.Int64 // when a request last looked into the catalog: nanoseconds since opened
}

func newKnown(info *ContainerInfo) *known {
	k := &known{opened: time.Now()}
	k.info.Store(info)
	k.looked.Store(-int64(lookAgainInterval))
	return k
}

// Refresh reads the container from the catalog again, for c and for all that Eventual and InSession have made of it. The
// error is *NoContainerError if the container is no more, also if another one has its name; otherwise as of Catalog.Get.
// Requests that find a partition split do it by themselves.
func (c *Container) Refresh(ctx context.Context) error {
	was := c.present()
	info, err := c.client.catalog.Get(ctx, was.Database, was.Name)
	if err != nil {
		return err
	}
	if info.ID != was.ID || info.State != ContainerReady {
		return &NoContainerError{was.Database, was.Name}
	}
	for {
		// Two refreshes may end in the other order than they were answered in. Partitions only become more.
		was := c.present()
		if n, m := len(info.Partitions), len(was.Partitions); n < m || n == m && info.Revision < was.Revision {
			return nil
		}
		if c.known.info.CompareAndSwap(was, &info) {
			return nil
		}
	}
}

// present returns the container as it is known now. Nobody changes it.
func (c *Container) present() *ContainerInfo { return c.known.info.Load() }

// split returns what a request to a partition is told that was split; nil if it was not, as far as is known.
func (c *Container) split(p feed.Partition) *SplitError {
	info := c.present()
	if p.Container != info.ID || !info.WasSplit(p.Number) {
		return nil
	}
	e := &SplitError{Partition: p}
	if f := info.FormerOf(p.Number); f != nil {
		e.Former = *f
	}
	return e
}

// splitNow is split of a partition in which a request has found nobody: it looks into the catalog, unless somebody else
// did a moment ago.
func (c *Container) splitNow(ctx context.Context, p feed.Partition) *SplitError {
	if e := c.split(p); e != nil {
		return e
	}
	looked, now := c.known.looked.Load(), int64(time.Since(c.known.opened))
	if now-looked < int64(lookAgainInterval) || c.client.catalog == nil || !c.known.looked.CompareAndSwap(looked, now) {
		return nil
	}
	looking, cancel := context.WithTimeout(ctx, lookAgainTime)
	defer cancel()
	if c.Refresh(looking) != nil {
		return nil // the partition has nobody, and that is what the request is told in the end
	}
	return c.split(p)
}

// moveOn makes a request whose partition was split one to the child that holds what it names. It returns false if there
// is no such child.
//
// What is known of a write does not change by that. An attempt at the parent that went unanswered either is below the
// split commit, and so it is in the child's state, with its idempotency key; or it will never be carried out, because
// nothing is appended behind a split commit. So a refusal that the child has decided is decisive, on whatever connection
// the attempt before went out. An undecided one did not look for the key, and leaves the outcome unknown. A write
// without a key does not come here behind an attempt that went unanswered: it is ErrUnknown by then.
func (a *attempts) moveOn() bool {
	number, ok := a.ct.present().heir(a.r)
	if !ok {
		return false
	}
	next := *a.r
	next.Partition.Number = number
	a.r, a.oldest, a.leaving = &next, 0, nil
	a.silent.Store(false)
	return true
}

// heir returns the partition that has all items that a request names; ok is false if it names none, or they are in
// several.
func (i *ContainerInfo) heir(r *Request) (number uint32, ok bool) {
	switch {
	case r.Transact != nil:
		return i.number(r.Transact.Key), true
	case r.Read != nil:
		return i.heirOfItems(r.Read.Refs)
	case r.Versions != nil:
		return i.heirOfItems(r.Versions.Refs)
	case r.Sources != nil:
		return i.heirOfItems(r.Sources.Refs)
	case r.Query != nil:
		return i.heirOfKey(r.Query.Key)
	case r.Scan != nil:
		return i.heirOfKey(r.Scan.Key)
	case r.Count != nil:
		return i.heirOfKey(r.Count.Key)
	}
	return 0, false
}

// heirOfKey is heir of a logical partition: a key of fewer levels than those of the container is none.
func (i *ContainerInfo) heirOfKey(key feed.PartitionKey) (uint32, bool) {
	if key.IsZero() || key.Levels() != len(i.Spec.PartitionKey) {
		return 0, false
	}
	return i.number(key), true
}

func (i *ContainerInfo) heirOfItems(refs []ItemRef) (number uint32, ok bool) {
	for n, ref := range refs {
		if at := i.number(ref.Key); n == 0 {
			number = at
		} else if at != number {
			return 0, false
		}
	}
	return number, len(refs) > 0
}

// HolderOf returns the partition that holds an effective partition key now.
func (i *ContainerInfo) HolderOf(epk feed.EPK) PartitionInfo {
	// The ranges are in order and leave no hash out, so one of them contains it.
	at, _ := slices.BinarySearchFunc(i.Partitions, epk, func(p PartitionInfo, e feed.EPK) int {
		switch {
		case p.Range.Contains(e):
			return 0
		case p.Range.Min > e:
			return 1
		}
		return -1
	})
	return i.Partitions[min(at, len(i.Partitions)-1)]
}

// FormerOf returns what is known of a partition that was split; nil if it was not, or its log is deleted.
func (i *ContainerInfo) FormerOf(number uint32) *FormerPartition {
	for n := range i.Former {
		if i.Former[n].Number == number {
			return &i.Former[n]
		}
	}
	return nil
}

// ParentOf returns what is known of the partition that was split into one; nil if none was, or its log is deleted.
func (i *ContainerInfo) ParentOf(number uint32) *FormerPartition {
	for n := range i.Former {
		if slices.Contains(i.Former[n].Children, number) {
			return &i.Former[n]
		}
	}
	return nil
}

// HeirsOf returns the partitions that have the items of one now, in the order of their ranges: itself if it was not
// split, none if the container does not know it.
func (i *ContainerInfo) HeirsOf(number uint32) []PartitionInfo {
	span, ok := i.spanOf(number)
	if !ok {
		return nil
	}
	return i.within(span)
}

// within returns the partitions that lie in a range which is that of a partition, or of one before.
func (i *ContainerInfo) within(span feed.Range) []PartitionInfo {
	var heirs []PartitionInfo
	for _, p := range i.Partitions {
		if covers(span, p.Range) {
			heirs = append(heirs, p)
		}
	}
	return heirs
}

// has tells whether a partition is one of the container's now.
func (i *ContainerInfo) has(number uint32) bool {
	return slices.ContainsFunc(i.Partitions, func(p PartitionInfo) bool { return p.Number == number })
}

// WasSplit tells whether the container had a partition that it has no more. Numbers are never used again, so one below
// another that there is was a partition's too, if none is to be made with it.
func (i *ContainerInfo) WasSplit(number uint32) bool {
	planned := func(s PlannedSplit) bool {
		return slices.ContainsFunc(s.Children, func(p PartitionInfo) bool { return p.Number == number })
	}
	if i.has(number) || slices.ContainsFunc(i.Splits, planned) {
		return false
	}
	return i.FormerOf(number) != nil || slices.ContainsFunc(i.Partitions, func(p PartitionInfo) bool { return p.Number > number })
}

// spanOf returns the range of a partition that there is, or that was split and whose log is there.
func (i *ContainerInfo) spanOf(number uint32) (span feed.Range, ok bool) {
	for _, p := range i.Partitions {
		if p.Number == number {
			return p.Range, true
		}
	}
	if f := i.FormerOf(number); f != nil {
		return f.Range, true
	}
	return feed.Range{}, false
}

// covers tells whether all of b lies in a.
func covers(a, b feed.Range) bool { return a.Min <= b.Min && b.Max <= a.Max }
