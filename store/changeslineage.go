package store

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/millrace/millrace/feed"
)

// A reader of changes goes through splits by the places that it has. A place is one in a partition's log, and stands for
// the partition's range. Where the partition was split, the place stays one in its log up to the split commit, and then
// becomes one in each child, before the first commit of the child's log:
//
//	0@42                  0 was split at LSN 60 into 5 and 6, which begin at LSN 1048580
//	0@60                  read to its end
//	5@1048579,6@1048579   and only now the children: what was written to a key comes in order
//
// So nothing is missed, and nothing comes twice: the children's logs have nothing of what is in the parent's. Children
// may be split themselves; they are read to their ends in the same way. A reader of a part asks for one child with a
// place of the parent, as clients do that know the ranges and find one replaced: then it gets of the parent's log what
// lies in the child.
//
// A walk of a partition that was split goes on in its children too, which have its items:
//
//	0@42!CURSOR           the rest of the parent's log, of items up to the cursor
//	5@1048579             all of 5 lies before the cursor: the walk is done there
//	6@1048579!CURSOR      the cursor lies in 6; of a child behind it nothing was shown yet
//
// The log of a partition that was split is deleted when nobody waits for it. To a place in it happens what happens where
// a log was trimmed: *feed.TrimmedError with all versions, and with latest versions a walk of the heirs, which passes over
// what was written up to the place, since LSNs only grow from parents to children.

// stretch is a place in the log of a partition, and the range that it stands for.
type stretch struct {
	partitionPosition
	span feed.Range
	// unresolved says that the place is where the request says that it begins; born, if it is not 0, that all that was
	// before that LSN, the first one of the log, is done.
	unresolved bool
	born       feed.LSN
}

// begin returns where a request begins: at the places of its continuation, in their order, or else in the partitions that
// were there first and whose logs are there.
func (g *changesPage) begin(ctx context.Context, token *continuation) ([]stretch, error) {
	unknown := func(number uint32) bool { return !g.info.has(number) }
	if slices.ContainsFunc(g.r.Scope.Partitions, unknown) ||
		slices.ContainsFunc(token.positions, func(p partitionPosition) bool { return unknown(p.number) && g.info.FormerOf(p.number) == nil }) {
		g.refresh(ctx) // who asks may know of a split already
	}
	for _, number := range g.r.Scope.Partitions {
		p := feed.Partition{Container: g.info.ID, Number: number}
		if split := g.ct.split(p); split != nil {
			return nil, split
		}
		if unknown(number) {
			return nil, Refuse(StatusGone, "container %s/%s has no partition %d", g.info.Database, g.info.Name, number)
		}
	}
	g.scope = g.partitionsIn(g.info.Partitions)
	if g.r.Continuation != "" {
		return g.beginAt(token)
	}
	var all []stretch
	for _, p := range g.info.oldest() {
		if g.touches(p.Range) {
			all = append(all, stretch{partitionPosition: partitionPosition{number: p.Number}, span: p.Range, unresolved: true})
		}
	}
	return all, nil
}

// beginAt returns the places of a continuation that are in the scope. The error is 400 if they do not stand for all of it.
func (g *changesPage) beginAt(token *continuation) ([]stretch, error) {
	var all []stretch
	var lost *walkPlace // behind what is known of each partition whose log is deleted
	var of partitionPosition
	for _, p := range token.positions {
		span, ok := g.info.spanOf(p.number)
		switch {
		case !ok && g.info.WasSplit(p.number):
			// Which of the partitions were its own is not known any more; so what the least of such places knows holds.
			if w := p.again().walk; lost == nil || w.floor.Compare(lost.floor) < 0 || w.floor == lost.floor && w.since < lost.since {
				lost, of = w, p
			}
		case ok && g.touches(span):
			all = append(all, stretch{partitionPosition: p, span: span})
		}
	}
	var left []PartitionInfo
	for _, p := range g.scope {
		n := 0
		for i := range all {
			if covers(all[i].span, p.Range) {
				n++
			}
		}
		if n > 1 || n == 0 && lost == nil {
			return nil, Refuse(StatusBadRequest, "continuation %q is not of the partitions that are asked for: begin anew", g.r.Continuation)
		}
		if n == 0 {
			left = append(left, p)
		}
	}
	if len(left) == 0 {
		return all, nil
	}
	heirs, err := g.walkHeirs(left, *lost, &of)
	return append(all, heirs...), err
}

