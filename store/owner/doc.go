// Package owner is the one writer of a physical partition: it decides requests,
// appends commits to the partition's log, applies them to the engine and answers.
//
// # Model
//
// Two goroutines work for each partition:
//
//	Handle ──▶ queue ──▶ decider ──draft──▶ committer ──▶ append ──▶ apply ──▶ answer
//	fan-outs ─▶ pages ──────┘                  │
//	   ▲            reads: a snapshot of the engine ◀─ publish
//
// The decider takes requests in arrival order and decides them against the
// engine's snapshot and its overlay: what was decided and is not applied yet.
// While the committer appends one commit, everything that arrives is decided
// into the next; so groups form by themselves and no request waits for a timer.
// Refusals wait for the commit too, because they may rest on what is in it.
//
// A partition's life:
//
//	lease taken ─▶ attach (compare engine and log) ─▶ replay ─▶ takeover commit ─▶ serve
//	                  │ log damaged                                 ▲   │ fenced: replay, again
//	                  ▼                                             └───┘
//	            serve reads, refuse writes
//
// # What it promises
//
//   - I1: one append in flight per partition, each with expected last sequence.
//     Nothing is served before the takeover commit is applied; an owner whose
//     append is refused by a commit that is not its own stops.
//   - I2: nobody is answered before the outcome of the append is known. An append
//     that certainly did not happen voids every decision made after it.
//   - I3: apply is a function of the commits: settings come from control commits,
//     time from the commit, positions from the log. Values are absolute, so a
//     commit may be applied again. Replay begins behind the last sync of the
//     engine, never at its unsynced tail.
//   - I5: a pipeline's write from an older lease epoch than the partition has seen
//     is refused.
//   - I7: a pipeline's write that leaves an item as it is makes no change, and a
//     pipeline's change leaves the item's TTL clock.
//
// # Fan-outs
//
// A page of a fan-out (store.PatchMany) is decided like any other request, at
// the state of its own commit: it sees every change before it in the log, also
// those whose append is still in flight. So an item committed before a page whose
// range holds it is always found by it. The cursor lives here, under producer and
// source, and not with the worker: two pages may be asked for at once, the second
// being decided while the first is appended, and a worker that takes over asks
// on where the last left off. Pages wait while clients write, except for
// Config.PageShare, and become small.
//
// # Trimming
//
// The beginning of the log goes when nobody needs it (trim.go). The trim point is the least of:
//
//	the older kept snapshot's LSN; at rest the newest's   the state up to it is elsewhere, read back
//	what this engine has synced                           a restart here goes on from its engine
//	the commit before the last                            the last one tells the trim point
//	what retention keeps, by commits' times               readers of all versions
//	the slowest reader: checkpoints of pipelines          pipelines; retentionMax overrides these two
//
// First a commit raises the trim point, then the server purges up to it, in steps. What
// makes it exact (I2, I3):
//
//   - Nothing goes before the commit that allows it is applied, so whoever finds the log
//     shorter finds why in it, and whoever decided the commit was the owner: an owner that
//     was fenced meanwhile purges no more than what a commit in the log allows.
//   - Applying the commit sets the trim point in the state and nothing else; every later
//     commit repeats it. So a log and its trimmed rest make the same state, given the
//     snapshot.
//   - A crash between commit and purge, or between two purges, leaves a log that begins
//     lower. Every owner goes on to purge up to the trim point of its state.
//   - An engine that ends below what the log begins with is loaded from a snapshot. It is
//     emptied only when a snapshot was read through that reaches the log, because it may be
//     the last that holds anything; if there is none the partition stays closed and looks
//     for one.
//   - A snapshot at the trim point, whose own commit is gone, is held against the checksum
//     that the first kept commit names of its predecessor.
//   - The answer who reads, by which the trim point is raised, may be a moment old. Nothing
//     behind the log's end as of the question goes, so whoever begins at an end that he looks
//     up since keeps what is behind it. Before each purge, with the trim point in the log,
//     readers are asked for anew, and nothing goes that one of them needs: so whoever is
//     registered by then keeps the log from where he begins, also at its beginning, where he
//     was set back to, or at an end that he looked up long ago.
//
// Who looks at the log before that question and is registered after it reads the trim point
// behind his record, and begins anew where it has passed him (package registry). Either the
// question sees his record, or he sees the trim point:
//
//	looks: the log begins at 1   trim point 9   asked: nobody reads   registered: from 1   sees 9
//
// A directory does not compare and set: of two processes that write snapshots of one
// partition there, a late one could name an older snapshot than what the log was trimmed by.
// So with a directory nothing is trimmed unless no other process can become the owner
// (Config.Alone). A stream compares, and a pointer never goes back (package snapshot).
//
// # Time
//
// The decider is one goroutine, so nothing that it evaluates may take long. Conditions
// of patches have conditionTime by the clock: a refusal never enters the log, so replay
// need not repeat it. They are read, and their regular expressions compiled, before the
// decider has the request. Conditions of indexes and rules are part of apply, and count
// their work (query.WorkMax). What holds the decider for longer than a second all the
// same is told by Server.Held, the log and a metric.
//
// Handle is safe for concurrent use. Reads do not pass through the decider.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package owner
