package sinktest

import (
	"github.com/millrace/millrace/processors/project"
)

func pendingWaits(b *bench) {
	w := b.start(0, 1)
	first, second := source(b, "c1", "o1"), source(b, "c2", "o1")
	w.write(10, put(order(first, "o1", "first", 1)))
	written := w.write(20, put(order(second, "o1", "second", 2)))
	w.flush()
	if written.Durable == at(20) && written.Pending != 1 {
		b.Errorf("%d rows wait, want 1", written.Pending)
	}
	b.check()
	w.write(30, put(order(first, "o1", "first again", 3)))
	w.flush()
	b.check()
	b.reopen()
	w = b.start(0, 2)
	w.write(40, drop(order(first, "o1", "", 0)))
	w.flush()
	b.check()
	if got := b.contents().rows[rowKey(Orders, []project.Value{project.TextOf("o1")})]; got.Source != second {
		b.Errorf("the row is of %s, want %s", got.Source, second)
	}
	w.write(50, drop(order(second, "o1", "", 0)))
	w.flush()
	b.check()
}

func pendingOrder(b *bench) {
	w := b.start(0, 1)
	holder := source(b, "c5", "o1")
	w.write(10, put(order(holder, "o1", "holder", 0)))
	for i, key := range []string{"c9", "c2", "c7", "c3"} {
		w.write(uint64(20+i), put(order(source(b, key, "o1"), "o1", key, int64(i))))
	}
	w.flush()
	b.check()
	for i, key := range []string{"c5", "c2", "c3", "c7", "c9"} {
		w.write(uint64(30+i), drop(order(source(b, key, "o1"), "o1", "", 0)))
		w.flush()
		b.check()
	}
}

func pendingWithdrawn(b *bench) {
	w := b.start(0, 1)
	first, second, third := source(b, "c1", "o1"), source(b, "c2", "o1"), source(b, "c3", "o1")
	w.write(10, put(order(first, "o1", "first", 1)))
	w.write(11, put(order(second, "o1", "second", 2)))
	w.write(12, put(order(third, "o1", "third", 3)))
	w.write(13, put(order(second, "o1", "second, newer", 4)))
	w.flush()
	b.check()
	w.write(20, drop(order(second, "o1", "", 0))) // not the holder: its pending row goes
	w.flush()
	b.check()
	w.write(30, drop(order(second, "o1", "", 0))) // nothing is left to go
	w.write(31, drop(order(first, "o1", "", 0)))
	w.flush()
	b.check()
	w.write(40, put(order(second, "o1", "second again", 5)))
	w.write(41, drop(order(third, "o1", "", 0), order(second, "o1", "", 0)))
	w.flush()
	b.check()
}

func pendingKeyChanged(b *bench) {
	w := b.start(0, 1)
	first, second := source(b, "c1", "a"), source(b, "c1", "b")
	w.write(10, put(order(first, "o1", "first", 1)))
	w.write(20, put(order(second, "o1", "second", 2)))
	w.write(30, project.Batch{Drop: []project.Row{gone(order(first, "o1", "", 0))}, Put: []project.Row{order(first, "o2", "first", 1)}})
	w.flush()
	b.check()
	// The pending row of an item that changes its key goes with it.
	w.write(40, put(order(first, "o3", "x", 1)))
	w.write(41, put(order(second, "o3", "waits", 2)))
	w.write(42, project.Batch{Drop: []project.Row{gone(order(second, "o3", "", 0))}, Put: []project.Row{order(second, "o4", "has room", 2)}})
	w.flush()
	b.check()
}

func keysExchanged(b *bench) {
	w := b.start(0, 1)
	first, second := source(b, "c1", "a"), source(b, "c1", "b")
	w.write(10, put(order(first, "o1", "first", 1), order(second, "o2", "second", 2)))
	w.write(20, project.Batch{
		Drop: []project.Row{gone(order(first, "o1", "", 0)), gone(order(second, "o2", "", 0))},
		Put:  []project.Row{order(first, "o2", "first", 3), order(second, "o1", "second", 4)},
	})
	w.flush()
	b.check()
	// Two items want one key in one batch: the first one gets it.
	w.write(30, put(order(first, "o9", "first", 5), order(second, "o9", "second", 6)))
	w.flush()
	b.check()
}

