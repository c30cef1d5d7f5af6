package sinktest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
)

func rowsPutReplacedDropped(b *bench) {
	w := b.start(0, 1)
	if !w.at.IsZero() {
		b.Fatalf("a new sink has recorded %s", w.at)
	}
	a, c := source(b, "c1", "a"), source(b, "c1", "c")
	w.write(10, put(order(a, "a", "Ann", 1250), order(c, "c", "", -1), line(a, "a", 0, "x"), line(a, "a", 1, "y")))
	w.flush()
	b.check()
	w.write(20, project.Batch{
		Put:  []project.Row{order(a, "a", "Ánn", 99), line(a, "a", 0, "")},
		Drop: []project.Row{gone(line(a, "a", 1, "")), gone(order(c, "c", "", 0))},
	})
	w.flush()
	b.check()
	// What is not there can be dropped, and a row can be put again as it is.
	w.write(30, project.Batch{Put: []project.Row{order(a, "a", "Ánn", 99)}, Drop: []project.Row{gone(order(c, "c", "", 0))}})
	w.write(31, drop(order(a, "a", "", 0), line(a, "a", 0, "")))
	w.write(32, put(order(a, "a", "again", 7)))
	w.flush()
	b.check()
	positions, err := b.sink.Positions(b.Context(), b.schema)
	if err != nil {
		b.Fatalf("positions: %v", err)
	}
	if source := term(b.schema, 0, 1).Producer.Source; len(positions) > 0 && positions[source] != at(32) {
		b.Errorf("positions are %v, want %s for %s", positions, at(32), source)
	}
}

func redelivery(b *bench) {
	w := b.start(0, 1)
	a := source(b, "c1", "a")
	first := put(order(a, "a", "Ann", 1), order(source(b, "c1", "b"), "b", "Bob", 2))
	w.write(10, first)
	w.write(20, put(order(a, "a", "Ann", 3)))
	w.flush()
	first.After, first.UpTo = at(0), at(10)
	written, err := w.Write(b.Context(), &first)
	if err != nil || !written.Skipped || written.Durable != at(20) {
		b.Fatalf("a batch that lies behind is written again: %+v, %v; want it to be skipped", written, err)
	}
	b.check()
	// One that overlaps says how its rows are at its end.
	overlap := put(order(a, "a", "Ann", 4), order(source(b, "c1", "c"), "c", "Cid", 5))
	w.at = at(12)
	w.write(25, overlap)
	w.flush()
	b.check()
	// The next process is told the same.
	b.reopen()
	w = b.start(0, 2)
	if w.at != at(25) {
		b.Fatalf("the sink has recorded %s, want %s", w.at, at(25))
	}
	overlap.After, overlap.UpTo = at(12), at(25)
	if written, err = w.Write(b.Context(), &overlap); err != nil || !written.Skipped {
		b.Fatalf("a recorded batch is written by the next process: %+v, %v; want it to be skipped", written, err)
	}
	b.check()
}

func gapRefused(b *bench) {
	w := b.start(0, 1)
	a := source(b, "c1", "a")
	w.write(10, put(order(a, "a", "Ann", 1)))
	w.flush()
	late := put(order(a, "a", "Ann", 2))
	late.After, late.UpTo = at(11), at(20)
	_, err := w.Write(b.Context(), &late)
	b.wantPosition(err)
	b.check()
	w.write(12, put(order(a, "a", "Ann", 3)))
	w.flush()
	b.check()
}

func lateWorker(b *bench) {
	late := b.start(0, 3)
	a := source(b, "c1", "a")
	late.write(10, put(order(a, "a", "Ann", 1)))
	late.flush()
	other := b.start(1, 1) // another partition has epochs of its own

	second := &bench{TB: b.TB, o: b.o, open: b.open, sink: b.open(b), schema: b.schema, want: b.want}
	w := second.start(0, 4)
	b.wantSeen("the former term writes", late.send(put(order(a, "a", "late", 2))), 4)
	second.check()
	_, _, err := b.sink.Open(b.Context(), b.schema, term(b.schema, 0, 3))
	b.wantSeen("the former term opens again", err, 4)
	w.write(20, put(order(a, "a", "new", 3)))
	w.flush()
	late.wantFenced("the former term writes after its successor", drop(order(a, "a", "", 0)))
	second.check()
	other.write(5, put(order(source(b, "c9", "z"), "z", "Zoe", 1)))
	other.flush()
	b.check()
	// The same epoch may be opened again.
	if again := second.start(0, 4); again.at != at(20) {
		b.Errorf("opened again, the sink has recorded %s, want %s", again.at, at(20))
	}
}

func killedAndReopened(b *bench) {
	a := source(b, "c1", "a")
	for n := uint64(1); n <= 5; n++ {
		w := b.start(0, n)
		if want := at((n - 1) * 10); w.at != want {
			b.Fatalf("process %d finds position %s, want %s", n, w.at, want)
		}
		w.write(n*10, put(order(a, "a", fmt.Sprint("process ", n), int64(n)), line(a, "a", int64(n), "x")))
		w.flush()
		b.reopen()
	}
	b.check()
}

