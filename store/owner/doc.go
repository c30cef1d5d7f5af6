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
// An idle committer gets a part of what waits (decider.ripe), so that both work.
// Refusals wait for the commit too, because they may rest on what is in it.
//
// A partition's life:
//
//	lease taken ─▶ attach (compare engine and log) ─▶ replay ─▶ takeover commit ─▶ serve
//	                  │ log damaged                                 ▲   │ fenced: replay, again
//	                  ▼                                             └───┘
//	            serve reads, refuse writes
//
// When the lease is lost, Partition.run ends: trusted refuses requests, and nothing is appended.
//
// A log that ends below what the engine has applied is damaged: what was acknowledged is gone
// from it, and whoever appended behind its end would make another history. It counts what a process
// before has applied and what this one has, in a term of its own or as a standby.
//
// Where a log does not tell any more how far it went, because its stream is gone, was made anew or ends too early, reads
// go on from the engine of who owned the partition last, and from no other: a standby's copy, or that of an owner
// before, may lack what was answered since (holdsAll). A lease tells who has used it last, by what its holders say
// before they append (Lease.Use). Whoever holds it and answers nothing says so in the lease, waits, and leaves the
// partition to that node when it is there:
//
//	a appends, dies ─▶ the stream goes ─▶ b takes: unused, 503 ─▶ a is there ─▶ b gives it up ─▶ a takes, answers reads
//
// A copy that this process kept as a standby (package standby) is attached to like any other. The
// standby yields before, so that nothing is applied behind the takeover commit that is not this
// owner's. What it has followed may be of a later owner: then the open ends, because the epoch in
// the copy's state is greater than the lease's.
//
// # What it promises
//
//   - I1: one append in flight per partition, each with expected last sequence.
//     Nothing is served before the takeover commit is applied; an owner whose
//     append is refused by a commit that is not its own stops.
//   - I2: nobody is answered before the outcome of the append is known. An append
//     that certainly did not happen voids every decision made after it. Every other error
//     but a fence leaves the outcome unknown and ends the term: the next one finds out. If the log
//     is damaged or gone, that term begins here at once and says so.
//     Whoever decides or commits and comes upon damaged blocks of the engine answers what was at
//     hand before the term ends: a request with a refusal, a commit as of unknown outcome.
//   - I3: apply is a function of the commits: settings come from control commits,
//     time from the commit, positions from the log. Values are absolute, so a
//     commit may be applied again. Replay begins behind the last sync of the
//     engine, never at its unsynced tail.
//     A commit that changes settings is applied in parts. Snapshots that are kept, and scans,
//     whose readers go on in the log behind them, wait until it is applied whole.
//   - I5: a pipeline's write from an older lease epoch than the partition has seen
//     is refused.
//   - I7: a pipeline's write that leaves an item as it is makes no change, and a
//     pipeline's change leaves the item's TTL clock.
//
// # Who is not the owner
//
// NATS delivers a request to every process that has the partition's subject. For a moment those are
// the owner and one that has lost the lease and does not know it, or still answers what had come. Its 410
// (store.StatusGone) must not tell a client that nothing happened (I2):
//
//	it answers 410 because              the lease      RetryAfter   the client takes it for
//	it hands the partition over         is valid       set          certain: nothing happened
//	the same, and the drain hung        has run out    none         silence: asks again by the key
//	the lease is lost                   is lost        none         the same
//	another has appended: it is fenced  seems valid    none         the same
//
// The first is certain, because the lease is looked at when the request is here. Another process
// takes the lease after that, subscribes after that, and does not get what was delivered before. The
// fourth has found that its lease was worth nothing, so nothing follows from it, and it says so before it
// refuses anybody for that reason. A write without a key is not answered at all then, so that
// the owner's answer, if there is one, is the first.
//
// # Guarded transactions
//
// A script reads items and asks queries beside the decider, and what it writes must rest on what is there when that is decided. So it
// sends its writes with the LSN behind which nothing may have been decided about their logical partition (store.Transact.Guarded):
//
//	begin      through the decider, without operations: an LSN; the answer leaves when all up to it is applied
//	reads      of snapshots that were taken after that, so that each shows the state at the LSN or a later one
//	guard      in the decider, with the writes: refused if a later commit, decided or applied, has a change of the logical partition
//
// What passes the guard has read the logical partition as it is: had any read shown a later state of it, a later commit had a change of it. That
// holds for ids that were absent and for queries too, because the guard asks for any change, not for those of items that were read.
// Items that expire without a commit are the one exception: they were there, by a time just before.
//
// A guard decides nothing but a refusal, of which nothing is in the log: replay has no need of it (I3). It asks for what this
// decider has decided since it opened, and refuses what was read before that, so that a commit of another owner is never missed (I1): reads of an
// owner that has been deposed show less, but it answers none behind its right. Draft and overlay fall together when an append does not
// happen, and with them what is known of changes; the next decisions begin with all that is applied (I2). A guarded transaction is one
// transaction in the log as any other (I4), and has neither producer nor interval (I5, I6, I7).
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
// An item that cannot take its copy is refused, and the page goes on behind it. Whether a commit takes
// the copy is not known before what rules make of it is decided. So a page that is too large is decided again
// with half of its items, down to one. An item that is too much alone is refused too, and the page ends there
// (excessCopy): each page tells of one such item at most, so to find it costs a few decisions however many there are.
//
// The records of fan-outs are forgotten when a fan-out of the same producer begins here, as far as that says that
// nothing is left to do (finished.go). One that stands still keeps those of all later ones, and there may be
// as many as the source has items; they are kept in order, so that only what goes is looked at. What is
// forgotten follows from the commit and the records before it alone (I3). Those of a generation that has ended
// stay: a page of its worker that comes late must be answered as done, or it could remove what is there again.
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
//   - The list of readers by which the trim point is raised may be a moment old. Nothing
//     goes that was appended after readers were asked for, so one that looks up the log's end
//     later, and begins there, misses nothing. Before each purge, with the trim point in the log,
//     readers are asked for anew, and nothing goes that one of them needs: so whoever is
//     registered by then keeps the log from where he begins, also at its beginning, where he
//     was set back to, or at an end that he looked up long ago.
//
// A reader that looks at the log before that question and is registered after it reads the
// trim point after its record was written, and begins anew if the trim point has passed it
// (package registry). Either the question sees the record, or the reader sees the trim point:
//
//	looks: the log begins at 1   trim point 9   asked: nobody reads   registered: from 1   sees 9
//
// A directory does not compare and set: of two processes that write snapshots of one
// partition there, a late one could name an older snapshot than what the log was trimmed by.
// So with a directory nothing is trimmed unless no other process can become the owner
// (Config.Alone). A stream compares, and a pointer never goes back (package snapshot).
//
// # Settings
//
// The catalog says what is wished, and a watch of it tells the owner. The watch may lag: a
// process that was cut off takes a partition before it hears what was declared meanwhile, and
// an older wish would drop a rule with its accumulators, which nobody fills again (I6):
//
//	catalog, revision 7: no rule     8: rule r     the watch here is still at 7
//	log                              8: rule r     7 is refused
//
// So the settings in the log carry the revision of the record by which they were decided, and
// the decider refuses a record with a lower one (store.Settings.Outdates). What is in force
// was asked for by a record of at most that revision; so whatever is dropped is dropped
// by a record that came after it, and revisions of a log only rise. Where there are rules or
// tombstones, a record that changes nothing is noted too. No clock and no fresh
// read is needed for it: a read may be answered by a leader that was cut off with the owner.
//
// An owner that is refused asks the leader for the newest record. If that is too old as well,
// or the log has no revision, revisions do not compare: an earlier release wrote the settings,
// the catalog's bucket was made anew, or the container comes from another store. (Or the leader
// was cut off.) Then the owner writes the record again as it is, by compare-and-set: only the
// newest can be written so, and only by a quorum. Nobody else puts anything in force meanwhile,
// so the log takes that record with whatever revision it has.
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
