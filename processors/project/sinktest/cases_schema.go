package sinktest

import (
	"errors"
	"slices"

	"github.com/millrace/millrace/processors/project"
)

// grownSchema returns the next generation of the schema, to which columns and a table
// were added.
func grownSchema() *project.Schema {
	s := Schema(2)
	orders := &s.Tables[Orders]
	note := project.ColumnSchema{Name: "note", Type: project.Type{Kind: project.KindString}}
	paid := project.ColumnSchema{Name: "Paid", Type: project.Type{Kind: project.KindBool}}
	orders.Columns = append(slices.Insert(orders.Columns, 1, note), paid)
	orders.Index = nil
	s.Tables = append(s.Tables, project.TableSchema{
		Name: "added", Key: []int{0}, PartitionBy: -1, Columns: []project.ColumnSchema{{Name: "id"}, {Name: "n", Type: project.Type{Kind: project.KindInt64}}},
	})
	return s
}

// columnsAdded opens a new generation with more columns and a table. It fences the
// generation before and keeps its rows; it begins without a position, unless the sink works in
// place.
func columnsAdded(b *bench) {
	old := b.start(0, 7)
	a, c := source(b, "c1", "a"), source(b, "c1", "c")
	old.write(10, project.Batch{
		Put:    []project.Row{order(a, "a", "Ann", 1), order(c, "c", "Cid", 2), line(a, "a", 0, "x")},
		Reject: []project.Reject{reject(Lines, a, "1", "line")},
	})
	waits := source(b, "c2", "c")
	old.write(20, put(order(waits, "c", "waits", 3)))
	old.flush()

	former := b.schema
	b.schema = grownSchema()
	b.want = b.want.evolve(former, b.schema)
	if b.o.InPlace {
		clear(b.want.pending) // they are the former generation's; rows that wait are written again
	}
	w := b.start(0, 1)
	if !w.at.IsZero() && !b.o.InPlace {
		b.Errorf("a new generation begins at %s", w.at)
	}
	old.wantFenced("the generation before writes", drop(order(a, "a", "", 0)))
	b.check()
	values := []project.Value{project.TextOf("a"), project.TextOf("noted"), project.TextOf("Ann"), project.SmallDecimalOf(1, 2), {}, project.BoolOf(true)}
	wider := project.Row{Table: Orders, Key: values[:1:1], Values: values, Source: a}
	n := []project.Value{project.TextOf("a"), project.IntOf(1)}
	w.write(10, put(wider, project.Row{Table: 3, Key: n[:1:1], Values: n, Source: a}))
	w.flush()
	b.check()
	if _, pending := b.keeps(); pending && !b.o.InPlace { // that of the generation before is still there
		w.write(20, project.Batch{Drop: []project.Row{gone(order(c, "c", "", 0))}})
		w.flush()
		b.check()
	}
	b.reopen()
	w = b.start(0, 2)
	if w.at.IsZero() {
		b.Error("the position of the generation is lost")
	}
	b.check()
}

// generationSkipped opens a generation of which the one before never wrote. It fences the one
// that did.
func generationSkipped(b *bench) {
	a := source(b, "c1", "a")
	old := b.start(0, 7)
	old.write(10, put(order(a, "a", "Ann", 1)))
	old.flush()
	b.schema = Schema(3)
	b.start(0, 1)
	old.wantFenced("the generation two before writes", drop(order(a, "a", "", 0)))
	b.check()
}

