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
// itself at fault becomes a dead letter after AttemptsMax attempts at the latest,
// and the other changes go on. The item of that change is parked: it counts as lag
// until a later change of it has been processed. Later changes of a parked item
// do not wait behind it, because what a cascade or a projection writes follows
// from an item's newest state alone; holding them back would keep copies wrong
// that could be right.
//
// A processor may hold what it took, to write much at once, as one does whose sink
// writes files. It says so by State.Durable. The checkpoint then stays behind what the
// processor holds; that counts as lag, and is read again after a crash.
//
// A checkpoint is not written at once when a processor becomes idle, but
// CheckpointInterval later. A checkpoint costs a sync of the disk, for which the writes
// that follow wait too; what it would save after a crash is reads.
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
