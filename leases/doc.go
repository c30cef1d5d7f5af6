// Package leases gives each resource of a set to one process at a time, and moves it away
// from a process that died, hung or has more than its share.
//
// # Model
//
// All processes of a group, such as all stores or all workers, are given the same set of
// resources ([Manager.SetResources]). Each resource has a record in a JetStream key-value
// bucket: its owner, its epoch, and the checkpoint of the work under it. Owner and epoch
// change only by a write that is conditional on the record's last revision. FORMAT.md
// describes the records.
//
// A resource, as the group sees it:
//
//	             take: epoch + 1
//	 ┌──────┐ ───────────────────▶ ┌──────┐ ──┐ renew, save: same owner,
//	 │ free │                      │ held │   │ same epoch, new revision
//	 └──────┘ ◀─────────────────── └──────┘ ◀─┘
//	or absent      release          │    ▲
//	                     revision   │    │ take: epoch + 1, another owner
//	                     unchanged  ▼    │
//	                     for TTL   ┌─────────┐
//	                               │ expired │
//	                               └─────────┘
//
// The next incarnation of a node takes what is held by its earlier one without
// waiting, if it has the lock of the node's directory.
//
// A lease that this process holds, a [Held]:
//
//	  taken
//	    │
//	    ▼
//	┌───────┐  drain, move, withdrawal   ┌────────┐
//	│ works │ ─────────────────────────▶ │ ending │  Context has ended; the lease is
//	└───────┘                            └────────┘  renewed, Save works, Valid is true
//	 │     │ not renewed in time,         │     │ the same, or
//	 │     │ taken, stalled               │     │ DrainTimeout has passed
//	 │     ▼                              │     ▼
//	 │   ┌──────────────────────────────────────────┐
//	 │   │ over                                     │  Context and Trust have ended,
//	 │   └──────────────────────────────────────────┘  Valid is false
//	 │     │                              │
//	 ▼     ▼  the work returns            ▼
//	┌───────────────────────────────────────────────┐
//	│ released, unless the record is another's      │
//	└───────────────────────────────────────────────┘
//
// Every process also keeps a record of itself, so that a process which holds nothing is seen
// and gets its share. [Balance], a pure function of what all processes see, decides which
// process takes which lease.
//
// # What it promises
//
// At most one process of a group that is not fenced, and behind [Held.Settle], finds [Held.Valid] true for a resource, as long as the bucket keeps what
// it acknowledged and clocks run at rates that differ by less than a seventh. A holder trusts its lease
// until TTL less a margin of a seventh has passed since it began its last
// successful renewal; an observer takes it no earlier than TTL after it saw that
// renewal, each on its own clock, which counts the time that the machine was
// suspended (on Linux; elsewhere it may not). Wall clocks are not compared.
//
// When a process runs again that was stopped, starved or suspended, Valid is false and its
// leases are in doubt: it may have lost them or not. A renewal decides that. The renewal is
// conditional on the revision that the holder wrote last. Taking a lease writes its record,
// so a renewal that succeeds proves that nobody has taken it; and others count their TTL
// from this renewal on, as from any other. So Valid may become true again, counted from the
// beginning of that try, by the same argument as for a renewal in time, however late it
// comes. While the doubt lasts, nothing is answered that relies on the lease, and nothing
// is given up: a process that is alone continues with its leases in the same epoch. The
// doubt lasts for at most RenewInterval after the process runs again. A holder that ran all
// the time and could not reach the bucket gets no such time: it may be cut off, and others
// may be taking its leases.
//
// Valid is true when it is read, and may be false a moment later. A write that two holders
// must not both make carries the epoch, and its target refuses an older epoch. The lease
// makes the overlap short; the fence closes it.
//
// With the defaults, and where the group neither is fenced nor deposes, others have a dead holder's leases within ten seconds: seven to expire,
// two readings of the clock, and a second until it shows that the member which should take
// one does not; half a TTL where that member is warm for it ([Manager.SetWarm]), since it has
// the work going much sooner. A graceful stop hands over as soon as the work returns. A process that holds
// its node directory's lock ([LockDir], Config.NodeLocked) takes the leases of the node's
// earlier incarnations without waiting. Nobody takes a lease from a living holder that reaches the bucket; a holder
// with too many gives them up.
//
// Epochs are kept in the records. If a resource's record is deleted, its epochs continue from
// the greatest that a living member saw. If the whole bucket is lost, epochs begin at 1
// again, and fences refuse them; work that meets such a fence returns an
// [EpochBehindError], and the next holding has a greater epoch than the fence.
//
// That never raises a holder that was succeeded above its successor. The fence's epoch is written
// with the release, which is conditional on the revision that the holder wrote last, as a renewal is:
//
//	the record is the holder's    nobody has taken the lease since, and a fence has a greater epoch
//	                              than the record: the record that had it was lost
//	the record is another's       nothing is written, and the lease counts as lost
//
// The holding that met the fence ends either way. It keeps its epoch, under which nothing that it
// still sends is taken; the greater one is a new holding's, of whichever process takes the lease.
//
// # Who used a lease
//
// Work may hold a lease and find that it can do nothing with it, for what it needs is with the node that held the lease
// before. So each record says which node used it last, and from which epoch on nobody else has ([Held.User]). Taking a
// lease leaves that as it is. Work that goes on says so before, which costs one write where another node used the lease
// last:
//
//	a uses it         a, since 1
//	a dies, b takes   a, since 1    b may wait for a, die, or take it once more after a lost reply
//	Use               b, since 2    written before b goes on
//	LeaveUnused       a, since 1    what b was about to do was certainly not done
//
// The node is not known where records were lost. Of a record of an earlier release, which does not tell it, the last
// holder counts.
//
// Where only that node can do something with the lease, the work binds it ([Held.Bind]). When b gives it up it goes to
// a, and a keeps it, however much a has: from any other it would come back, and nobody is served meanwhile.
//
// # Who is gone
//
// Where the work of a group is fenced ([Config.Fenced]), leases of a process that has died are taken before they expire. Each
// process answers on a subject of its own, as long as it has a connection to NATS, and each asks twice a second, and a tenth of a
// second after nobody was there, whether the two members are there that follow it in the order of the nodes. Where both that ask for one have died with it, its leases expire:
//
//	it answers                       it is there
//	no answer, in time               nothing is known: it may be slow, or stopped
//	no responders, three in a row,   it seems to be gone: the member writes so into its record, and it counts as
//	where it has answered before     gone if that still stands there after three quarters of a second
//
// What decides is that record, which all see alike. The write is conditional on its revision, so a beat in between refuses
// it; and who is wronged, as where a route between two servers is cut, takes it back with a beat that it sends at once. One
// that can reach the bucket so loses nothing. From one that cannot others take leases, in greater epochs, and it works beside
// them until its renewal is refused: that does no harm, which is what Fenced says. Trust, and Valid of two holders, may
// overlap in such a group. Who cannot reach the bucket, or has come back to it or to NATS a moment ago, judges nobody.
//
// # Who is deposed
//
// Where the members of a group hold rights ([Config.Deposes], package right), a lease whose holder is gone is taken long
// before it expires, and no answer of the former holder is given beside one of the new. Each process renews one key of its
// own several times a second, and its right holds for less than half a second from the sending of a renewal:
//
//	lease   TTL less a margin    a write may be tried: Lasts         many, each renewed every two seconds
//	right   428 ms               an answer may be given: Valid       one for all of them
//
// A member deposes another, by a write to that one's key, when nobody has a connection under its name, or when its key has
// stood still for one and a half seconds, in which this member saw all the time. From then on the other's leases count as free:
//
//	depose, in the bucket ─▶ take: epoch + 1 ─▶ the work fences off the former holder ─▶ Settle: the right has run out ─▶ serve
//
// Who takes such a lease says so in its record until Settle has returned (waits), so whoever comes next waits too, also where
// that one drains or dies in its wait and the lease seems to be free, or comes back by itself. A lease that was released, or has
// expired, is not waited for: its holder has ended, or its trust has.
//
// Who finds itself deposed has lost all its leases. It makes a right anew and goes on as before, in the same process. While it
// has none it takes nothing. Who cannot reach the bucket sees nobody stand still, and deposes nobody; what it has can be
// written, and each write that was acknowledged is a proof that nobody has taken its lease, so it can be read for another
// moment too (Extend).
//
// Members of an earlier release hold no rights. Their leases are waited for, as ever.
//
// # Moving warm, and draining
//
// Where members keep copies of the state behind a resource ([Manager.SetCopied]), whoever has none would make one first
// when it takes the lease, and nobody is served meanwhile. So such a lease is given up only to a member that is warm for it.
// The plan still says who lacks a lease, and that member makes a copy ([Group.Next]):
//
//	a has 4, b none            [Group.Next]: two of them to b, which begins to follow
//	b is warm for them         a gives them up, b takes them
//	a dies before              they are free: whoever is warm takes them, else anybody
//	b has no room              after a minute in which b is neither warm nor about to be, c makes copies
//
// A node that is to drain ([Drain]) reads so from the bucket, in each group, and says so in its record. Others count them as such
// that take only what nobody else does. It gives up what others would take by the same plan, a few leases at a time, and goes on with the rest. A
// lease that is free and that nobody else takes, it takes: a wish to drain stops nothing. Bound leases stay.
//
// # When things go wrong
//
//   - A reply is lost: the write is sent again with the same expected revision. If that is
//     refused, the record is read; owner, epoch and write number tell whether an earlier
//     try was stored. Trust counts from the beginning of the try that was.
//   - The bucket cannot be reached: holders stop trusting their leases by their own clock.
//     When the bucket is back, each node first gets the leases that it had.
//   - The watch lags: a write that is based on an old view is refused by its revision. The
//     watch is silent: the process does not see its own record change, and opens a new
//     watch.
//   - A replica lags: what is stored is asked of the leader.
//   - The bucket goes back to an earlier state: leases are lost that were written in the lost
//     part, and taken anew after a lifetime, see below.
//   - An observer starts late: it counts TTL from when it first saw a record.
//   - This process is late: its leases are in doubt until a renewal decides.
//   - Work fails: its lease is released with the error, this process declines the resource
//     for a while, and another takes it.
//   - Work hangs: after StallTimeout without [Held.Progress] its lease is not renewed any
//     more.
//   - A node announces itself twice (a copied directory, two managers of one group in a
//     process): the earlier Manager stops with [ErrSuperseded].
//   - A member does not take the free leases that it should take: others take them, and it
//     gets none for a while.
//
// # When the bucket goes back
//
// A stream that is restored from an earlier state, or that loses its last acknowledged writes
// with the machines that had them in memory only, may show a lease free that is held:
//
//	revision  1 ... 980             ... 990              ... 998
//	             a lease is freed       P takes it           P renews it
//	then      1 ... 980 ... 985        the bucket went back: the lease is free
//
// P's next write is refused, since the revision that it is conditional on is not there. The leader
// says a lower one, twice, and P's lease counts as lost, even where the record is still P's: another
// may have taken it in the lost part. Where P cannot reach the bucket, P's trust ends a
// lifetime less a margin after 998, by P's clock.
//
// Any process notices when its own beat is stored with a lower revision than before, or when a
// new watch shows less than it knows and the leader confirms that. It then makes its watch anew,
// because a watch stays silent below the last revision that it delivered; forgets its view, but
// keeps the greatest epochs, so that epochs grow; and takes nothing for a lifetime. All of the
// lost part was written before it noticed, so when it takes a lease again the trust in every
// renewal of that part has ended. Before it notices it can only take a lease by a write that is
// conditional on the revision that it knows. If it knows one of the lost part, that write is refused.
// So of the processes that saw the lost writes, at most one finds Valid true.
//
// A process that did not see them, because it started afterwards or was cut off, cannot know. It
// may take a lease that is shown free while its holder trusts it, for up to a lifetime less the
// margin after the holder's last renewal, and in the holder's epoch. Nor can a holder that was
// stopped all the while tell its own write from a later one that happens to have the same
// revision. There only the target's own condition tells the writers apart, such as the position
// in a log behind which each of them appends.
//
// Rights narrow it. A holder that was cut off from the bucket for less than its lease lasts, and was deposed and succeeded in
// the lost part, finds its key and its lease as it wrote them last, renews both, and answers, without what its successor
// has acknowledged, until it appends or the successor, which finds the bucket gone back, has its own write refused. So the
// bucket must keep what it acknowledged, as with more than one replica or sync always.
//
// All exported functions and methods are safe for concurrent use.
//
// This package is no API for other programs.
package leases
