package cascade

import (
	"context"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// itemRepair is one repair, and the trace of the write that called for it.
type itemRepair struct {
	store.RepairItem
	trace string
}

// round is one comparison of items with their sources. It reads each source once, and
// only after it has the items: what an item may have missed is what its source said after
// the item was written. For the same reason no source is kept for the next round.
//
// One goroutine uses it, from newRound to compare.
type round struct {
	c       *Cascade
	only    *store.ItemRef // the source whose copies are taken; nil: all
	sources []sourceState
	byRaw   map[string]int // index in sources by the bytes of the match values
	items   []checkedItem
	copies  []checkedCopy
	unread  int // sources[unread:] are not read

	checked, dangling int

	values [][]byte // of copies: those of match, then those of set
	name   []byte   // scratch of sourceIndex
}

// sourceState is a source that some copy refers to.
type sourceState struct {
	ref      store.ItemRef
	possible bool
	v        version
}

type checkedItem struct {
	ref      store.ItemRef
	at       feed.Position
	modified int64
	trace    string
	end      int // of its copies
}

type checkedCopy struct {
	source int // in sources
	values int // its first in values
}

func newRound(c *Cascade) *round { return &round{c: c, byRaw: map[string]int{}} }

// addItem takes the copies in an item into the round.
func (r *round) addItem(ref store.ItemRef, item *store.Item, trace string) {
	body := item.Body
	if !r.c.Holds(body) {
		return
	}
	r.c.holders(body, func(_ int, holder []byte) {
		first := len(r.values)
		values, ok := r.c.matched(r.values, holder)
		if !ok {
			r.values = values[:first]
			return
		}
		source := r.sourceIndex(values[first:])
		if s := &r.sources[source]; r.only != nil && (!s.possible || s.ref != *r.only) {
			r.values = values[:first]
			return
		}
		for i := range r.c.set {
			raw, _ := document.Get(holder, r.c.set[i].target)
			values = append(values, raw)
		}
		r.values = values
		r.copies = append(r.copies, checkedCopy{source: source, values: first})
	})
	r.items = append(r.items, checkedItem{
		ref: ref, at: feed.Position(item.ETag), modified: item.Modified, trace: trace, end: len(r.copies),
	})
}

// sourceIndex returns the index of the source that match values name.
func (r *round) sourceIndex(raws [][]byte) int {
	r.name = r.name[:0]
	for _, raw := range raws {
		r.name = append(append(r.name, raw...), 0)
	}
	if i, ok := r.byRaw[string(r.name)]; ok {
		return i
	}
	ref, possible := r.c.sourceRef(raws)
	r.sources = append(r.sources, sourceState{ref: ref, possible: possible})
	r.byRaw[string(r.name)] = len(r.sources) - 1
	return len(r.sources) - 1
}

// pageKey keeps sources by the name that a page gives them apart from those by
// match values, which are JSON and never begin with a zero byte.
func pageKey(source string) string { return "\x00" + source }

// addPage takes the source of a fan-out's page into the round.
func (r *round) addPage(p *feed.Page) {
	if _, ok := r.byRaw[pageKey(p.Source)]; ok {
		return
	}
	ref, err := store.ParseItemRef(p.Source)
	r.sources = append(r.sources, sourceState{ref: ref, possible: err == nil})
	r.byRaw[pageKey(p.Source)] = len(r.sources) - 1
}

// pageStands says whether the items of a page need no check: the values that it set are still
// those of its source, or a later change of the source has a fan-out whose pages follow it.
func (r *round) pageStands(p *feed.Page) bool {
	s := &r.sources[r.byRaw[pageKey(p.Source)]]
	return s.possible && (s.v.digest == p.Digest || p.Position.Before(s.v.position))
}

// readSources reads the sources that were added since the last read.
func (r *round) readSources(ctx context.Context) error {
	var refs []store.ItemRef
	for i := range r.sources[r.unread:] {
		if s := &r.sources[r.unread+i]; s.possible {
			refs = append(refs, s.ref)
		}
	}
	if len(refs) > 0 {
		origins, err := r.c.Origins(ctx, refs)
		if err != nil {
			return err
		}
		n := 0
		for i := range r.sources[r.unread:] {
			if s := &r.sources[r.unread+i]; s.possible {
				s.v = origins[n].v
				n++
			}
		}
	}
	r.unread = len(r.sources)
	return nil
}

// compare returns the repairs of the items whose copies differ from their
// sources. A copy whose source never was dangles; a check does nothing to it, for its
// source may come.
func (r *round) compare() []itemRepair {
	var repairs []itemRepair
	index := map[store.ItemRef]int{} // of mends
	first := 0
	r.checked, r.dangling = 0, 0
	for i := range r.items {
		it := &r.items[i]
		var copies []store.Copy
		for _, cp := range r.copies[first:it.end] {
			s := &r.sources[cp.source]
			r.checked++
			switch r.verdict(cp, s, it.modified) {
			case Dangling:
				r.dangling++
				continue
			case Equal:
				continue
			case Drift:
			}
			// Two elements that copy from one source need one repair: it sets every element
			// that its match selects.
			match := r.matchOf(cp)
			if slices.ContainsFunc(copies, func(o store.Copy) bool { return sameMatch(o.Match, match) }) {
				continue
			}
			copies = append(copies, r.c.repairCopy(&s.v, match))
		}
		first = it.end
		m := itemRepair{RepairItem: store.RepairItem{Ref: it.ref, IfMatch: store.ETag(it.at), Copies: copies}, trace: it.trace}
		// Of several states of one item the newest counts. They are not in order, since
		// the items of pages that do not stand were added last:
		//
		//	batch   page at 7 sets p, client's write of p at 9
		//	added   p at 9, then p at 7
		//
		// A newest state that is right takes back the repair of an older one; only its
		// entry without copies stays, and goes at the end.
		switch k, ok := index[it.ref]; {
		case !ok && len(copies) > 0:
			index[it.ref] = len(repairs)
			repairs = append(repairs, m)
		case ok && feed.Position(repairs[k].IfMatch).Before(it.at):
			repairs[k] = m
		}
	}
	return slices.DeleteFunc(repairs, func(m itemRepair) bool { return len(m.Copies) == 0 })
}

// verdict says how a copy is in an item that a client wrote last at modified.
func (r *round) verdict(cp checkedCopy, s *sourceState, modified int64) Verdict {
	if !s.possible {
		return Dangling
	}
	has := r.values[cp.values+len(r.c.match):]
	return r.c.judge(&s.v, func(i int) []byte { return has[i] }, modified)
}

func (r *round) matchOf(cp checkedCopy) []store.Field {
	match := make([]store.Field, len(r.c.match))
	for i := range match {
		match[i] = store.Field{Path: r.c.match[i].Target, Value: r.values[cp.values+i]}
	}
	return match
}

func sameMatch(a, b []store.Field) bool {
	return slices.EqualFunc(a, b, func(x, y store.Field) bool { return document.Equal(x.Value, y.Value) })
}
