package queryrun

import (
	"bytes"
	"iter"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/query"
	"github.com/millrace/millrace/store/queryplan"
)

// candidate is an item that may give rows, and its rank in the order in which items
// come. Both are valid until the next.
type candidate struct {
	view *engine.View
	rank []byte
	skip bool   // it is none, and shown only for the clock
	body []byte // what stands for an item that need not be read
}

// candidates returns the items that the access reaches from a place on.
func (e *execution) candidates(at *start) iter.Seq2[candidate, error] {
	if body := e.standIn(); body != nil {
		return e.keysOnly(body)
	}
	switch e.access.Kind {
	case queryplan.Nothing:
	case queryplan.Items:
		if e.access.Exact {
			return e.withRanks(e.itemsByKey(at))
		}
		return e.withRanks(e.itemsOfScan(at))
	case queryplan.Values:
		return e.withRanks(e.itemsOfValues(at))
	case queryplan.Range:
		return e.itemsInRange(at)
	case queryplan.Order:
		return e.itemsInOrder(at)
	}
	return func(func(candidate, error) bool) {}
}

// standIn returns what stands for every item of the access, so that none has to be
// read: where the rows depend on nothing of it, or on the one value in the index by
// which it was found. nil if there is no such thing.
func (e *execution) standIn() []byte {
	if e.q.Kind() != query.Grouped || e.Schema.DefaultTTL != nil || e.prefix != "" || e.access.Exact || e.q.IsRandom() {
		return nil
	}
	// Only an aggregate or GROUP BY can do with it (Grouped): a row of its own needs the
	// item. And nothing but the item can tell whether its time has passed (a TTL), whether
	// another key shares the hash of a prefix, whether a key that was asked for exists, or what
	// RAND gives it.
	//
	//	SELECT COUNT(1) FROM c                              {} for each item key
	//	SELECT COUNT(1) FROM c WHERE c.kind = "book"        {"kind":"book"} for each entry
	//	SELECT MAX(c.price) FROM c WHERE c.kind = "book"    the item: price is not in the entry
	body := []byte("{}")
	paths := e.q.Paths()
	switch {
	case e.access.Kind == queryplan.Items && len(paths) == 0 && e.q.Filter() == nil:
		return body
	case e.access.Kind != queryplan.Values || e.access.Constant == nil || len(e.access.Constant) > engine.IndexValueMax/2:
		return nil // a long value may be cut in the index, and share its entry with others
	case document.KindOf(e.access.Constant) >= document.Array:
		return nil // the entries of all arrays are alike
	case document.KindOf(e.access.Constant) == document.Number && e.q.Selects():
		return nil // an item may have written it in another way
	case slices.ContainsFunc(e.indexPath(), func(s document.Step) bool { return s != document.Step{Name: s.Name} }):
		return nil // it has entries of elements too
	}
	for _, path := range paths {
		if !slices.EqualFunc(e.indexPath(), path, func(s document.Step, name string) bool { return s.Name == name }) {
			return nil
		}
	}
	return objectOf(e.indexPath(), e.access.Constant)
}

// objectOf returns the object that has nothing but a value at a path of names.
func objectOf(path document.Path, raw []byte) []byte {
	body := bytes.Clone(raw)
	for _, step := range slices.Backward(path) {
		body = append(append(append(document.AppendQuote([]byte{'{'}, step.Name), ':'), body...), '}')
	}
	return body
}

// keysOnly shows the stand-in once for every item of the access.
func (e *execution) keysOnly(body []byte) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		if e.access.Kind == queryplan.Values {
			for entry, err := range e.entries(e.access.Spans[0], &start{}) {
				// The stand-in counts once an entry: an index that stands for items has no
				// two entries of one item.
				if (err != nil || e.inAccess(entry.ItemKey())) && !yield(candidate{body: body}, err) {
					return
				}
			}
			return
		}
		for _, span := range e.access.Items {
			for _, err := range e.Snapshot.ItemKeys(span) {
				e.metrics.Entries++
				if !yield(candidate{body: body}, err) {
					return
				}
			}
		}
	}
}

