// Package cascade keeps copies of fields equal to their source: a category's name
// in every product, a tag's name in every element of every product's tags.
//
// A cascade has two processors. FanOut reads the feed of the source and brings
// each change of a copied field to the items that copy it. Checker reads the feed
// of the target and compares every created or replaced item with its source as
// it is now, which also fills a copy that its writer left out.
//
//	source feed ──▶ FanOut ── patch many, page by page ──▶ target partitions
//	                  ▲ reads a source only after a delete      │
//	                  │ and when it goes on from a checkpoint   │ commits
//	                  │                                         ▼
//	source items ◀────┴──────── read ─────── Checker ◀─── target feed
//	                                            │
//	                                            └── repair, if-match ──▶ target items
//
// # Why copies converge (I6)
//
// Everything below rests on three properties of the store. A change is in the
// feed of its partition, in order, at a position that is also the item's etag.
// Reads of a source, and pages, wait at a barrier, until every append in flight at
// their arrival is resolved and applied. So they see at least what was committed
// before they were asked, even where the feed showed a commit before its owner
// applied it. And the owner of a target partition keeps, for each
// producer and source item, the newest position that a page has carried, and
// answers an older one with "superseded", changing nothing.
//
// An insert against a rename. Let P be an item of the target committed at time p,
// and r the commit of a rename of its source. P is in the target's feed, so it is
// checked. If the check reads the source after r, it repairs P. If it reads before
// r, P was committed before r, because its check follows p; then the pages of r's
// fan-out, all of which are asked after r, find P. A page asked during the insert
// waits for the insert's append. A scan does not miss P by having passed its place
// already: that place was scanned with P in it, since P is older than the scan.
//
// A repair that comes late. A check that read the source before r may send its
// repair after r's fan-out has made P right. The repair is guarded by the etag of
// the P that was looked at; the fan-out's page gave P another, so the repair is
// refused. If the fan-out found P right already and left it alone, the repair does
// pass and makes P wrong; but it is itself a change of P, later than r. It comes
// back on the feed and is checked, by a read of the source that follows it and
// therefore r. So each wrong repair is followed by a check that reads later, and
// when renames stop, so does this.
//
// A refused repair. The change that refused it may be one that is not looked at,
// because it touched no field of the cascade. So the item is read, behind a barrier, and
// checked again with its source read anew, until it is right or repaired.
//
// Checks that are left out. A patch that touches no field named in match, where or
// set, or holding or lying in one, leaves what is right as it was (a client's is
// checked all the same with clear and delete; see below). A page of this cascade's
// own fan-out set one set of values in all its items: if the source, read after
// the page's commit, still has the digest that the page carries, all of them are
// right. If it has another and its position is behind the page's, some change in between, or the
// last, gave it that; the feed brings it to a fan-out, and that fan-out's pages follow the page
// in the partition, or the page had been superseded. They set what is right, so a check by item
// would only do their work before them, and a reader would see the new value, then the one that
// older pages still bring, then the new one again. (A check of what a client wrote amid a fan-out
// may still do that; it has to, since it may be the last to see the item.) Else each is checked.
// That is one read of one source for a batch of pages, and nothing for each item. It does not
// stand for what an aggregate in the same transaction made of the page, such as a total that it
// created: that has folds in its transaction, and is checked item by item. What a page of another pipeline
// names as its fields does not count for the same reason: its changes do.
//
// Renames against renames. A fan-out carries the position of the change whose
// values it sets. The feed gives a source's changes in order and a later one
// supersedes an earlier one in every target partition by itself, wherever each
// fan-out stands, whoever runs it. A newer change does not restart a scan: the
// owner goes on from the cursor with the newer values and, behind the end, comes
// round to where they took over. A write of the older values can only be before
// the first page of the newer ones in that partition, and so is scanned by them.
//
// Values come from the change itself, not from a read: the feed holds the whole
// item at that position. A newer change that is already committed will come, and
// its fan-out goes over everything once more. A source is read when a fan-out is
// restored from a checkpoint, which holds no values. If the item then has the
// digest of the checkpoint, the scan goes on under the position that its pages
// had; if it has other values, under the etag that was read, which is newer.
//
// Deleted sources. A source that is deleted, has expired, or is no longer one that
// where selects leaves a tombstone: its key, the position d and the time T of the
// change by which it went, and the copied fields as they were. The owner of the source
// makes it when it applies that change, takes it away when it applies the source's
// creation, and forgets it by the time of later commits; so it is a function of the
// source's log, and a read behind a barrier, in one view, answers with the source, with the
// tombstone of its last going, or with neither: it never was. Therefore what an item
// must be follows from the item and from one such answer alone, whoever asks and
// whenever; a verification asks the same, and so does a backfill:
//
//	the source is there      set      the copied fields are its own
//	a tombstone, keep        set      the copied fields are those of the tombstone
//	a tombstone, clear       clear    the copied fields, or the element, are not there
//	a tombstone, delete      delete   the item is not there if a client wrote it last
//	                                  at or before T; else it is left, and dangles
//	it never was             nothing  it may be an import in progress: it dangles
//
// With keep a tombstone is a source that does not change any more, and all that is said
// above holds of it: a check sets what it says, and a fan-out that goes on from a
// checkpoint takes its values from it. That a source goes then means nothing.
//
// With clear or delete, the fan-out of the change at d first commits a fence, which
// records d and touches no item, in every target partition in scope; the answer is the
// LSN b of that commit. Then it reads the source.
// If it is there again, or went again, its version is newer than d and is taken up as
// every newer change is. If not, the pages touch only items that a client wrote at or
// before b, and with delete at or before T.
//
// A delete against an old copy. Let a client write an item P that names the source, at
// p, however old the copy that it writes. If p is at or before b, the pages find P:
// all of them are asked after b. If p is after b, P's check reads the source after d
// and finds the tombstone, or a later state; it clears P, or deletes it if P's time
// says so. For this a check may not be left out where a client wrote P, even if that
// write touched nothing of the cascade: it has moved P out of the pages' reach. A
// pipeline's write does not move it (docs/decisions, 2026-11-21, who wrote last).
//
// A delete against a source that is made again, at c. The pages of d leave alone what
// clients write after b. Items from before b may be cleared after c, but only before
// the first page of c's fan-out in their partition, because c supersedes d; and that
// fan-out, asked after c, sets what is there. A check that read the tombstone before c
// may send its repair after c. It is guarded by the etag of the P that was looked at. If
// P has changed since, the repair is refused and P is read and checked again. If c's
// fan-out found P right and left it alone, the repair clears P, which is a change of P,
// later than c, and is checked by a read that follows it and therefore c. So a source
// that is made again wins. An element or item that was removed is not made again: its
// removal was decided on when its source was gone, of a state of it that was written
// before, and it is the operator's wish that it goes. What a client writes after c is
// never removed because of d: its etag is another, and it lies after b.
//
// An item that names the source while its time has passed and it has not expired in the
// log yet. The read answers with the values that it still has, as those of an item that
// will expire. Keep sets them; they are those of the tombstone to come. Clear and delete
// do nothing: the fan-out of the expiry, whose b is later, will find the item.
//
// Between the time of a source's owner and that of a target's owner their clocks decide
// whether an item was written before T. Within one process, or where clocks agree, that
// is the order in which a client saw its writes acknowledged. b keeps a clock that is
// behind from removing what was written after the delete was fanned out.
//
// While no tombstones are in force (they are asked for when a pipeline is registered,
// and brought from the log for what went before), a missing source is not an
// answer: checks and fan-outs that meet one wait. A tombstone that is too old is
// forgotten, and what names its source dangles from then on. The fence's commit keeps
// its LSN when it is asked for again, so a crash in the middle does not move b past
// items written since.
//
// A generation that begins with the items of its target. The fan-outs of all that a
// source's log ever held would set every copy, and cost what once happened; so where that
// log is long, or its beginning trimmed, a generation walks. The ends H of the source's logs
// are noted, then the ends G of the target's. FanOut begins behind H, Checker behind G, and
// beside that it goes once through the items of each target partition, in the order of
// their keys, in pages that wait at a barrier, and checks each. Nothing else is new: what
// the walk does is a check like any other, guarded by the etag of the item it looked at.
//
//	H          G           the walk comes to P          P's newest version
//	rename r ──┼───────────▶ reads its source           before G: the walk finds it
//	           │   insert P ──▶ checked by the feed     behind G: the feed brings it
//
// Let p be the commit of an item's newest version and r that of its source's. If p is behind
// G, the feed brings it to Check, and what is said above of an insert holds. If not, p was
// there before the walk began, in the place of its key, and no page passes that place
// without it, or without what took its place, which is behind G. So in each case a check
// of it reads the source, after H was noted. If it reads r or later, it makes the copy right,
// or is refused because the item has changed, and reads that anew. If it reads before r, r was
// committed after that, is behind H, and has a fan-out whose pages are asked after r and so
// after p; they find the item. A page of the walk that a crash repeats is the same check again,
// later. Fan-outs that the generation before had open are of changes before H, or are seen
// again behind it; a page that a late worker of it sends is a change of the target, and is
// checked, because its producer is another.
//
// A source that went before H has no fan-out in this generation. A check that reads its
// tombstone does what the table says: it sets, clears, or deletes what a client wrote
// last at or before T; no fence is needed for that, since a check never rests on b. A
// source that went so long ago that it has no tombstone counts as one that never
// was: items that name it dangle.
//
// Moves. An item that moves to another partition key is a delete and a create; the
// create is checked. A source that moves is a source that goes and another that
// comes.
//
// Refusals whose answer is lost. A page goes on behind an item that cannot take its copy, and
// the answer alone names that item: asked again, the owner goes on from its cursor. So what is
// not right must be found without the answer, where it may be lost. A fan-out of version v is in
// doubt in a target partition if a page of this term was not answered there, or its dead letters
// could not be written; or if v is at or before the end that the source's log had when the
// partition first answered this term. That answer followed a commit that records the term's epoch,
// so pages of earlier leases are refused from then on, and what had come before was of versions
// that were in the log; an earlier term of the same lease has ended, and read no further either.
// So a version behind that end is this term's alone, and all answers are known. One at or before it
// is too, if the first page of it that the partition answered is in the commit which recorded the
// version: a page before would have been the first, and one behind it, of an earlier lease, is refused.
// The owner is asked for the LSN of that commit, which it keeps for fences, and commits nothing.
// Only where another term of the same lease ran before, whose epoch is the same, this proves nothing.
//
// Where there is doubt, the items in scope are read once the partition has said that v is done, and
// their copies of this source checked: as Checker does it, against the source as it is now, by
// repairs with if-match. Items that refused a page before that, whoever sent it, are still not
// right; a page that comes later finds v done and does nothing. An item that is not right takes its copy or
// refuses again, and then has a dead letter, whose id is the one that the page's had. A
// crash in between leaves the job open, or the change ahead of the checkpoint, and then v is in
// doubt for the next term too. An undisturbed fan-out reads nothing:
//
//	page      P takes its copy, Q refuses it, the cursor is behind Q     the answer is lost
//	again     nothing is left, done
//	examine   P is right; Q differs, its repair is refused               the dead letter of Q
//
// Crashes. The checkpoint's position passes a change only once its fan-out is in
// the same checkpoint. A fan-out that is not in it is found in the feed again;
// the owner's records answer for what was done: a finished partition says so, an
// unfinished one goes on from its cursor. A worker that lost its lease and does
// not know it writes with an old epoch. Where its successor has written, it is
// refused. Where it has not, the page can only carry a version that is superseded
// by what the successor will send, or is the same.
//
// What is given up. An item that cannot take its copy (413, also where only what aggregates make of the
// copy is too much for a commit; a unique key) goes to the dead letters and the fan-out goes on. It has one dead
// letter for each source, of the version that it refused last, however many it refuses: a retry reads what its
// sources are by then, and a generation that begins at that version brings the item what it lacks. A refusal
// that comes while a retry is under way stays, since the retry may have read the source before. A fan-out that
// cannot go on at all is parked, with a dead letter, and counts as lag until its source changes again. A
// verification lists both as drift.
//
// # What Check refuses
//
// A match that does not fix the source's partition key and id, with the equalities
// of the source's where, does not say which item a copy copies. A match on any
// other field of the source is refused too: an item would begin or cease to match
// without being changed itself, and no feed would tell. A set that writes what its
// own match or where reads could undo its own reason.
//
// A Cascade is safe for concurrent use. Its processors are made anew for each
// term of a lease.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package cascade
