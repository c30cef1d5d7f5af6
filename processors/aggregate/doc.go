// Package aggregate brings what changes of source items mean for counts, sums,
// averages, extremes and lists of the latest to the partitions that keep them.
//
// An aggregate has one processor, Folder, on each partition of the source. What a
// batch of changes means is a Delta, a share for each group; the share goes to the
// partition of the group's target, whose owner adds it to the group's accumulator
// and sets the fields of the target item in the same commit.
//
//	source feed ──▶ members ─▶ fold ──▶ Delta ──┬──▶ (after, upTo] ──▶ partition 0 of the target
//	                  │ what the owner has       ├──▶ (after, upTo] ──▶ partition 1
//	                  │ folded is left out       └──▶      …                │
//	                                                                       ▼ one commit
//	                                              accumulators, fields, and upTo for this producer
//
// # Why each change counts once (I5)
//
// Deltas are an abelian group. Each change adds the members of the item after it
// and takes away those of the item before it, both of which it carries; no state is
// read. So what a partition holds of a group is the sum over the changes that it
// has folded, in whatever order and however they are put together, and it is right
// when each change of every source partition is in that sum once. A member's
// removal may come before its addition, as it does when an item moves between
// partitions and the new one is read first: the sum does not care, and counts of the
// members of min, max and latest are signed.
//
// Intervals. A partition of the target keeps, for each producer, which is this
// aggregate on one partition of its source, the position up to which it has folded,
// in the same commit as what that changed. A request names the interval (after,
// upTo], and is applied only if after is that position. By induction over the
// commits of the target partition, the sum holds exactly the changes up to the
// position, as far as they mean something there: what lies in (after, upTo] and is
// not sent means nothing to the partition. A request that comes twice, late, or
// from a worker that does not know that its lease has passed on, is answered with
// the position and changes nothing; besides, its epoch is refused once the
// successor has asked.
//
// Redelivery. After a crash, or when a pipeline is set back, changes come again of
// which some partitions have folded some. Each is asked once in a term, before
// anything is sent, where it stands; one that is ahead gets what lies behind its
// position, folded anew from the batch. All must be asked, also those to which the
// batch as a whole means nothing: a member that came and went means nothing, and
// yet the partition may have folded the coming. An attempt without an answer leaves
// the position in doubt, and the processor asks the partition again.
//
// Parts. An interval ends at a change, wherever that stands: a batch is cut where
// the Delta grows too large, and halved for a partition that says that its commit
// would, and the Host may hand over parts of a batch to find a change that cannot
// be processed. Every cut is an interval of its own, and the argument is the same.
// A transaction may be seen in parts that way, by readers of eventual fields; its
// parts follow each other.
//
// Not every partition gets every interval. One is sent only where it means
// something, so the position of a partition to which nothing came can lie far
// behind the feed; the next interval begins there. Every RecordInterval the present position is recorded in those
// partitions too. The least recorded position goes into the checkpoint: a partition
// that is found behind it was restored from an older state, or emptied, and what is
// missing there would be missing for ever. That is a BehindError, and nothing is
// folded until the pipeline is set back. The partition that is read itself needs no
// such care: if it is restored older, its feed ends before the checkpoint, and the
// Host refuses to read it.
//
// # The switch between eventual and transactional
//
// With consistency transactional the owner of a partition folds the changes of its
// own items in the writer's commit, and says so in the transaction: a feed.Fold of
// the pipeline and generation. A change is the processor's to fold if its
// transaction has none. Both add to the same accumulators.
//
// Which of the two folds a transaction is decided by the settings that the owner
// decides by, and these change by a control commit in the partition's log. Whatever
// is decided before it is not folded by the owner, whatever is decided after it is,
// and each transaction tells for itself; the processor needs to know neither the
// control commit nor the mode. So in both directions, under load, no change is
// folded twice and none is left out: a transaction with a Fold is the owner's, the
// others are the processor's, in the one log in which both find it. What the owner
// has folded and means nothing has no Fold; the processor folds it again, to
// nothing.
//
// After the switch to transactional the accumulators lack what the processor has
// not read yet, up to the control commit; then they are exact in every commit. The
// processor goes on reading, and finds nothing to do.
//
// One kind of change in a partition is always the processor's: those that an owner
// makes because of what a processor has sent, such as a target that is created, or
// an expired item that gives way to it. Their transaction has a Fold, of what was
// sent, and names the aggregate as its producer, by which they are told apart. The
// owner leaves them to the processor in either mode.
//
// # What is given up
//
// A target item that cannot take its fields, because it would be too large, goes to
// the dead letters; its accumulator is right, and the fields are set when either
// changes again, or by a retry. So does one that cannot be made, because an item of another kind
// has its id: a retry refuses as long as that item is there, and then makes the target.
//
// The answer to a fold alone names such items, and a fold whose answer is lost is not done
// again. So a term notes for each partition up to which position it was told what its folds
// refused, or has found out. A member behind that, and not behind the position that the partition
// has recorded, was folded in an attempt whose answer this term has not got, or by an earlier
// one, which may have died with the answer in hand: the position in the checkpoint passes a change
// only behind its dead letters, so the change comes again. Before anything else is sent
// there, the targets of each such member's groups are read, and the accumulators with them. An owner
// keeps the two equal in every commit, so a target that differs is one that refused. It is
// repaired as a retry does it, which lets it refuse again, and its dead letter written; so is
// that of a target which is not there although its group has members, or whose id an item of
// another kind has. A rule that is not published sets no fields, and nothing can have refused them.
// A retry that folds a change looks at its targets likewise when an earlier one had folded it.
//
//	fold (10, 14]    c takes its fields, d refuses them       the answer is lost
//	again            14 is told, nothing folded
//	examine          c is right; d differs and refuses        the dead letter of d
//
// Between the checkpoint and a crash lies a second's work or less, and as much is looked at
// again. A pipeline that is set back looks at all targets of what comes again.
//
// A change whose shares a partition refuses as a whole is given up by the Host, and
// is then missing in the accumulators of that partition, also when its item changes
// again: later changes take away what was never added. They need not wait. Deltas
// add up in any order, so folding that one change at any later time makes the
// accumulators exact again. But one must know which partitions lack it: if a change
// means something to several, some may have taken it.
//
// So before a partition is told anything behind a change that was given up, while
// its position still says that it has not taken it, the change is recorded there as
// owed: it gets a producer of its own, with a position that says so. From then on the
// change is folded in that partition by a retry alone, which is an interval of that
// producer, and is applied once like any other; when the change comes again by the
// feed, it is left out there, also after the retry. That producer is a part of the
// one that reads, and is fenced with it: a late worker can neither record nor retry. A
// crash before it is recorded leaves the change in the feed, or parked in the
// checkpoint, with the position still before it. A partition that has taken it, before
// or after the dead letter was written, does not owe it, and the retry changes nothing.
// A change whose dead letter an operator drops stays owed, and verification lists it.
//
// A repair adds to a group what is missing in it, whatever the reason. Before it looks
// it lets the workers try all that is owed once more, or, where that fails, let it go,
// which is an interval of the same producer that means nothing. And it adds to a group only
// while the partition says of what was given up the same as when it looked. So a share
// is the feed's, the retry's or the repair's, and never two of them.
//
// An Aggregate is safe for concurrent use. Its processors are made anew for each
// term of a lease.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package aggregate