// An item moves from one partition key to another, whose feeds are read by
// different processors: the row must follow it, whichever is ahead.

func moveDeleteFirst(b *bench) {
	from, to := b.start(0, 1), b.start(1, 1)
	was, is := source(b, "c1", "o1"), source(b, "c2", "o1")
	from.write(10, put(order(was, "o1", "before", 1), line(was, "o1", 0, "x"), line(was, "o1", 1, "y")))
	from.flush()
	from.write(20, drop(order(was, "o1", "", 0), line(was, "o1", 0, ""), line(was, "o1", 1, "")))
	from.flush()
	b.check()
	to.write(7, put(order(is, "o1", "after", 2), line(is, "o1", 0, "z")))
	to.flush()
	b.check()
}

func moveCreateFirst(b *bench) {
	from, to := b.start(0, 1), b.start(1, 1)
	was, is := source(b, "c1", "o1"), source(b, "c2", "o1")
	from.write(10, put(order(was, "o1", "before", 1), line(was, "o1", 0, "x"), line(was, "o1", 1, "y")))
	from.flush()
	to.write(7, put(order(is, "o1", "after", 2), line(is, "o1", 0, "z")))
	to.flush()
	b.check()
	to.write(8, put(order(is, "o1", "after, changed", 3)))
	to.flush()
	from.write(20, drop(order(was, "o1", "", 0), line(was, "o1", 0, ""), line(was, "o1", 1, "")))
	from.flush()
	b.check()
	if got := b.contents().rows[rowKey(Orders, []project.Value{project.TextOf("o1")})]; got.Source != is || got.Values[1].Text() != "after, changed" {
		b.Errorf("the row is %v of %s, want what the item is now", got.Values, got.Source)
	}
}

func moveThereAndBack(b *bench) {
	from, to := b.start(0, 1), b.start(1, 1)
	was, is := source(b, "c1", "o1"), source(b, "c2", "o1")
	from.write(10, put(order(was, "o1", "at first", 1)))
	from.flush()
	// The feed of c1 is read up to the end: away, and back. That of c2 lags.
	from.write(20, drop(order(was, "o1", "", 0)))
	from.write(30, put(order(was, "o1", "back", 3)))
	from.flush()
	b.check()
	to.write(5, put(order(is, "o1", "away", 2)))
	to.flush()
	b.check()
	to.write(6, drop(order(is, "o1", "", 0)))
	to.flush()
	b.check()
}

func rejectsKept(b *bench) {
	if rejects, _ := b.keeps(); !rejects {
		b.Skip("the sink keeps no rejects")
	}
	w := b.start(0, 1)
	a := source(b, "c1", "a")
	whole, element, other := reject(Orders, a, "", "select"), reject(Lines, a, "3", "line"), reject(Lines, a, "12", "")
	w.write(10, project.Batch{Reject: []project.Reject{whole, element, other}, Put: []project.Row{line(a, "a", 0, "x")}})
	w.flush()
	b.check()
	newer := element
	newer.Column, newer.Reason, newer.Row = "sku", "is missing or null, and is part of the key", nil
	w.write(20, project.Batch{Reject: []project.Reject{newer}, Accept: []project.Reject{accepted(other)}})
	w.flush()
	b.check()
	// A row takes the place of a reject, and again.
	w.write(30, project.Batch{Put: []project.Row{order(a, "a", "Ann", 1)}, Accept: []project.Reject{accepted(whole)}})
	w.flush()
	b.check()
	w.write(40, project.Batch{Drop: []project.Row{gone(order(a, "a", "", 0))}, Reject: []project.Reject{whole}})
	w.flush()
	b.check()
	// A pending row of the same item is another thing.
	c := source(b, "c1", "c")
	w.write(50, put(order(c, "k", "holds", 1), line(c, "k", 3, "holds")))
	waits := line(a, "k", 3, "waits")
	w.write(51, project.Batch{Put: []project.Row{waits, order(a, "k", "waits", 2)}})
	w.flush()
	b.check()
	w.write(52, project.Batch{Accept: []project.Reject{accepted(newer), accepted(whole)}})
	w.flush()
	b.check()
	b.reopen()
	b.check()
}