// columnsBackfilled adds columns within a generation: it goes on from its position, and
// another producer fills them in the rows that are there, beside it.
func columnsBackfilled(b *bench) {
	a, c := source(b, "c1", "a"), source(b, "c1", "c")
	old := b.start(0, 7)
	old.write(10, put(order(a, "a", "Ann", 1), order(c, "c", "Cid", 2), line(a, "a", 0, "x")))
	old.flush()

	former := b.schema
	b.schema = grownSchema()
	b.schema.Generation = former.Generation
	b.want = b.want.evolve(former, b.schema)
	w := b.start(0, 8)
	if w.at != at(10) {
		b.Fatalf("with columns added the generation goes on at %s", w.at)
	}
	old.wantFenced("the term before writes", drop(order(a, "a", "", 0)))
	b.check()

	wider := func(source, id, note string, cents int64) project.Row {
		values := []project.Value{project.TextOf(id), project.TextOf(note), project.TextOf("filled"), project.SmallDecimalOf(cents, 2), {}, project.BoolOf(true)}
		return project.Row{Table: Orders, Key: values[:1:1], Values: values, Source: source}
	}
	filler := func(epoch uint64) *writer {
		t := term(b.schema, 0, epoch)
		t.Producer = t.Producer.Of("fill")
		f, from, err := b.sink.Open(b.Context(), b.schema, t)
		if err != nil {
			b.Fatalf("open for the filler: %v", err)
		}
		return &writer{b: b, Writer: f, at: from}
	}
	f := filler(8)
	if !f.at.IsZero() {
		b.Fatalf("the filler begins at %s", f.at)
	}
	f.write(1, put(wider(a, "a", "noted", 1)))
	f.flush()
	b.check()
	w.write(20, put(wider(c, "c", "by the feed", 3)))
	w.flush()
	f.write(2, put(wider(c, "c", "by the feed", 3), line(a, "a", 0, "x")))
	f.flush()
	w.write(30, drop(order(a, "a", "", 0)))
	w.flush()
	b.check()

	b.reopen()
	late := f
	if f = filler(9); f.at != at(2) {
		b.Errorf("the filler goes on at %s", f.at)
	}
	if w = b.start(0, 9); w.at != at(30) {
		b.Errorf("the generation goes on at %s", w.at)
	}
	late.wantFenced("the filler before writes", put(wider(a, "a", "late", 9)))
	b.check()
}

// shadowSwapped builds a generation beside the one that is read, and swaps them. Until the swap
// nothing of the shadow shows, and the former generation still writes; after it that one is
// fenced. A swap may be repeated.
func shadowSwapped(b *bench) {
	if b.o.InPlace {
		b.Skip("the sink has no shadows")
	}
	a, c := source(b, "c1", "a"), source(b, "c1", "c")
	old := b.start(0, 7)
	old.write(100, project.Batch{
		Put:    []project.Row{order(a, "a", "old", 1), order(c, "c", "old", 2), line(a, "a", 0, "x")},
		Reject: []project.Reject{reject(Lines, a, "1", "line")},
	})
	old.flush()

	// The shadow has other columns of the same names, and is filled from the start.
	shadow := b.beside(2)
	total := shadow.schema.Tables[Orders].Column("total")
	shadow.schema.Tables[Orders].Columns[total].Type = project.Type{Kind: project.KindDouble}
	wide := func(r project.Row, total float64) project.Row {
		r.Values = slices.Clone(r.Values)
		r.Values[2] = project.FloatOf(total)
		return r
	}
	w := shadow.start(0, 1)
	if !w.at.IsZero() {
		b.Fatalf("the shadow begins at %s", w.at)
	}
	w.write(50, put(wide(order(a, "a", "new", 1), 0.5), line(a, "a", 0, "new")))
	w.flush()
	shadow.check()
	b.check() // nothing is to be seen of it yet
	old.write(110, put(order(c, "c", "old, still written", 3)))
	old.flush()
	b.check()
	w.write(110, put(wide(order(c, "c", "new", 1), 1.5)))
	w.flush()

	for range 2 {
		if err := shadow.sink.Swap(b.Context(), shadow.schema); err != nil {
			b.Fatalf("swap: %v", err)
		}
		shadow.check()
	}
	old.wantFenced("the former generation writes", put(order(a, "a", "late", 9)))
	shadow.check()
	w.write(120, drop(order(a, "a", "", 0)))
	w.flush()
	shadow.check()
	shadow.reopen()
	w = shadow.start(0, 2)
	if w.at != at(120) {
		b.Errorf("the swapped generation goes on at %s, want %s", w.at, at(120))
	}
	w.write(130, put(wide(order(a, "a", "again", 1), 2.5)))
	w.flush()
	shadow.check()
	if err := shadow.sink.Swap(b.Context(), shadow.schema); err != nil {
		b.Fatalf("swap by the next process: %v", err)
	}
	shadow.check()
}

