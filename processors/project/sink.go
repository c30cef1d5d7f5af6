package project

import (
	"context"
	"errors"
	"iter"

	"github.com/millrace/millrace/feed"
)

// ErrPosition says that a Batch begins behind what the sink has recorded: what
// lies between is missing. The sink has been restored older or emptied, or
// another writer is at work.
var ErrPosition = errors.New("project: the batch does not follow what the sink has recorded")

// ErrGivenUp says that the rows of a shadow generation will never take the place of others:
// those of a later one are there, or are being built. That does not change any more.
var ErrGivenUp = errors.New("project: the rows of the generation were given up")

// Schema is what a Sink has to know of a projection. Names are those of the
// declaration; a sink whose engine cannot take one maps it and keeps the mapping.
type Schema struct {
	Pipeline   string
	Generation uint32
	// Shadow says that the rows of this generation are kept apart from those of the
	// one before until Swap puts them in their place. Without it the generation
	// goes on in the tables that are there: columns and tables that were added are
	// made, the first one makes all, and writers of generations before it are refused
	// as those of older epochs are. There is one shadow at a time: the rows of one that was
	// not swapped go when the next one is opened, and its writers are refused, also when they
	// open it again. After Swap it has no meaning.
	Shadow bool
	Tables []TableSchema
}

// TableSchema is one table of a Schema.
type TableSchema struct {
	Name    string
	Columns []ColumnSchema
	// Key are the indexes in Columns of the columns that identify a row, at least
	// one. They hold neither Null, doubles nor JSON.
	Key []int
	// Index are lists of such indexes: columns on which a sink that can keeps an
	// index of its engine.
	Index [][]int
	// PartitionBy is the index of the column by which files are kept apart, -1 for
	// none.
	PartitionBy int
}

// ColumnSchema is one column of a table.
type ColumnSchema struct {
	Name string
	Type Type
}

// Column returns the index of a column, -1 if there is none of that name.
func (t *TableSchema) Column(name string) int {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return i
		}
	}
	return -1
}

// Term is the time for which one process writes for one source partition.
type Term struct {
	// Producer is who writes; Producer.Source names the source partition.
	Producer feed.Producer
	// Epoch grows with every term of a Producer.
	Epoch uint64
	// Heartbeat says that the sink makes progress, which one that needs many requests
	// for one batch tells after each; nil if nobody wants to know.
	Heartbeat func()
}

// Batch is what the changes in an interval of source positions mean: the newest
// state of each row, and of each reject, that they touched. It shares memory with
// nothing that changes, and must not be changed.
//
// A sink carries out Drop before Put, and Accept before Reject. No row is in both
// Put and Drop, no reject in both Reject and Accept. What a Batch says holds
// whatever was there before, so that carrying it out twice changes nothing more.
type Batch struct {
	// After and UpTo bound the interval (After, UpTo], which is never empty.
	After, UpTo feed.Position
	// Put are rows as they are now. A row whose key the row of another Source holds
	// becomes a pending row: a Reject with Key, the reason HeldBy and the row. A row,
	// pending or not, of the same Source and key is replaced.
	Put []Row
	// Drop are Table, Key and Source of rows that are gone. The row goes only if it
	// is of that Source; else the pending row of that Source and key goes, if there is
	// one. When a row goes, the pending row of its key with the smallest Source takes
	// its place.
	Drop []Row
	// Reject are rows that cannot be; they replace the ones with the same Table,
	// Source and Element.
	Reject []Reject
	// Accept are Table, Source and Element of rejects that are gone; pending rows are
	// not meant.
	Accept []Reject
}

// Empty says whether the batch changes nothing.
func (b *Batch) Empty() bool {
	return len(b.Put) == 0 && len(b.Drop) == 0 && len(b.Reject) == 0 && len(b.Accept) == 0
}

// Len is the number of rows and rejects in the batch.
func (b *Batch) Len() int { return len(b.Put) + len(b.Drop) + len(b.Reject) + len(b.Accept) }

// Written is what a Write did.
type Written struct {
	// Durable is the position up to which everything is durable and recorded; for a
	// sink that does not buffer that is the UpTo of the batch. It never goes back.
	Durable feed.Position
	// Pending are rows of the batch that wait for a key, as far as the sink knows
	// yet.
	Pending int
	// Skipped says that the batch was recorded before, and nothing was done.
	Skipped bool
	// Refused are rows of Put that turned out to be none that the sink can take,
	// where it does not keep them among its rejects by itself. They are counted, and
	// told of in status. A sink that can tell before it writes is a Limiter.
	Refused []Reject
}

