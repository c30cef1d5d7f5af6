package sinktest

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
)

// Sink is what the suite tests.
type Sink interface {
	project.Sink
	project.Reader
	project.Swapper
}

// Open opens a sink on some storage, as one more process would. The suite closes
// sinks only where it says so; the opener sees to it that those which are left are
// freed when the test ends.
type Open func(t testing.TB) Sink

// Options are what a sink does not do.
type Options struct {
	// InPlace says that a generation goes on in the rows of the one before, shadow or
	// not, beside it, and that Swap does nothing.
	InPlace bool
	// Quick leaves out what takes long.
	Quick bool
}

// Run runs every case against sinks on storage that storage makes anew for each.
func Run(t *testing.T, storage func(t testing.TB) Open, o Options) {
	t.Helper()
	cases := []struct {
		name string
		run  func(*bench)
	}{
		{"rows are put, replaced and dropped", rowsPutReplacedDropped},
		{"a batch that is written again changes nothing", redelivery},
		{"a batch that does not follow is refused", gapRefused},
		{"I5: a late worker is refused", lateWorker},
		{"a sink that is killed goes on from its position", killedAndReopened},
		{"what was not flushed is written again", notFlushed},
		{"the second item that wants a key waits", pendingWaits},
		{"the pending row with the smallest source is next", pendingOrder},
		{"a pending row is replaced and withdrawn", pendingWithdrawn},
		{"an item that gives up its key makes room", pendingKeyChanged},
		{"a batch may exchange keys between items", keysExchanged},
		{"a move whose delete comes first", moveDeleteFirst},
		{"a move whose create comes first", moveCreateFirst},
		{"a move there and back", moveThereAndBack},
		{"rejects are kept, replaced and withdrawn", rejectsKept},
		{"all types and extremes come back", allTypes},
		{"keys of every type are told apart", keyTypes},
		{"columns and tables are added in place", columnsAdded},
		{"a generation that never wrote is skipped", generationSkipped},
		{"columns added within a generation are backfilled beside it", columnsBackfilled},
		{"a shadow generation takes its place by Swap", shadowSwapped},
		{"a shadow behind which another one is begun is given up", shadowGivenUp},
		{"a swap is done once more beside the next shadow", shadowBehindSwap},
		{"I6: a batch that is cut off is written again with other ends", cutOff},
		{"partitions write at the same time", concurrent},
		{"many rows", manyRows},
		{"a random model", random},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := &bench{TB: t, o: o, open: storage(t), schema: Schema(1)}
			b.sink = b.open(t)
			c.run(b)
		})
	}
}

// bench is one case at work: a sink and what it must hold.
type bench struct {
	testing.TB
	o      Options
	open   Open
	sink   Sink
	schema *project.Schema
	want   *tables // nil until the first batch
}

// writer is an open term.
type writer struct {
	b *bench
	project.Writer
	at feed.Position
}

// start begins a term.
func (b *bench) start(partition int, epoch uint64) *writer {
	b.Helper()
	w, at, err := b.sink.Open(b.Context(), b.schema, term(b.schema, partition, epoch))
	if err != nil {
		b.Fatalf("open: %v", err)
	}
	return &writer{b: b, Writer: w, at: at}
}

// reopen forgets the sink, as if its process had been killed, and opens another.
func (b *bench) reopen() {
	b.Helper()
	b.sink = b.open(b)
}

// write writes a batch up to a position and notes what the sink must then hold.
func (w *writer) write(upTo uint64, fill project.Batch) project.Written {
	w.b.Helper()
	fill.After, fill.UpTo = w.at, at(upTo)
	written, attempts, err := w.attempt(&fill)
	if err != nil {
		w.b.Fatalf("write up to %s: %v", fill.UpTo, err)
	}
	if written.Skipped && attempts == 1 {
		w.b.Fatalf("the batch (%s, %s] was skipped", fill.After, fill.UpTo)
	}
	w.at = fill.UpTo
	w.b.model().apply(&fill)
	return written
}

// attemptsMax is how often a batch is written to a sink that cannot be reached.
const attemptsMax = 10

// attempt writes a batch, again if the sink cannot be reached: what is slow is not
// wrong.
func (w *writer) attempt(fill *project.Batch) (written project.Written, attempts int, err error) {
	pauses := processors.NewPauses()
	for {
		attempts++
		written, err = w.Write(w.b.Context(), fill)
		if err == nil || attempts == attemptsMax || processors.FailureOf(w.b.Context(), err) != processors.Unavailable {
			return written, attempts, err
		}
		w.b.Logf("written again: %v", err)
		if waited := pauses.Wait(w.b.Context(), err); waited != nil {
			return written, attempts, err
		}
	}
}

func (b *bench) model() *tables {
	if b.want == nil {
		b.want = newTables()
	}
	return b.want
}

// flush makes durable what was written.
func (w *writer) flush() {
	w.b.Helper()
	got, err := w.Flush(w.b.Context())
	if err != nil {
		w.b.Fatalf("flush: %v", err)
	}
	if got != w.at {
		w.b.Fatalf("flush says that %s is durable, %s was written", got, w.at)
	}
}

// put, drop are batches.
func put(rows ...project.Row) project.Batch { return project.Batch{Put: rows} }

func drop(rows ...project.Row) project.Batch {
	var b project.Batch
	for _, r := range rows {
		b.Drop = append(b.Drop, gone(r))
	}
	return b
}

// check compares the sink with what it must hold.
func (b *bench) check() {
	b.Helper()
	b.compare(b.model())
}

// wantFenced fails unless err says that the term is over.
func (b *bench) wantFenced(what string, err error) {
	b.Helper()
	if err == nil || processors.FailureOf(b.Context(), err) != processors.Fenced {
		b.Fatalf("%s: %v, want an error that matches ErrFenced", what, err)
	}
}

// wantSeen fails unless err says that the sink has seen a later term, and its epoch: by that a worker
// whose lease was lost, and its epochs with it, gets a greater one.
func (b *bench) wantSeen(what string, err error, epoch uint64) {
	b.Helper()
	b.wantFenced(what, err)
	if seen := processors.EpochSeen(err); seen != epoch {
		b.Errorf("%s: %v, which tells epoch %d, want %d", what, err, seen, epoch)
	}
}

// wantFenced fails unless writing a batch, or making it durable, says that the term
// is over.
func (w *writer) wantFenced(what string, fill project.Batch) {
	w.b.Helper()
	w.b.wantFenced(what, w.send(fill))
}

// send writes a batch and makes it durable.
func (w *writer) send(fill project.Batch) error {
	w.b.Helper()
	fill.After, fill.UpTo = w.at, feed.Position{LSN: w.at.LSN + 1}
	_, err := w.Write(w.b.Context(), &fill)
	if err == nil {
		_, err = w.Flush(w.b.Context())
	}
	return err
}

// wantPosition fails unless err is ErrPosition.
func (b *bench) wantPosition(err error) {
	b.Helper()
	if !errors.Is(err, project.ErrPosition) {
		b.Fatalf("a batch that begins too late: %v, want ErrPosition", err)
	}
}