func notFlushed(b *bench) {
	w := b.start(0, 1)
	a := source(b, "c1", "a")
	w.write(10, put(order(a, "a", "flushed", 1)))
	w.flush()
	lost := put(order(a, "a", "not flushed", 2), line(a, "a", 0, "x"))
	w.write(20, lost)
	b.reopen()
	w = b.start(0, 2)
	if w.at != at(10) && w.at != at(20) {
		b.Fatalf("the sink has recorded %s, want 10.0 or 20.0", w.at)
	}
	w.at = at(10)
	lost.After, lost.UpTo = at(10), at(20)
	if _, err := w.Write(b.Context(), &lost); err != nil {
		b.Fatalf("write again: %v", err)
	}
	w.at = at(20)
	w.flush()
	b.check()
	// A term that is closed discards what was not flushed; the next one in the same
	// process goes on.
	w.write(30, put(order(a, "a", "third", 3)))
	w.flush()
	if err := w.Close(); err != nil {
		b.Fatalf("close: %v", err)
	}
	if err := w.Close(); err != nil {
		b.Fatalf("close twice: %v", err)
	}
	w = b.start(0, 3)
	w.write(40, put(order(a, "a", "fourth", 4)))
	w.flush()
	b.check()
	for range 2 {
		if err := b.sink.Close(); err != nil {
			b.Fatalf("close the sink: %v", err)
		}
	}
	b.reopen()
	b.check()
}

// cutOff cuts a batch (9, 13] of a walk off as soon as the sink tells of progress with it, by
// an error or a crash, and goes on with (9, 10]. The positions between 9 and 13 are those of
// items: a sink that has recorded one of them passes over rows that it does not have.
func cutOff(b *bench) {
	const lines = 4500 // several requests: the one that is on its way may arrive
	for round, crash := range []bool{false, true} {
		epoch, walk := uint64(2*round+1), func(k uint64) feed.Position { return feed.WalkPosition(feed.LSN(round+1), k) }
		progress := func() {}
		t := term(b.schema, 0, epoch)
		t.Heartbeat = func() { progress() }
		opened, at, err := b.sink.Open(b.Context(), b.schema, t)
		if err != nil {
			b.Fatalf("open: %v", err)
		}
		w := &writer{b: b, Writer: opened, at: at}
		step := func(upTo feed.Position, fill project.Batch) {
			fill.After, fill.UpTo = w.at, upTo
			if _, _, err := w.attempt(&fill); err != nil {
				b.Fatalf("write up to %s: %v", upTo, err)
			}
			w.at = upTo
			b.model().apply(&fill)
		}
		a, c := source(b, "c1", fmt.Sprint("a", round)), source(b, "c1", fmt.Sprint("c", round))
		step(walk(9), put(line(a, fmt.Sprint("o", round), lines+1, "x")))
		w.flush()

		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		progress = cancel
		var large, rest project.Batch
		for n := range int64(lines) {
			large.Put = append(large.Put, line(a, fmt.Sprint("o", round), n, "x"))
		}
		rest.Put = append(rest.Put, line(c, fmt.Sprint("o", round), lines, "y"))
		all := project.Batch{After: w.at, UpTo: walk(13), Put: slices.Concat(large.Put, rest.Put)}
		if _, err := w.Write(ctx, &all); err != nil {
			b.Logf("cut off: %v", err)
		}
		if crash {
			b.reopen()
			w = b.start(0, epoch+1)
			if w.at != walk(9) && w.at != walk(13) {
				b.Errorf("the sink has recorded %s, between %s and %s", w.at, walk(9), walk(13))
			}
		}
		w.at = walk(9)
		step(walk(10), large)
		step(walk(13), rest)
		w.flush()
		b.check()
	}
}

func concurrent(b *bench) {
	const partitions, batches = 4, 25
	writers := make([]*writer, partitions)
	for i := range writers {
		writers[i] = b.start(i, 1)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i, w := range writers {
		wg.Go(func() {
			own := source(b, fmt.Sprint("c", i), "x")
			for n := range batches {
				fill := put(order(own, fmt.Sprint("o", i, "-", n%7), "Ann", int64(n)), line(own, fmt.Sprint("o", i), int64(n), "x"))
				fill.After, fill.UpTo = at(uint64(n)), at(uint64(n+1))
				if _, _, err := w.attempt(&fill); err != nil {
					b.Errorf("partition %d: %v", i, err)
					return
				}
				if n%5 == 4 {
					if _, err := w.Flush(b.Context()); err != nil {
						b.Errorf("partition %d: %v", i, err)
						return
					}
				}
				mu.Lock()
				b.model().apply(&fill)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	b.check()
}

func manyRows(b *bench) {
	batches, size := 20, 2000
	if b.o.Quick {
		batches, size = 3, 600
	}
	w := b.start(0, 1)
	for n := range batches {
		var fill project.Batch
		for i := range size {
			id := fmt.Sprintf("o%07d", (n*size+i)*7919%10_000_019)
			s := source(b, fmt.Sprint("c", i%97), id)
			fill.Put = append(fill.Put, order(s, id, "Ann", int64(i)))
			for l := range int64(2) {
				fill.Put = append(fill.Put, line(s, id, l, fmt.Sprint("sku-", i%13)))
			}
			if n > 0 && i%5 == 0 { // of the batch before
				id := fmt.Sprintf("o%07d", ((n-1)*size+i)*7919%10_000_019)
				fill.Drop = append(fill.Drop, gone(order(source(b, fmt.Sprint("c", i%97), id), id, "", 0)))
			}
		}
		w.write(uint64(n+1), fill)
	}
	w.flush()
	b.check()
}