// withRanks gives items their ranks.
func (e *execution) withRanks(items iter.Seq2[*engine.View, error]) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		var rank []byte
		for v, err := range items {
			if err != nil {
				yield(candidate{}, err)
				return
			}
			rank = rankOf(rank[:0], v.ItemKey(), e.down)
			if !yield(candidate{view: v, rank: rank}, nil) {
				return
			}
		}
	}
}

// inAccess tells whether an item key is one that the access wants.
func (e *execution) inAccess(itemKey []byte) bool {
	// Indexes know nothing of partition keys: with one in the request, or a range of
	// hashes, most of what they show is of no interest.
	for _, s := range e.access.Items {
		if s.Contains(itemKey) {
			return e.hasPrefix(itemKey)
		}
	}
	return false
}

// hasPrefix tells whether an item's partition key begins with that of the request. A
// hash is not enough: other keys can share it.
func (e *execution) hasPrefix(itemKey []byte) bool {
	if e.prefix == "" {
		return true
	}
	k, _, err := engine.ParseItemKey(itemKey)
	return err == nil && strings.HasPrefix(k.Encoded(), e.prefix)
}

// itemsOfScan reads the items of the access in order.
func (e *execution) itemsOfScan(at *start) iter.Seq2[*engine.View, error] {
	return func(yield func(*engine.View, error) bool) {
		for _, span := range e.access.Items {
			for v, err := range e.Snapshot.ItemSpan(span.From(at.itemKey), false) {
				if err == nil && !e.hasPrefix(v.ItemKey()) {
					continue
				}
				if !yield(v, err) {
					return
				}
			}
		}
	}
}

// itemsByKey reads single items.
func (e *execution) itemsByKey(at *start) iter.Seq2[*engine.View, error] {
	return func(yield func(*engine.View, error) bool) {
		for _, span := range e.access.Items {
			if bytes.Compare(span.Min, at.itemKey) < 0 {
				continue // earlier pages had it
			}
			v, err := e.Snapshot.Find(span.Min)
			if (err != nil || v != nil) && !yield(v, err) {
				return
			}
		}
	}
}

// itemsOfValues reads the items that have one of some values in an index, in the order of
// giveItem keys: it reads the entries of all values side by side.
func (e *execution) itemsOfValues(at *start) iter.Seq2[*engine.View, error] {
	return func(yield func(*engine.View, error) bool) {
		// Item keys ascend here, so a finder steps from item to item where they are close together, and Find would
		// get each of them.
		finder, err := e.Snapshot.NewFinder()
		if err != nil {
			yield(nil, err)
			return
		}
		defer finder.Close()
		for itemKey, err := range e.itemKeysOfValues(at) {
			if err != nil {
				yield(nil, err)
				return
			}
			v, err := finder.Find(itemKey)
			if (err != nil || v != nil) && !yield(v, err) {
				return
			}
		}
	}
}

// itemKeysOfValues returns the item keys of all values of the access, each once and in order.
func (e *execution) itemKeysOfValues(at *start) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		// Entries of one value stand in the order of item keys, so those of several are
		// merged by the least key:
		//
		//	"book"   a  c  f
		//	"toy"    b  c          ─▶ a  b  c  f
		//
		// c has both values, in an array, and is shown once. The least is found by looking
		// at all heads: there are valuesMax of them at most.
		var heads []head
		defer func() {
			for _, h := range heads {
				h.stop()
			}
		}()
		for _, span := range e.access.Spans {
			h := head{}
			h.next, h.stop = iter.Pull2(e.entries(span, at))
			if ok, err := h.advance(); err != nil {
				h.stop()
				yield(nil, err)
				return
			} else if ok {
				heads = append(heads, h)
			} else {
				h.stop()
			}
		}
		var last []byte
		for len(heads) > 0 {
			least := 0
			for i := range heads {
				if bytes.Compare(heads[i].itemKey, heads[least].itemKey) < 0 {
					least = i
				}
			}
			h := &heads[least]
			if !bytes.Equal(h.itemKey, last) || last == nil {
				last = append(last[:0], h.itemKey...)
				if e.inAccess(last) && !yield(last, nil) {
					return
				}
			}
			ok, err := h.advance()
			if err != nil {
				yield(nil, err)
				return
			}
			if !ok {
				h.stop()
				heads = slices.Delete(heads, least, least+1)
			}
		}
	}
}

