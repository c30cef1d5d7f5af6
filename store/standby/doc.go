// Package standby keeps copies of partitions that other stores own, so that a partition whose owner
// is gone opens from a copy that lacks a few commits, and nothing is loaded.
//
// # Model
//
// Each store sees which others live and who owns what, and computes for itself which partitions it
// follows ([Choose]). For each of them there is a follower:
//
//	chosen ─▶ load ─▶ replay ─▶ follow: applies what comes ─────────────┐
//	            ▲                 │ the log was trimmed beyond it,       │
//	            └─────────────────┘ the engine is damaged, an error      │
//	                                                                     ▼
//	                      not chosen any more: the copy is freed     yield: this process has the
//	                      later, see below                           lease, and opens the copy as it is
//
// Loading is the owner's own (owner.Server.Follow): the newest snapshot whose log and checksum fit, or
// what the engine already has. So is applying (owner.Replayer). The commits come from the process's
// feed.Hub. A copy is a partition of the engine like any other.
//
// A copy is warm while it follows and is not far behind: it had all that the log had ten seconds ago (lag). The group is
// told which are, and gives free leases to those who have them.
//
// Nothing rests on a copy being there, complete or recent. A standby has no lease, so two for a while do no
// harm; it is no reader of whom a trim waits, and loads anew where it is too late. Where the log is lost, a copy is not
// taken for all that was acknowledged (owner.Server, holdsAll).
//
// # What it costs its host
//
// Commits that come one behind the other are left at the server for a moment (gatherPause), sent in one go
// (feed.Reader.Rests) and written to the engine at once (owner.Replayer.Apply); one that comes behind a rest is sent and
// applied as it comes. Sent one by one, each would wake the server's consumer, the connection and this process, beside the
// writes of which it is the copy. Nobody waits for a copy to get further: a
// reader whose LSN it lacks is refused, and who takes over replays the few commits that were not applied yet.
//
// The partitions that the store owns come first. Few copies are made ready at a time. One is loaded only where the disk
// has room for it beyond what the store's own need, and followed only while there is more than that; so copies end before
// writes are refused. The engine takes in what was loaded while it stands still, for all of its partitions: Badger takes
// no tables while it is open, and commits in their place cost four times as much. A second engine for copies would not
// stop the first, but an owner could not open them as they are. So it happens once for each load, and a turn rests after
// one (loadRest).
//
// # Reads
//
// A copy that has reached the log's end once answers reads, as what it is: of a moment ago (owner.Replayer.Serve). Who asks
// may ask for an LSN that it must hold. It answers from a snapshot of the engine that has all of the commit whose LSN it
// tells, or of a later one, like an owner; settled reads, and all that writes, are the owner's. Its right to answer ends before the
// follower does, so before an owner of this process writes to the engine beside it:
//
//	yield ─▶ the right ends ─▶ follower ended ─▶ open: takeover commit, writes
//	            who is being answered looks at the right behind his snapshot, and is refused
//
// # Freeing
//
// A copy that was begun is named in a file (FORMAT.md) before anything of it is on the disk. What the file names is
// freed when this node is not to follow it any more, and all who are say that they are warm: until then it is followed,
// because there would be no copy while theirs load, and followed again after a full disk or a restart. It is freed also
// when its follower ended long before: for want of room, or with an earlier process. Freed it is only where the log, with
// the snapshots, makes it anew (owner.Server.Unfollow), few at a time, and never under an owner:
//
//	lease taken ─▶ yield ─▶ open          freeing: ask the log ─▶ no lease here? ─▶ drop
//	                 └─ ends the freeing, and waits for it to end
//
// So a freeing that began before the lease was taken ends before the owner opens, which finds all of the copy or
// nothing. What an owner has opened is not named any more: it stays with a node that may own the partition again, as where there
// are no standbys.
//
// # Why the invariants hold
//
//   - I1: a follower appends nothing. Before an owner opens a partition it makes the follower yield, and none
//     begins until that owner has ended. So an owner's engine never applies a takeover commit behind its
//     own: it would then name the right sequence for its next append, and go on writing beside who
//     took over. What a copy holds when it is opened may be of an owner with a later lease than this
//     process's, which then gives up (owner.SupersededError): the copy's state tells its epoch.
//   - I2: only commits that the log has delivered are applied, each whole and in order. So a copy holds
//     nothing that is not known to be in the log, and an LSN means the same here as at the owner: a session that
//     has seen an LSN finds here all that it saw, if the copy holds that. What
//     an engine had before was applied by an owner, behind an acknowledged append. A batch that a yield
//     interrupts is finished first, and one that a crash interrupts is applied again from the last sync.
//   - I3: the owner's code applies, and reads no clock and no setting that is not in the log. Whether a copy
//     can be continued is decided as for an owner: by log id, LSN and checksum.
//   - I4: nothing of the feed changes; a follower is one of its readers.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package standby
