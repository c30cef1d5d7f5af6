// Package project keeps rows of tables equal to the items of a container: a row
// for each customer, a row for each line of each order, in other containers,
// Parquet files or PostgreSQL.
//
// A projection has one processor for each partition of its source. It reads the
// feed, makes the rows of each item before and after a change, and hands the
// difference to a Sink, with the interval of positions that it covers.
//
//	source feed ──▶ RowWriter ── Batch (After, UpTo] ──▶ Writer ──▶ rows, rejects
//	                  │ RowsOf(before), RowsOf(after)       │
//	                  │ newest state of each row            └─ position, epoch
//	                  ▼                                        in the same step
//	              checkpoint: behind what is durable
//
// # What a row is
//
// RowsOf is a pure function of an item: for each table, the row of the item, or
// of each element of an array in it, whose columns are expressions with types.
// Undefined and null become Null. A value that its type does not take never becomes
// Null: the row becomes a Reject with column and reason, and counts. So does a row
// whose key has a Null in it, and the second of two elements of an item that have
// one key. Numbers lose only what their declared type leaves out: a double is the
// nearest one, a decimal is rounded to its scale, a timestamp has microseconds.
//
// A Batch says how rows are, not what was done to them: the newest state of each
// row that the interval touched. Whatever the sink had before, it is right at UpTo
// afterwards. So a part of a batch may be written twice, a crash in the middle costs
// writing it again, and nobody keeps a list of processed ids.
//
// Changes that are written again may be cut into other batches: those of the next term end
// elsewhere, and a batch that fails is halved until the change is found that cannot be
// written. So a sink
// that writes a batch in several steps records its end with the last of them, and no
// position before it: each one may be that of a change, all of which would have to be there.
//
// # Why effects happen once (I5)
//
// A sink makes rows durable in one step with the position that they reach, under
// the producer, and refuses an older epoch of it. What it has recorded it skips.
// A worker that wakes up late is refused as soon as its successor has opened the
// sink; before, it can only write what the successor will find recorded.
//
// The checkpoint of the processor does not pass what the sink has made durable. A
// sink that buffers takes batches and makes them durable later: when it holds
// FlushRowsMax rows or FlushBytesMax bytes, or FlushInterval has passed, or a burst of rows has
// ended. It takes the
// next batches meanwhile. After a crash the processor reads the feed again from the
// last durable position. The checkpoint also holds the position that the sink has
// recorded: a sink that is found before it has been emptied or restored older, and
// the processor stops and says so, instead of writing the changes that follow into a
// gap.
//
// # Whose row it is (I6)
//
// A row records its source: container, partition key and id of its item. Put and
// Drop name it, and a sink lets only the same source replace or remove a row. A
// row whose key another source holds is pending: it waits among the rejects, with the
// reason. When the holder's row goes, the pending row with the smallest source takes its
// place. A pending row is withdrawn as a row is, by its own source.
//
// An item that moves to another partition key is a delete in one feed and a create
// in another, which lag as they like. If the delete comes first, the row goes and
// comes. If the create comes first, the new row waits, and takes its place when
// the old one goes: the delete cannot remove it, because it names the old source.
// Two items that want one key by mistake end with one row and one reject, which
// tells of the other; they never end in each other's place.
//
// Changes of one item are in one feed and in order, so its rows end as the item
// ends. The order in which the sink hears of different items does not matter, but
// for which of several pending rows takes the key.
//
// # What is left alone
//
// With OnExpire Keep, the rows of an item that the store removed because its time
// to live has passed stay for good, also when an item of the same name comes
// again, unless it makes rows with the same keys. A key that an expired item holds
// stays taken.
//
// A change of a projection that only adds tables, or columns outside of keys, goes
// on in the tables that are there, see Rebuild, whose rows are backfilled beside what
// changes (backfill.go), but for those of items that have expired; every other one builds
// a shadow, which takes their place by Swap.
//
// # Failures
//
// The processor waits for a sink that cannot be reached. Write, or the Limiter before
// it, finds a row that the sink can never take; the row ends in the dead letters or
// among the rejects. A flush that fails is no change's fault and is tried again without
// end; status shows attempts and error from the checkpoint, and the lag grows.
//
// A Projection is safe for concurrent use. Its processors are made anew for each
// term of a lease.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package project