// head is the next entry of one value.
type head struct {
	itemKey []byte
	next    func() (engine.Entry, error, bool)
	stop    func()
}

func (h *head) advance() (ok bool, err error) {
	entry, err, ok := h.next()
	if ok && err == nil {
		h.itemKey = entry.ItemKey()
	}
	return ok, err
}

// entries returns the entries of one value from a place on.
func (e *execution) entries(span engine.Span, at *start) iter.Seq2[engine.Entry, error] {
	form := span.Min
	// An entry is the value and then the item key. So where all items lie in one stretch,
	// such as a logical partition, the entries of one value do too, and the others need
	// not be read. With several stretches inAccess sorts them out.
	if len(e.access.Items) == 1 {
		only := e.access.Items[0]
		span = span.From(join(form, only.Min))
		if only.Max != nil {
			span = span.Until(join(form, only.Max))
		}
	}
	if at.itemKey != nil {
		span = span.From(join(form, at.itemKey))
	}
	return e.countEntries(e.Snapshot.IndexSpan(e.access.Index.Number, span, false))
}

// countEntries counts the entries that are read.
func (e *execution) countEntries(entries iter.Seq2[engine.Entry, error]) iter.Seq2[engine.Entry, error] {
	return func(yield func(engine.Entry, error) bool) {
		for entry, err := range entries {
			e.metrics.Entries++
			if !yield(entry, err) {
				return
			}
		}
	}
}

func join(a, b []byte) []byte { return append(slices.Clip(a), b...) }

// itemsInRange reads the items whose value lies in some stretches of an index, in the order
// of the value, then of item keys: the entry is the rank. Of an array whose elements
// have several such values, the least counts.
func (e *execution) itemsInRange(at *start) iter.Seq2[candidate, error] {
	// With price >= 3 the item {"tags": [{"price": 9}, {"price": 5}]} has two entries in
	// the range. It is shown at 5 and skipped at 9; a set of what was shown would grow with
	// the answer, and could not be handed to the next page.
	each := slices.ContainsFunc(e.indexPath(), func(s document.Step) bool { return s.All })
	return func(yield func(candidate, error) bool) {
		for _, span := range e.access.Spans {
			for entry, err := range e.countEntries(e.Snapshot.IndexSpan(e.access.Index.Number, span.From(at.entry), false)) {
				if err != nil {
					yield(candidate{}, err)
					return
				}
				if !e.inAccess(entry.ItemKey()) {
					continue
				}
				v, err := e.Snapshot.Find(entry.ItemKey())
				if err != nil {
					yield(candidate{}, err)
					return
				}
				if v == nil {
					continue
				}
				// A stream goes on by the entry. ORDER BY something else sorts anyway, and
				// breaks ties by item keys as every other access does.
				c := candidate{view: v, rank: entry.Key, skip: each && !e.isLeast(v.Body, entry)}
				if e.q.Kind() == query.Sorted {
					c.rank = rankOf(nil, v.ItemKey(), e.down)
				}
				if !yield(c, nil) {
					return
				}
			}
		}
	}
}

// indexPath is the path of the access's index.
func (e *execution) indexPath() document.Path {
	for i := range e.Schema.Indexes {
		if x := &e.Schema.Indexes[i]; x.Number == e.access.Index.Number {
			return x.Path
		}
	}
	return nil
}

