// Package leases gives each of a set of resources to one process at a time, and
// takes it away from a process that died, hung or has more than its share.
//
// # Model
//
// The processes of a group, such as all that store or all that work, are told
// the same set of resources ([Manager.SetResources]). For each resource there is
// a record in a JetStream key-value bucket: its owner, its epoch and the
// checkpoint of whoever works on it. Owner and epoch change only by a write that
// is conditional on the record's last revision. FORMAT.md describes the records.
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
// Every process also keeps a record of itself, so that one which holds nothing
// is seen and given its share. Who takes what follows from [Balance], a pure
// function of what all can see.
//
// # What it promises
//
// At most one process finds [Held.Valid] true for a resource, as long as clocks
// run at rates that differ by less than a seventh. A holder trusts its lease
// until TTL less a margin of a seventh has passed since it began its last
// successful renewal; an observer takes it no earlier than TTL after it saw that
// renewal, each on its own clock, which counts the time that the machine was
// suspended (on Linux; elsewhere it may not). Wall clocks are not compared.
//
// A process that was stopped, starved or suspended finds Valid false when it runs
// again, and its leases in doubt: it may have lost them or not. A renewal decides
// that. It is conditional on the revision that the holder wrote last, so its success
// says that nobody has written the record since, and to take the lease is to write
// the record; others count their TTL from this renewal on, as from every other. So
// Valid may become true again, from the beginning of that try, by the same argument
// as for a renewal in time, however late it comes. While the doubt lasts, nothing is
// answered on the strength of the lease, and nothing is given up: a process that is
// alone, with nobody to take its leases, goes on with them in the same epoch. It
// lasts for RenewInterval at most from when the process runs again. A holder that
// ran all the time and could not reach the bucket gets no such time: that is what
// being cut off looks like, and others may be taking its leases.
//
// Valid is true when it is read and may be false a moment later. What must not
// be written by two names the epoch in what it writes, and the place that is
// written to refuses an older one: the lease narrows the overlap, the fence
// closes it.
//
// With the defaults a dead holder's leases are with others within ten seconds
// (seven to expire, two looks at the clock, and a second until it is noticed that
// the member which should take one does not). A graceful stop hands over as soon
// as the work returns. A process that holds its node directory's lock
// ([LockDir], Config.NodeLocked) takes the leases of the node's earlier
// incarnations without waiting. Leases are never taken from a holder that lives;
// one with too many gives them up.
//
// Epochs are kept in the records. A resource whose record is deleted goes on from
// the epoch that a living member saw. If the whole bucket is lost, epochs begin
// anew, and fences refuse them; work that learns so returns an
// [EpochBehindError], and the next holding stands above the fence.
//
// # When things go wrong
//
//   - A reply is lost: the write is sent again with the same expected revision;
//     if that is refused, the record is read, and owner, epoch and write number
//     tell whether an earlier try arrived. Trust counts from the beginning of the
//     try that did.
//   - The bucket cannot be reached: holders stop trusting on their own. When it
//     is back each node first gets what it had.
//   - The watch lags: what is done on an old view is refused by its revision. The
//     watch is silent: a process does not see its own record change, and makes
//     the watch anew.
//   - An observer starts late: it counts from when it saw a record first.
//   - This process is late: its leases are in doubt until a renewal tells.
//   - Work fails: its lease is released with the error, this process says that it
//     declines the resource for a while, and another takes it.
//   - Work hangs: after StallTimeout without [Held.Progress] its lease is not
//     renewed any more.
//   - A node announces itself twice (a copied directory, two managers of one group
//     in a process): the earlier Manager stops with [ErrSuperseded].
//   - A member lets free leases lie: others take them and it is given nothing for
//     a while.
//
// All exported functions and methods are safe for concurrent use.
//
// This package is no API for other programs.
package leases