// beside returns a bench of a shadow generation in the same sink.
func (b *bench) beside(generation uint32) *bench {
	shadow := &bench{TB: b.TB, o: b.o, open: b.open, sink: b.sink, schema: Schema(generation)}
	shadow.schema.Shadow = true
	return shadow
}

// swap makes a shadow the one that readers see, and compares what it has.
func (b *bench) swap(what string) {
	b.Helper()
	if err := b.sink.Swap(b.Context(), b.schema); err != nil {
		b.Fatalf("%s: %v", what, err)
	}
	b.check()
}

// wantGivenUp fails unless the swap of a shadow is refused for good.
func (b *bench) wantGivenUp(what string) {
	b.Helper()
	if err := b.sink.Swap(b.Context(), b.schema); !errors.Is(err, project.ErrGivenUp) {
		b.Fatalf("%s is swapped: %v, want ErrGivenUp", what, err)
	}
}

// shadowGivenUp builds two shadows, one after the other. The first is given up with the second:
// it is neither written, opened nor swapped in any more, and the one that is read goes on.
func shadowGivenUp(b *bench) {
	if b.o.InPlace {
		b.Skip("the sink has no shadows")
	}
	a, c := source(b, "c1", "a"), source(b, "c1", "c")
	old := b.start(0, 7)
	old.write(100, put(order(a, "a", "old", 1), line(a, "a", 0, "x")))
	old.flush()
	second, third := b.beside(2), b.beside(3)
	given := second.start(0, 1)
	given.write(50, put(order(a, "a", "second", 2)))
	given.flush()
	w := third.start(0, 1)
	w.write(60, put(order(a, "a", "third", 3)))
	w.flush()

	given.wantFenced("a shadow behind which another one was begun writes", put(order(c, "c", "late", 9)))
	_, _, err := second.sink.Open(b.Context(), second.schema, term(second.schema, 0, 2))
	b.wantFenced("it is opened", err)
	for range 2 {
		second.wantGivenUp("it")
	}
	b.check()
	third.check()
	old.write(110, put(order(c, "c", "old, still written", 4)))
	old.flush()
	b.check()
	w.write(110, put(order(c, "c", "third", 5)))
	w.flush()

	third.reopen()
	second.sink = third.sink
	second.wantGivenUp("it, by the next process,")
	for range 2 {
		third.swap("the swap of the other one")
	}
	old.wantFenced("the former generation writes", put(order(a, "a", "late", 9)))
	second.wantGivenUp("it, when the other one is read,")
	third.check()
}

// shadowBehindSwap begins a shadow behind a swap of which nobody knows whether it was done: it is
// called again, changes nothing, and says that it was. What readers see goes on until the next swap.
func shadowBehindSwap(b *bench) {
	if b.o.InPlace {
		b.Skip("the sink has no shadows")
	}
	a, c := source(b, "c1", "a"), source(b, "c1", "c")
	old := b.start(0, 7)
	old.write(100, put(order(a, "a", "old", 1)))
	old.flush()
	second, third := b.beside(2), b.beside(3)
	w := second.start(0, 1)
	w.write(100, put(order(a, "a", "second", 2)))
	w.flush()
	second.swap("the swap")
	next := third.start(0, 1)
	next.write(60, put(order(a, "a", "third", 3)))
	next.flush()

	for range 2 {
		second.swap("the swap once more")
		third.check()
	}
	old.wantFenced("the generation before writes", put(order(a, "a", "late", 9)))
	w.write(110, put(order(c, "c", "second, still written", 4)))
	w.flush()
	second.check()
	second.reopen()
	if w = second.start(0, 2); w.at != at(110) {
		b.Errorf("the swapped generation goes on at %s, want %s", w.at, at(110))
	}
	w.write(120, put(order(c, "c", "by the next process", 5)))
	w.flush()
	second.swap("the swap by the next process")

	next.write(120, put(order(c, "c", "third", 6)))
	next.flush()
	third.swap("the swap of the other one")
	w.wantFenced("the former generation writes", put(order(a, "a", "late", 9)))
	second.wantGivenUp("the former generation")
	third.check()
}
