// Package feed is the ground on which Millrace stands: the log of each physical
// partition, the changes in it, and the ways to read them. Nothing is stored
// anywhere before it is in a log.
//
// # Model
//
// A [Partition] is a range of a container's key space, and has one [Log]: a
// JetStream stream with one subject, from which nothing is deleted but its
// beginning (see Trimming). A log is a chain of commits. A [Commit] is one message, with one or more transactions; a
// [Transaction] is what happens together; a [Change] is one create, replace,
// delete or expiry of one item. The stream's sequence is the commit's [LSN], and
// (LSN, index) is the [Position] of a change.
//
//	Partition c7k2x4ab/0             stream MILLRACE_c7k2x4ab_0, log id L
//
//	LSN 1            LSN 2            LSN 3
//	┌─────────────┐  ┌─────────────┐  ┌─────────────┐
//	│ log L       │  │ log L       │  │ log L       │
//	│ prev 0      │◀─│ prev sum(1) │◀─│ prev sum(2) │◀─ next append expects
//	│ genesis     │  │ takeover    │  │ txn txn txn │   last sequence 3
//	└─────────────┘  └─────────────┘  └─────────────┘
//
// The owner of a partition appends ([Log.Append]) with the sequence that it
// expects to be the last, so of two owners one is refused by JetStream itself
// ([ErrFenced]). Everyone else reads: one commit ([Log.Read]), all from a place
// on ([Log.Tail]), or through a [Hub], where the readers of a process share one
// tail and one decoding for each partition. [Log.Resolve] turns a wish, such as
// "now" or a time, into the position after which to read.
//
// A [PartitionKey] is the value that places an item. Its hash, an [EPK], is that
// of Azure Cosmos DB's version 2, so that clients which hash for themselves
// agree with the server.
//
// FORMAT.md describes the bytes of a commit.
//
// # What an append can come to
//
//	               ┌──────────── same bytes, same expected sequence ───────────┐
//	               ▼                                                           │
//	send ──▶ acknowledged ──▶ durable, LSN after+1                             │
//	     ──▶ refused: nothing was appended ──▶ ErrStorage, ErrTooLarge         │
//	     ──▶ no answer, connection lost, server busy ──────────────────────────┤
//	     ──▶ wrong last sequence ──▶ whose commit is at after+1?               │
//	                                  ours      ──▶ durable, LSN after+1       │
//	                                  another's ──▶ ErrFenced                  │
//	                                  nobody's  ───────────────────────────────┘
//	context ends ──▶ ErrUnknown if any try may have been stored, else ErrUnavailable
//
// # Trimming
//
// An owner may remove the beginning of its log ([Log.Trim]). What makes that no damage
// is in the log itself: every commit carries the trim point as of it
// ([Commit.Trimmed]), the last LSN that may be gone. The owner first appends a commit
// with the new trim point, then purges up to it, in steps:
//
//	append, trim point 5          1 2 3 4 5 6 7 8    8 says 5
//	purge                               4 5 6 7 8    a crash here leaves the first at 4: no damage
//	done                                    6 7 8
//	first is 7                                7 8    6 is missing: damage
//
// The trim point is always below the commit that carries it, so a purge never takes the
// commit that allows it, and never the last one. Later commits repeat it. So whoever
// reads the last commit of a log knows how much of its beginning may be gone, with no
// engine and no snapshot, and one look at the end suffices. It was weighed to keep it in
// the stream's metadata: that is a second write, by another road than the commits, that
// could be lost or be older than they are after a restore; and to name it in a control
// commit alone: then a reader would have to search what is left of the log for it.
//
// Who asks for what is gone gets [TrimmedError], with the first LSN that is kept.
// JetStream itself begins a consumer that is asked to start earlier at the first message
// that it has, without a word; a Tail sees that the first one delivered is not the one
// that it asked for, and tells a trim from a gap by the trim point.
//
// # Going on in a new stream
//
// Streams of earlier releases deny purges for ever. The trim of such a log is a move into
// a second stream ([Log.BeginMove]), whose first sequence lies behind the trim point, so
// that every commit keeps its LSN:
//
//	old stream   1 2 3 4 5 6 7 8          trim point 5
//	                       6 7            first sequence 6, labelled as a copy
//	old stream   1 2 3 4 5 6 7 8 9        9 says "move": the log is closed
//	                       6 7 8 9        complete, read back, labelled as the log
//	new stream             6 7 8 9        the old stream is deleted
//	new stream             6 7 8 9 10     the takeover of whoever opens it next
//
// A log is the old stream while that is there, else the new one if it is labelled as a log.
// Why nothing that was acknowledged is lost:
//
//   - An append names the sequence that it expects to be the last. Behind the closing
//     commit only one that names its LSN would be taken by the old stream, so by a process
//     that has read it, and such a process appends to the new stream alone ([Log.FinishMove]
//     comes before a takeover). All others are refused: ErrFenced. So the old stream ends
//     there, whoever was late.
//   - Both streams hold the same bytes at the same sequences: what is appended to the copy
//     was read from the old stream, with its LSN as the expected sequence. Two that copy at
//     a time do the same, one that is late is refused.
//   - The old stream is deleted when the copy holds the closing commit with the checksum
//     that it has there. Each commit holds the checksum of the one before, so all of them
//     are equal then.
//   - Each step is done again without harm, and may be done by whoever opens the log. The
//     copy itself is deleted by nobody, because for somebody who is late it may be the log.
//
// An append that was sent to the old stream and got no answer is resolved in the new one.
// A tail whose stream goes looks for the new one and goes on at its cursor.
//
// # Promises
//
//   - A commit is in the log once or not at all, whatever was lost on the way,
//     and behind the commit that its writer knew to be the last.
//   - A Tail or a Reader delivers commits in order, each at least once in the
//     life of a checkpoint and once in the life of the reader, with no gap, and
//     whole: a transaction is never seen in parts.
//   - What is missing, damaged, trimmed away, made anew or restored older is
//     said, with partition and LSN: [GapError], [MismatchError], [FormatError],
//     [TrimmedError].
//     Nothing is skipped and nothing is waited out. A stream that merely cannot
//     be reached is waited for.
//   - A consumer that is deleted, loses messages or falls silent is made anew
//     from the reader's own cursor. Silence is noticed within
//     TailOptions.WatchInterval.
//   - Opening never creates a log.
//
// It does not promise that a commit which was delivered has been applied by its
// owner; that acknowledged commits survive a loss of power if the server was
// told not to sync each append; or to tell apart a log that was replaced by
// another life of itself that has the same id, the same length and other
// commits, as long as nobody reads across the place where they part.
//
// # Concurrency
//
// Values (positions, keys, commits that nobody changes) may be shared freely.
// Log.Append is not to be called concurrently on one Log; the other methods of
// Log are safe. A Tail, and a Reader, belong to one goroutine at a time. A Hub
// is safe. The commits that a Hub's readers return are shared between them and
// must not be changed; slices in a decoded commit alias its message, so a
// caller that keeps one item for long copies it.
package feed