// isLeast tells whether no other value of the item that the access reads lies before
// that of an entry.
func (e *execution) isLeast(body []byte, entry engine.Entry) bool {
	least, form := true, []byte(nil)
	document.Walk(body, e.indexPath(), func(raw []byte, _ int) bool {
		form = engine.AppendIndexValue(form[:0], raw)
		if len(form) == 0 || bytes.Compare(form, entry.Value()) >= 0 {
			return true
		}
		least = !slices.ContainsFunc(e.access.Spans, func(s engine.Span) bool { return s.Contains(form) })
		return least
	})
	return least
}

// itemsInOrder reads all items in the order of an index; those without a value first, or
// last if the order descends.
func (e *execution) itemsInOrder(at *start) iter.Seq2[candidate, error] {
	// at.missing says that the page before ended among the items without a value, which
	// come first ascending and last descending. The other half is passed over then if it
	// lies behind, and read as a whole if it lies ahead.
	if e.access.Desc {
		return func(yield func(candidate, error) bool) {
			if (at.missing || e.itemsOfIndex(at, yield)) && e.access.Undefined {
				e.itemsWithoutValue(at, yield)
			}
		}
	}
	return func(yield func(candidate, error) bool) {
		if at.entry != nil || !e.access.Undefined || e.itemsWithoutValue(at, yield) {
			e.itemsOfIndex(at, yield)
		}
	}
}

// itemsOfIndex reads the items of an index in its order. It returns false if that is
// enough.
func (e *execution) itemsOfIndex(at *start, yield func(candidate, error) bool) bool {
	spans := slices.Clone(e.access.Spans)
	if e.access.Desc {
		slices.Reverse(spans)
	}
	var rank []byte
	for _, span := range spans {
		switch {
		case at.entry == nil:
		case e.access.Desc:
			// The entry itself is read once more, since some of its rows may be missing: the
			// run leaves out those that are not.
			span = span.Until(append(slices.Clip(at.entry), 0))
		default:
			span = span.From(at.entry)
		}
		for entry, err := range e.countEntries(e.Snapshot.IndexSpan(e.access.Index.Number, span, e.access.Desc)) {
			if err != nil {
				yield(candidate{}, err)
				return false
			}
			if !e.inAccess(entry.ItemKey()) {
				continue
			}
			v, err := e.Snapshot.Find(entry.ItemKey())
			if err != nil {
				yield(candidate{}, err)
				return false
			}
			if v == nil {
				continue
			}
			rank = rankOf(rank[:0], v.ItemKey(), e.access.Desc)
			if !yield(candidate{view: v, rank: rank}, nil) {
				return false
			}
		}
	}
	return true
}

// itemsWithoutValue reads the items that are not in an index.
func (e *execution) itemsWithoutValue(at *start, yield func(candidate, error) bool) bool {
	path := e.indexPath()
	spans := slices.Clone(e.access.Items)
	if e.access.Desc {
		slices.Reverse(spans)
	}
	var rank []byte
	for _, span := range spans {
		switch {
		case !at.missing:
		case e.access.Desc:
			span = span.Until(append(slices.Clip(at.itemKey), 0))
		default:
			span = span.From(at.itemKey)
		}
		for v, err := range e.Snapshot.ItemSpan(span, e.access.Desc) {
			if err != nil {
				yield(candidate{}, err)
				return false
			}
			// No index has what is not there, so this reads all items. Those with a value are
			// shown to be skipped: only what is shown lets the page look at the clock.
			_, has := document.Get(v.Body, path)
			rank = rankOf(rank[:0], v.ItemKey(), e.access.Desc)
			if !yield(candidate{view: v, rank: rank, skip: has || !e.hasPrefix(v.ItemKey())}, nil) {
				return false
			}
		}
	}
	return true
}