// oldest returns the partitions of which each has none before it whose log is there, in the order of their ranges.
func (i *ContainerInfo) oldest() []PartitionInfo {
	if len(i.Former) == 0 {
		return i.Partitions
	}
	all := slices.Clone(i.Partitions)
	for n := range i.Former {
		all = append(all, i.Former[n].PartitionInfo)
	}
	slices.SortFunc(all, func(a, b PartitionInfo) int {
		return cmp.Or(cmp.Compare(a.Range.Min, b.Range.Min), cmp.Compare(b.Range.Max, a.Range.Max))
	})
	oldest := all[:0]
	for _, p := range all {
		if n := len(oldest); n == 0 || p.Range.Min >= oldest[n-1].Range.Max {
			oldest = append(oldest, p)
		}
	}
	return oldest
}

// partitionsIn returns those of some partitions that hold the scope.
func (g *changesPage) partitionsIn(all []PartitionInfo) []PartitionInfo {
	s := &g.r.Scope
	var in []PartitionInfo
	for _, p := range all {
		switch {
		case s.Partitions != nil && !slices.Contains(s.Partitions, p.Number) && !coversAny(g.scope, p.Range):
		case !s.Key.IsZero() && !p.Range.Contains(s.Key.Hash()):
		case s.Range != (feed.Range{}) && (s.Range.Max <= p.Range.Min || s.Range.Min >= p.Range.Max):
		default:
			in = append(in, p)
		}
	}
	return in
}

func coversAny(all []PartitionInfo, span feed.Range) bool {
	return slices.ContainsFunc(all, func(p PartitionInfo) bool { return covers(p.Range, span) })
}

// touches tells whether the range of a partition, or of one before, has a part of the scope.
func (g *changesPage) touches(span feed.Range) bool {
	return slices.ContainsFunc(g.scope, func(p PartitionInfo) bool { return covers(span, p.Range) })
}

// holds tells whether a key is in the scope.
func (g *changesPage) holds(key feed.PartitionKey) bool {
	if !g.r.Scope.holds(key) {
		return false
	}
	hash := key.Hash()
	return g.r.Scope.Partitions == nil || slices.ContainsFunc(g.scope, func(p PartitionInfo) bool { return p.Range.Contains(hash) })
}

// refresh reads the catalog again. Where that fails the page is of what is known.
func (g *changesPage) refresh(ctx context.Context) {
	if g.ct.client.catalog == nil || g.ct.Refresh(ctx) != nil {
		return
	}
	g.info = g.ct.present()
	g.scope = g.partitionsIn(g.info.Partitions)
}

// readStretch adds the changes behind a place, and returns how far it came and whether that is the end for now; or the places with
// which it goes on, if the partition was split and has been read to its end.
func (g *changesPage) readStretch(ctx context.Context, s stretch) (reached stretch, heirs []stretch, end bool, err error) {
	for {
		if g.info.WasSplit(s.number) {
			f := g.info.FormerOf(s.number)
			switch {
			case f == nil:
				heirs, err = g.heirsOfDeleted(&s)
				return s, heirs, false, err
			case s.finished(f):
				heirs, err = g.heirs(&s, f)
				return s, heirs, false, err
			}
		}
		s, end, err = g.readPartition(ctx, s)
		if !g.isSplit(ctx, &s, end, err) {
			return s, nil, end, err
		}
	}
}

// finished tells whether nothing of the log of a partition that was split is to be read behind a place.
func (s *stretch) finished(f *FormerPartition) bool {
	return !s.unresolved && (s.walk != nil && s.walk.cursor == nil || reached(s.after, f.Last))
}

