// Package processors runs the code of pipelines: it reads the change feed, hands
// batches to a Processor, tries again what fails, gives up what cannot be
// processed, and writes checkpoints.
//
// # A term
//
// A Host runs one processor for as long as its lease holds:
//
//	         ┌────────────────────── feed.Hub ─────────────────────┐
//	         ▼                                                     │
//	  read ahead ──▶ batch ──▶ Process ──▶ position, State ──▶ checkpoint in the lease
//	(bytes, commits)   ▲          │ error                          ▲
//	                   │          ▼                                │
//	                   └── pause, again                            │
//	                              │ cannot be processed            │
//	                              ▼                                │
//	                halve until one change is left ──▶ dead letter, parked
//
// A batch is whole commits, so a transaction is never seen in parts, except
// while a change that cannot be processed is looked for. Work that outlives a
// batch, a fan-out, is a Job in the processor's State: the checkpoint's position
// passes it, and the checkpoint holds it until it is finished.
//
// # Walks
//
// A generation that begins with the existing items reads the log from its beginning. Where
// that is gone, or holds much that was overwritten since, the generation walks: it reads the
// items of a snapshot as of commit n, which is pinned for it, and then the log from n+1.
//
//	log    1 2 3 ... n │ n+1 n+2 ...
//	walk   items as of n │ n+1 n+2 ...
//
// The items are a prefix that stands in for the commits 1 to n, as creates in the order of
// their keys, with positions of their own between those of n and of n+1; see
// feed.WalkPosition. Why that is exact:
//
//   - Each item was made by the commits up to n, and by none behind. Processors write what
//     follows from an item's state, or add up the difference between what an item was and
//     is; the sum over all commits up to n of (after minus before) is the item as of n. An
//     item that is not there adds up to nothing.
//   - A change behind n carries what the item was, which is what the walk has shown, or an
//     earlier change behind n has made of it.
//   - A snapshot never changes, and its order is that of its keys. So a position in the
//     prefix means the same to everybody who reads it, before a crash and after, at any
//     owner. Intervals (after, upTo], positions per target, epochs, redelivery and owed
//     changes rest on that alone, and work in a walk as they do in a log. Two targets that
//     a crash has left at different places go on from there, each.
//   - An item whose time has passed and that was not removed as of n is in the snapshot.
//     Its expiry comes by the log.
//   - The pin keeps the snapshot, and the log behind it: nothing behind n is trimmed before
//     the walk is over. If the pin has lapsed all the same, or the snapshot is damaged, the
//     processor says so and stays where it is. The generation must begin anew with another
//     snapshot. It cannot continue in that one, because an item may have got a place there
//     before the position that was reached.
//   - A rule that folds in the owner's commits comes into force behind n, because the
//     snapshot is pinned before the rule is asked for. So the changes up to n are the
//     processor's, all of them, and behind n each transaction tells who folded it.
//
// Partitions are walked as of different moments. That is no more than reading logs that
// lag: an item that moved between them may be in both snapshots, or in none, and the logs
// behind them bring its delete and its create.
//
// # Splits
//
// A partition that is split has a last commit, and two children go on with its keys. Its processor is the only one that
// lets those of the children begin, and does so when nothing is open that came before them: so the changes of a key are
// processed in order, and each is processed by somebody.
//
//	parent's log   ... 41 42 split │        children's logs   1000 1001 ...
//	1  all is read, what the sink holds is durable, no fan-out is open, and the checkpoint says so
//	2  each child gets the record of a lease, with a checkpoint that stands before its first commit
//	3  the parent's checkpoint says that they have
//	4  when nothing waits for a retry, the parent's lease ends
//
// Whoever takes the lease after a crash finds what is done in the checkpoint and does the rest; to do a step again changes
// nothing. A holder that was succeeded and does not know it may still do step 2: its checkpoint was durable under its
// epoch, so that what it says is true, and records that are there stay as they are. Children are new producers: targets
// know no positions of theirs, and have the parent's.
//
// # What it promises
//
// Changes are processed in order, each at least once. Whoever takes the lease
// over goes on from the last checkpoint, so what came after it is processed
// again; a processor's writes name their producer and the lease's epoch, and
// either set values, so that doing it again changes nothing, or carry the
// interval of positions that they add.
//
// A failure is one of five kinds, see Failure. The Host waits for what is
// unavailable, without end and with growing pauses; the count and the last error
// are in the checkpoint, so status shows them also after a crash. A change that is
// itself at fault becomes a dead letter after AttemptsMax transient failures at the
// latest, for which those of what was unavailable do not count; the other changes go on. That change is parked: it counts as lag until a retry of
// it has succeeded, or, where a later change of the item makes up for it, until such a one
// has been processed; see Superseder. Later changes of its item do not wait behind it:
// holding them back would keep copies wrong that could be right.
//
// A processor may hold what it took, to write much at once, as one does whose sink
// writes files. It says so by State.Durable. The checkpoint then stays behind what the
// processor holds; that counts as lag, and is read again after a crash.
//
// A checkpoint is not written at once when a processor becomes idle, but
// CheckpointInterval later. A checkpoint costs a sync of the disk, for which the writes
// that follow wait too; what it would save after a crash is reads.
//
// # Epochs that were lost
//
// If the bucket of the leases is lost, epochs begin at 1 again, while the targets remember
// those of before: partitions of containers with each producer, sinks with each position. All of
// them refuse the new holder until its epoch is above theirs. So a refusal tells the epoch that
// was seen (EpochSeen), the term ends with it as a leases.EpochBehindError, and the lease is
// released with that epoch:
//
//	lease lost at 57   taken with 1, refused: 57 was seen; released with 57; taken with 58
//
// Targets may have seen different epochs, if a holder died while it began. Each is met once at
// most, because what the next holding has is above all that were met.
//
// Why that does not undo the fence (I5):
//
//   - A worker that was succeeded is told the epoch of its successor by the same refusal. It
//     ends its term all the same, and the release writes nothing, because the record is not as
//     it wrote it last; see package leases. So nobody gets past a fence but by taking the
//     lease, and a target still sees epochs that only grow.
//   - A worker of before the loss cannot renew its lease, and stops when its trust ends.
//     Until then it may write where nobody has planted a greater epoch, and the new holder
//     is refused there and raised once more. Epochs do not order the two there, and other
//     guards do, as everywhere: what adds is taken only where the last interval ended, a page
//     only if its position is not older than the one that is recorded for its source, a repair
//     only if the item is still as it was looked at.
//   - A generation that was succeeded in a container is closed with EpochOver. No epoch is told
//     of that, so no lease is raised for it.
//
// # What it does not promise
//
// A lease narrows the overlap of two holders and does not exclude it: a process
// that was stopped for a while may write late. Those writes are refused by the
// partition to which they go, by epoch; the term then ends with ErrFenced.
//
// A Host and a DeadLetters are safe for concurrent use.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package processors
