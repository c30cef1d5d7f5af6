package queryplan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/query"
)

const (
	// valuesMax is the most values of an index that are read side by side, merged into the
	// order of item keys.
	valuesMax = 64
	// fewItems is the most items that are read and sorted instead of read in the order of an
	// index, and read instead of looked up in one.
	fewItems = 200
)

// Table is what the planner knows of a partition and of the request.
type Table struct {
	// Paths are the properties of the partition key, each from outside.
	Paths [][]string
	// Key is the logical partition that the request names, or its first levels; zero if it
	// names none.
	Key feed.PartitionKey
	// Keys makes a partition key of raw values; ok is false if no item can have that key.
	Keys func(values [][]byte) (key feed.PartitionKey, ok bool)
	// Hashes restricts items to a range of effective partition keys; zero for all.
	Hashes feed.Range
	// Indexes are the indexes that are ready.
	Indexes []Index
	// Via, if it is not empty, is an index in whose order a Stream must come.
	Via string
	// InOrder says that a Stream must come in the order of item keys.
	InOrder bool
}

// chooser makes one choice. One call of Choose owns it.
type chooser struct {
	*Table
	q     *query.Query
	count Counter
	items []engine.Span
	what  string // describes items
	exact bool   // the items are single ids
	// narrow says that the items are only a part of the partition: the order of an index
	// would mostly lead to other items.
	narrow bool
}

// Choose returns how to reach the items of a query, all of whose parameters must be bound. The
// error is that of the counter. ok is false if no access has the order of Table.Via.
func Choose(q *query.Query, t *Table, count Counter) (a *Access, ok bool, err error) {
	c := &chooser{Table: t, q: q, count: count}
	c.findItems()
	// Earlier pages came in the order of an index, and their continuation is a place in
	// it: no other order can go on from there, whatever would be chosen today.
	if t.Via != "" {
		b, ok := c.candidate(t.Via)
		if !ok {
			return nil, false, nil
		}
		return c.ranged(b), true, nil
	}
	switch {
	case len(c.items) == 0:
		return &Access{Kind: Nothing, What: "nothing", Why: "the condition excludes every item"}, true, nil
	case c.exact:
		a = c.scan("")
		a.Exact = true
		return a, true, nil
	}
	a, err = c.choose()
	return a, true, err
}

// candidate is an index, and the bound of the condition on its path.
type candidate struct {
	Index
	bound
	entries int // up to the number that was asked for
}

// candidates returns the indexes that the condition can use.
func (c *chooser) candidates() []candidate {
	var all []candidate
	for i := range c.Indexes {
		if x, ok := c.candidate(c.Indexes[i].Path); ok {
			all = append(all, x)
		}
	}
	return all
}

// candidate returns the index of a path with the bound of the condition on it; ok is false if
// there is none.
func (c *chooser) candidate(path string) (found candidate, ok bool) {
	at := slices.IndexFunc(c.Indexes, func(x Index) bool { return x.Path == path })
	if at < 0 {
		return found, false
	}
	found.Index = c.Indexes[at]
	bounds := c.q.Bounds()
	// Of one value all bounds hold together. Of elements each may be held by another one,
	// so that only the better bound is followed and the query tests the other:
	//
	//	c.price >= 3 AND c.price < 9                  one stretch, [3, 9)
	//	EXISTS (… t.id = "a") AND EXISTS (… t.id = "b")   the entries of "a"; both would be none
	for i := range bounds {
		if bounds[i].Pointer() != path {
			continue
		}
		b, useful := boundOf(&bounds[i], &found.Index)
		switch {
		case !useful:
		case !ok:
			found.bound, ok = b, true
		case !found.eachElement():
			found.bound = found.intersect(b)
		case b.equal && (!found.equal || len(b.spans) < len(found.spans)):
			found.bound = b
		}
	}
	return found, ok
}

func (c *chooser) choose() (*Access, error) {
	best, err := c.best()
	if err != nil {
		return nil, err
	}
	if best != nil && len(best.spans) == 0 {
		return &Access{Kind: Nothing, What: "nothing", Why: "the condition on " + best.Path + " excludes every item"}, nil
	}
	if c.narrow {
		return c.inPartitions(best)
	}
	// The order of an index gives a page of rows for as many reads, but with a condition
	// it may read long between two of them. A few items are sorted sooner than that:
	//
	//	WHERE c.shop = "x" ORDER BY c.price     40 items of "x": read them, sort
	//	                                     9,000 items of "x": follow /price, test the shop
	if x, ok := c.orderIndex(); ok {
		if best != nil && best.Path != x.Path && best.entries <= fewItems {
			return c.filtered(best, "its few items are sorted"), nil
		}
		return c.inIndexOrder(x)
	}
	if best != nil {
		return c.filtered(best, c.sortNote()), nil
	}
	return c.scan(c.advice()), nil
}

// best returns the candidate with the fewest entries, nil if there is none. Of equal ones it
// prefers values to a range, and fewer values to more.
func (c *chooser) best() (*candidate, error) {
	all := c.candidates()
	if c.InOrder {
		all = slices.DeleteFunc(all, func(x candidate) bool { return !x.inOrder() })
	}
	// Counting stops at fewItems+1: beyond it candidates are alike, and only their kinds
	// tell them apart. A count to the end would read more than a page does. One candidate
	// that nothing competes with is not counted at all.
	_, sorts := c.orderIndex()
	for i := range all {
		all[i].entries = fewItems + 1
		if len(all) == 1 && !sorts {
			break
		}
		n, err := c.count.CountEntries(all[i].Number, all[i].spans, fewItems+1)
		if err != nil {
			return nil, err
		}
		all[i].entries = n
	}
	if len(all) == 0 {
		return nil, nil
	}
	// Of two that have too many to count, equality selects more than a range does, as a
	// rule, and fewer values more than many.
	best := slices.MinFunc(all, func(a, b candidate) int {
		switch {
		case a.entries != b.entries:
			return a.entries - b.entries
		case a.equal != b.equal && a.equal:
			return -1
		case a.equal != b.equal:
			return 1
		}
		return len(a.spans) - len(b.spans)
	})
	return &best, nil
}