// Sink keeps the rows of one pipeline. It is safe for concurrent use by the
// partitions of the pipeline.
//
// Errors tell what to do next in the way that processors.FailureOf reads: those of
// a sink that cannot be reached match store.ErrUnavailable and are tried again
// without end; those of a term that has been succeeded match processors.ErrFenced, and tell
// by processors.EpochSeen which epoch has, unless it was another generation;
// those of a row that can never be written are made by processors.Reject, and the
// row's change ends in the dead letters. Everything else is tried for a while.
type Sink interface {
	// Open makes what is missing (tables, columns that were added), begins a term,
	// and returns the position recorded for its producer, zero if there is none; a
	// sink with several parts returns the furthest. From then on every Write and
	// Flush of an older epoch of the producer is refused, and so is Open, with an
	// error that matches processors.ErrFenced. Opening the same epoch again is allowed.
	Open(ctx context.Context, s *Schema, t Term) (Writer, feed.Position, error)

	// Close frees what the sink holds in this process. It discards what was not
	// flushed, and may be called twice.
	Close() error
}

// Writer writes for one source partition. It is used by one goroutine at a time, but
// for the Flush of a sink that buffers, which others may call beside a Write and
// beside each other.
type Writer interface {
	// Write takes b. With position P recorded or taken before:
	//
	//	b.UpTo <= P    nothing is done: Written.Skipped
	//	b.After <= P   b is carried out and P becomes b.UpTo
	//	b.After > P    ErrPosition
	//
	// Rows and position become durable together, all or nothing: at once, or by
	// Flush if the sink buffers. What can be wrong with a row is found here. After an
	// error the same batch, or parts of it, may be written again, whether or not it
	// was carried out.
	Write(ctx context.Context, b *Batch) (Written, error)

	// Flush makes durable what Write had taken when it was called, and returns the
	// position up to which all is. After an error it may be called again.
	Flush(ctx context.Context) (feed.Position, error)

	// Close ends the term in this process and discards what was not flushed. It
	// may be called twice.
	Close() error
}

// Reader reads what a sink has made durable, for verify and repair. It may be used
// beside writers. Every Sink is one. s is the schema of the generation that is
// read. One that nobody has opened has the rows of the tables that it will take over, and
// none if it is a shadow.
type Reader interface {
	// Rows yields the rows of a table in any order, but for those that are pending. An
	// error ends it.
	Rows(ctx context.Context, s *Schema, table int) iter.Seq2[Row, error]
	// Rejects yields the rejects of a table in any order, pending rows among them.
	Rejects(ctx context.Context, s *Schema, table int) iter.Seq2[Reject, error]
	// Positions returns the positions recorded for the producers of the generation,
	// by Producer.Source; those of repairs are not positions of a feed. A sink that
	// can tell them to their producers only returns none.
	Positions(ctx context.Context, s *Schema) (map[string]feed.Position, error)
}

// Swapper puts the rows of a shadow generation in place of the former ones. Every
// Sink is one.
type Swapper interface {
	// Swap makes the generation of s the one that readers see, in one step, and
	// removes the rows of generations before it, whose writers are refused from then
	// on. It may be called again after an error, and once done changes nothing, also
	// beside a shadow of a later generation.
	//
	// The error matches ErrGivenUp, and nothing is changed, if the generation has not
	// taken its place and a later one is there, as a shadow or as what readers see. So
	// whoever does not know whether a swap was done calls it again:
	//
	//	nil           its rows are in their place
	//	ErrGivenUp    they are not, and will not be
	//	other errors  not known yet
	Swap(ctx context.Context, s *Schema) error
}

// Limiter is a Sink that cannot hold every row. What it cannot hold becomes a
// Reject with the column ("" for the row as a whole) and the reason it returns; an
// empty reason means that it can. The answer depends on nothing but r.
type Limiter interface {
	CannotHold(s *Schema, r *Row) (column, reason string)
}

// Checker is a Sink that cannot hold every schema. Check returns everything that
// is wrong with one, as the function Check does.
type Checker interface {
	Check(s *Schema) []Problem
}

// Forgetful is a Sink that does not keep all rejects or pending rows.
// Other sinks keep both.
type Forgetful interface {
	// Keeps says whether the sink keeps rejects, and whether its Reader yields
	// pending rows.
	Keeps() (rejects, pending bool)
}
