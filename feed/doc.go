// Package feed holds the log of each physical partition, the changes in it, and the ways to
// read them. All other state of Millrace is derived from logs: nothing is stored anywhere
// before it is in a log.
//
// # Model
//
// A [Partition] is a range of a container's key space, and has one [Log]: a JetStream
// stream with one subject, from which nothing but its beginning is deleted (see
// Trimming). A log is a chain of commits. A [Commit] is one message with one or more
// transactions; a [Transaction] is a set of changes that happen together; a [Change] is one
// create, replace, delete or expiry of one item. The stream's sequence is the commit's [LSN], and
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
// expects to be the last, so JetStream itself refuses one of two owners
// ([ErrFenced]). Everyone else reads: one commit ([Log.Read]), all from an LSN
// on ([Log.Tail]), or through a [Hub], where the readers of a process share one
// tail and one decoding for each partition. [Log.Resolve] turns a start, such as
// "now" or a time, into the position after which to read.
//
// A [PartitionKey] is the value that places an item. Its hash, an [EPK], is that
// of Azure Cosmos DB's version 2, so that clients which hash for themselves
// agree with the server.
//
// FORMAT.md describes the bytes of a commit. They may be compressed ([AppendCompressed]);
// what only passes them on, or reads their header, does not decompress them.
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
//	log gone, or another ──▶ ErrNoLog, *MismatchError, *GapError; ErrUnknown too if any try may have been stored
//
// A NATS server that ends takes the appends on their way with it, and nobody tells their sender: another
// server leads the stream some ten milliseconds later, and knows nothing of them. So the time that the first try
// waits is measured: as long as answers take here, 100 ms at least, and longer for a large commit. Each further try
// waits twice as long as the one before, up to LogConfig.AppendTimeout, so that a slow disk or link is not swamped
// with copies. What a copy finds:
//
//	the first was lost                  acknowledged
//	it is stored, its answer was lost   wrong last sequence, and ours is at after+1
//	it is on its way, and slow          wrong last sequence, and nobody's is at after+1: its answer is waited for
//
// Each try has a reply subject of its own, so that a refusal is taken for that of its own copy: nothing was appended,
// for certain, when all were refused. A stream without a leader has no listener either, and nobody answers what it
// is asked: the questions are bounded as the tries are, and the first one by 20 ms.
//
// # Trimming
//
// An owner may remove the beginning of its log ([Log.Trim]). The log itself tells this from
// damage: every commit carries the trim point as of that commit ([Commit.Trimmed]), the
// last LSN that may be gone. The owner first appends a commit with the new trim point, then
// purges up to it, in steps:
//
//	append, trim point 5          1 2 3 4 5 6 7 8    8 says 5
//	purge                               4 5 6 7 8    a crash here leaves the first at 4: no damage
//	done                                    6 7 8
//	first is 7                                7 8    6 is missing: damage
//
// The trim point is always below the commit that carries it, so a purge never removes the
// commit that allows it, and never the last one. Later commits repeat it. So the last commit
// of a log tells how much of the beginning may be gone, without an engine or a snapshot. Two
// alternatives were weighed. The stream's metadata would be a second write beside the
// commits; it could be lost, or be older than the commits after a restore. A control
// commit alone would have to be searched for in what is left of the log.
//
// A reader that asks for a trimmed commit gets [TrimmedError], with the first LSN that is
// kept. JetStream lets a consumer that is asked to start earlier begin at the first
// message that it has, without an error. A Tail sees that the first message is not the
// one that it asked for, and tells a trim from a gap by the trim point.
//
// # Reading what this process appends
//
// Most readers stand at the end of a log, and where millrace up is all there is, its owner is in their process. Such a
// tail gets each commit from a [TailCache] once JetStream has acknowledged it, and has no consumer meanwhile:
//
//	owner           Append 41 ──▶ stored, acknowledged ──▶ cache: 41 ──▶ dropped when the tails of the process have it
//	tail A          stands before 41: waits for the cache, and takes 41 from it
//	tail B          stands before 12: reads from the stream up to 41, then as A
//
// It is not only the shorter way. JetStream keeps each block of 4 MiB in memory for two seconds after it was written, or read
// by a consumer; without a reader it writes all blocks into one buffer. At 12 MB of log a second that was half of what the
// process had in use, and the garbage collector ran up to three times as often.
//
// Why the order and the completeness of what is delivered do not depend on the cache: it holds only what the log's stream has
// acknowledged, at the LSN for which it was acknowledged, so it may lack commits but cannot have others. A tail
// takes from it the commit at its own cursor alone, and checks it as one from the stream: checksum, log, predecessor. What the cache
// lacks the tail reads from the stream: it waits for the cache only while its cursor is directly behind what
// is kept there, and until the owner who appended last closes its log, or one of its appends fails. Nobody tells the cache of an owner that
// hangs and was succeeded by another process, or of a stream that is deleted; then the tail hears nothing, and
// asks the stream within TailOptions.WatchInterval, as it asks about a silent consumer. Who checks what the stream holds, as a scrub does, reads without the cache
// (TailOptions.FromStream). While a log moves, its copy is made and read
// back without the cache.
//
// # Going on in a new stream
//
// Streams that earlier releases made deny purges for ever. Such a log is trimmed by moving it
// into a second stream ([Log.BeginMove]), whose first sequence is behind the trim point. So
// every commit keeps its LSN:
//
//	old stream   1 2 3 4 5 6 7 8          trim point 5
//	                       6 7            first sequence 6, labelled as a copy
//	old stream   1 2 3 4 5 6 7 8 9        9 says "move": the log is closed
//	                       6 7 8 9        complete, read back, labelled as the log
//	new stream             6 7 8 9        the old stream is deleted
//	new stream             6 7 8 9 10     the takeover of whoever opens it next
//
// The old stream is the log while it exists; after that the new one is, if it is labelled as a
// log. Why no acknowledged commit is lost:
//
//   - An append names the sequence that it expects to be the last. Behind the closing
//     commit the old stream would accept only an append that names the closing commit's
//     LSN. A process that knows this LSN has read the closing commit, and it appends to the
//     new stream alone ([Log.FinishMove] comes before a takeover). All other appends are
//     refused: ErrFenced. So the old stream ends with the closing commit, whoever is late.
//   - Both streams hold the same bytes at the same sequences: each commit is read from the
//     old stream and appended to the copy with its own LSN as the expected sequence. Two
//     processes that copy at the same time append the same, and a late one is refused.
//   - The old stream is deleted only when the copy holds the closing commit with the same
//     checksum. Each commit holds the checksum of the one before, so all of them are equal
//     then.
//   - Each step can be repeated without harm, by any process that opens the log. No process
//     deletes the copy, because a late one might delete what has become the log.
//
// An append that was sent to the old stream and got no answer is resolved in the new one.
// A tail whose stream is deleted finds the new one and continues at its cursor.
//
// # Promises
//
//   - A commit is in the log once or not at all, whatever message was lost, and it
//     stands behind the commit that its writer knew to be the last.
//   - A Tail or a Reader delivers commits in order, without a gap, and whole: a
//     transaction is never seen in parts. One reader delivers each commit once; a
//     reader that continues from an older checkpoint delivers some again.
//   - A log that has lost commits, is damaged or trimmed, or was replaced or restored
//     from an older copy gives an error with partition and LSN: [GapError],
//     [MismatchError], [FormatError], [TrimmedError]. Nothing is skipped. A reader waits
//     only for a stream that cannot be reached.
//   - A consumer that is deleted, loses messages or falls silent is replaced by one
//     that begins at the reader's own cursor. Silence is noticed within
//     TailOptions.WatchInterval.
//   - Opening never creates a log.
//
// It does not promise:
//
//   - that the owner has applied a commit when a reader gets it;
//   - that acknowledged commits survive a loss of power if the server is configured not
//     to sync each append;
//   - to notice that a log was replaced by a version of itself with the same id, the same
//     length and other commits, unless somebody reads across the LSN where they differ.
//
// # Concurrency
//
// Values (positions, keys, commits that nobody changes) may be shared freely.
// Log.Append is not to be called concurrently on one Log; the other methods of
// Log are safe. A Tail, and a Reader, belong to one goroutine at a time. A Hub
// is safe. The commits that a Hub's readers, or tails of one TailCache, return are shared between them and
// must not be changed; slices in a decoded commit alias its message, or the buffer
// that a compressed one was decompressed to, so a caller that keeps one item for
// long copies it.
package feed