// isSplit tells whether the reading of a log ended, with end or err, because of a split, and so goes on in the children. It
// reads the catalog if the log says so: the log has the split commit before the catalog has the children.
func (g *changesPage) isSplit(ctx context.Context, s *stretch, end bool, err error) bool {
	if f := g.info.FormerOf(s.number); f != nil && err == nil {
		return s.finished(f)
	}
	_, split := errors.AsType[*SplitError](err)
	if !split && !errors.Is(err, ErrNotFound) && (err != nil || !end || !g.endsInSplit(ctx, s)) {
		return false
	}
	was := g.info
	g.refresh(ctx)
	if was.FormerOf(s.number) != nil {
		return g.info.FormerOf(s.number) == nil
	}
	return g.info.WasSplit(s.number)
}

// endsInSplit tells whether the commit at a place, which is the last one of a log, is a split commit.
func (g *changesPage) endsInSplit(ctx context.Context, s *stretch) bool {
	p := feed.Partition{Container: g.info.ID, Number: s.number}
	logs := &g.ct.client.logs
	if s.after.LSN == 0 || logs.plain(p, s.after.LSN) {
		return false
	}
	log, err := logs.open(ctx, g.ct.client.catalog, p)
	if err != nil {
		return false
	}
	last, err := log.Read(ctx, s.after.LSN)
	if err != nil {
		return false // what there was to read has been read; the next page looks again
	}
	return logs.note(p, last)
}

// heirs returns the places in the children of a partition that has been read to its end.
func (g *changesPage) heirs(s *stretch, f *FormerPartition) ([]stretch, error) {
	all := []stretch{}
	left := g.partitionsIn(g.info.within(f.Range))
	before := feed.Position{LSN: f.First - 1}
	for _, number := range f.Children {
		span, ok := g.info.spanOf(number)
		if !ok {
			continue
		}
		left = slices.DeleteFunc(left, func(p PartitionInfo) bool { return covers(span, p.Range) })
		if !g.touches(span) {
			continue
		}
		heir := stretch{partitionPosition: partitionPosition{number: number, after: before}, span: span}
		if s.walk != nil {
			heir.walk = s.walk.within(span)
		} else if g.r.Continuation == "" {
			// A request that begins at a time, or now, may begin in the children.
			heir.unresolved, heir.born = true, f.First
		}
		all = append(all, heir)
	}
	if len(left) == 0 {
		return all, nil
	}
	// Of a child that was split too, the log may be deleted before its parent's.
	at := partitionPosition{number: f.Children[0], after: before, walk: s.walk}
	lost, err := g.walkHeirs(left, *at.again().walk, &at)
	return append(all, lost...), err
}

// heirsOfDeleted returns how it goes on behind a place in a log that is deleted.
func (g *changesPage) heirsOfDeleted(s *stretch) ([]stretch, error) {
	left := g.partitionsIn(g.info.within(s.span))
	if !s.unresolved {
		return g.walkHeirs(left, *s.again().walk, &s.partitionPosition)
	}
	heirs := make([]stretch, len(left))
	for i, p := range left {
		heirs[i] = stretch{partitionPosition: partitionPosition{number: p.Number}, span: p.Range, unresolved: true}
	}
	return heirs, nil
}

// walkHeirs returns places that walk partitions, behind one in a log that is deleted.
func (g *changesPage) walkHeirs(heirs []PartitionInfo, w walkPlace, at *partitionPosition) ([]stretch, error) {
	p := feed.Partition{Container: g.info.ID, Number: at.number}
	if g.r.AllVersions {
		return nil, g.ct.client.logs.readError(p, &feed.TrimmedError{Partition: p, Want: nextLSN(at.after)})
	}
	walks := make([]stretch, len(heirs))
	for i, heir := range heirs {
		walks[i] = stretch{partitionPosition: partitionPosition{number: heir.Number, walk: &w}, span: heir.Range}
	}
	return walks, nil
}

// within returns the part of a walk that lies in a child's range; nil if it is done there. The whole of it would do as well,
// but a cursor is long, and so a continuation has one at most.
func (w *walkPlace) within(span feed.Range) *walkPlace {
	part := *w
	if len(w.cursor) > 0 {
		// A cursor is the number of levels, and from there on in the order of hashes.
		switch at := feed.EPK(w.cursor[1:]); {
		case at >= span.Max:
			return nil
		case at < span.Min:
			part.cursor = nil
		}
	}
	return &part
}