// inOrder reports whether the candidate's items can come in the order of their keys.
func (x *candidate) inOrder() bool { return x.equal && len(x.spans) <= valuesMax }

// inPartitions chooses between the items of some logical partitions and an index.
func (c *chooser) inPartitions(best *candidate) (*Access, error) {
	// An entry ends with the item key, so that an index is as narrow as the items are only
	// for single values and one stretch of keys. A range of values would be followed over
	// all partition keys for the few of this one.
	if best == nil || !best.inOrder() || len(c.items) != 1 {
		return c.scan(c.sortNote()), nil
	}
	n, err := c.count.CountItems(c.items, fewItems+1)
	if err != nil {
		return nil, err
	}
	if n <= fewItems {
		return c.scan(c.sortNote()), nil
	}
	return c.filtered(best, c.sortNote()), nil
}

// orderIndex returns the index whose order is that of ORDER BY.
func (c *chooser) orderIndex() (Index, bool) {
	order := c.q.Order()
	// DISTINCT has to see all rows before it knows one to be new, and by several values
	// no index is ordered.
	if c.q.Kind() != query.Sorted || c.q.Distinct() || len(order) != 1 || order[0].Path == nil {
		return Index{}, false
	}
	path := (&query.Bound{Path: order[0].Path}).Pointer()
	for _, x := range c.Indexes {
		if x.Path == path && x.Ordered && ofMembers(x.Path) {
			return x, true
		}
	}
	return Index{}, false
}

// inIndexOrder returns the access by the order of an index.
func (c *chooser) inIndexOrder(x Index) (*Access, error) {
	a := &Access{Kind: Order, Items: c.items, Index: x, Desc: c.q.Order()[0].Desc, Spans: []engine.Span{{}}, Undefined: true}
	direction := "ascending"
	if a.Desc {
		direction = "descending"
	}
	a.What = fmt.Sprintf("index %s, %s", x.Path, direction)
	a.Why = "it has the order of ORDER BY"
	// A condition on the value itself excludes the items that have none, and spares the
	// scan for them.
	bounds := c.q.Bounds()
	if slices.ContainsFunc(bounds, func(b query.Bound) bool { return !b.Each && b.Pointer() == x.Path }) {
		a.Undefined = false
	}
	if b, ok := c.candidate(x.Path); ok {
		a.Spans = b.spans
		a.Why += " and the range of the condition"
	} else if c.q.Filter() != nil {
		a.Why += "; the condition is tested on the way"
	}
	if a.Undefined && !a.Desc {
		a.Why += "; items without the value come first and are found by a scan"
	}
	return a, nil
}

// sortNote describes what each page does if the items do not come in the order of the query.
func (c *chooser) sortNote() string {
	switch {
	case c.q.Kind() != query.Sorted:
		return ""
	case c.q.Distinct():
		return "each page reads them all and keeps the rows that it needs"
	}
	return "each page reads them all and keeps the first rows in order"
}

// advice describes which index would have served the query.
func (c *chooser) advice() string {
	why := []string{"no index serves the query"}
	if s := c.sortNote(); s != "" {
		why = append(why, s)
	}
	order := c.q.Order()
	path := ""
	if len(order) == 1 && order[0].Path != nil {
		path = (&query.Bound{Path: order[0].Path}).Pointer()
	}
	if path != "" && ofMembers(path) {
		why = append(why, "an index on "+path+" would have the order")
	} else if bounds := c.q.Bounds(); len(bounds) > 0 {
		why = append(why, "an index on "+bounds[0].Pointer()+" would")
	} else if c.q.Filter() == nil && c.sortNote() == "" {
		return ""
	}
	return strings.Join(why, "; ")
}

// scan returns the access by item keys.
func (c *chooser) scan(why string) *Access {
	return &Access{Kind: Items, Items: c.items, What: c.what, Why: why}
}

// filtered returns the access by the condition on an index.
func (c *chooser) filtered(x *candidate, why string) *Access {
	if !x.inOrder() {
		a := c.ranged(*x)
		a.Why = why
		return a
	}
	a := &Access{Kind: Values, Items: c.items, Index: x.Index, Spans: x.spans, Why: why}
	a.What = fmt.Sprintf("index %s, %s", x.Path, plural(len(x.spans), "one value", "values"))
	if len(x.values) == 1 {
		a.Constant = x.values[0]
		if text := string(a.Constant); len(text) <= textMax {
			a.What = fmt.Sprintf("index %s = %s", x.Path, text)
		}
	}
	if c.narrow {
		a.What += " in " + c.what
	}
	return a
}

// textMax is how long a value may be to be shown.
const textMax = 60

// ranged returns the access by stretches of an index.
func (c *chooser) ranged(x candidate) *Access {
	a := &Access{Kind: Range, Items: c.items, Index: x.Index, Spans: x.spans}
	a.What = "index " + x.Path + ", a range"
	if x.equal {
		a.What = fmt.Sprintf("index %s, %s", x.Path, plural(len(x.spans), "one value", "values"))
	}
	return a
}
