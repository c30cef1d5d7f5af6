// Package right gives a node its read right: for how long it may answer from what it has, without asking anybody, and be
// sure that no successor has acknowledged anything yet.
//
// Writes need none of this, because the log refuses a late writer. Reads are answered by what a node remembers, so they rest
// on time. One right is enough for all that a node has, and costs one small write for the node and interval, however much
// that is.
//
// # Model
//
// Each node of a group has a key in a JetStream key-value bucket (FORMAT.md). The node renews it every
// Config.RenewInterval. Others see it ([Sight]), and whoever suspects a node deposes it ([Sight.Depose]). Both are
// compare-and-set, so of a renewal and a deposing that expect the same revision one is stored. Whether a node is deposed is
// decided by the bucket, in one place and once.
//
// A key, as the group sees it:
//
//	                       renew: same incarnation, next write
//	                             ┌───┐
//	nothing, or an      Open     │   ▼         depose      ┌─────────┐
//	earlier        ──────────▶ ┌────────────┐ ──────────▶ │ deposed │ for this incarnation, for ever
//	incarnation                │     up     │             └─────────┘
//	                           └────────────┘                  ▲
//	                             │ Close                       │ depose
//	                             ▼                             │
//	                           ┌──────┐                        │
//	                           │ left │ ───────────────────────┘
//	                           └──────┘
//
// From each of these states the next incarnation of the node begins, with a key of its own (Open).
//
// The right of one incarnation, a [Right], in its process:
//
//	      a renewal is stored: Trust from its sending
//	             ┌───┐
//	   Open      │   ▼     Trust has passed      ┌──────────┐
//	─────────▶ ┌───────┐ ──────────────────────▶ │ has run  │ Holds is false. Reads wait, nothing is dropped:
//	           │ holds │                         │ out      │ perhaps the bucket was away for a moment, or
//	           └───────┘ ◀────────────────────── └──────────┘ the process
//	             │          a renewal is stored        │
//	             │                                     │
//	             ▼  the key shows another incarnation, ▼  or a deposing; End; Close
//	           ┌────────────────────────────────────────┐
//	           │ over: Deposed has ended, with a cause  │ The process drops what it had. It goes on as a new
//	           └────────────────────────────────────────┘ incarnation, with a Right of its own.
//
// A successor, which is another node's process:
//
//	suspects ─▶ Depose ─▶ nil: acknowledged ─▶ fences off what it takes ─▶ acknowledged ─▶ waits Sight.Wait ─▶ serves
//	                                           (the takeover commit)
//
// # What it promises
//
// When a successor has waited [Sight.Wait] on its own clock, from when it saw the deposing acknowledged, [Right.Holds] of the
// deposed incarnation is false, and stays false. It needs that the bucket keeps what it acknowledged, and that the
// successor's clock runs less than a sixth faster than the holder's. No reading of one clock is compared with one of the
// other, and no clock is set.
//
// Why. The holder reads its clock, then sends a try; if that try was stored, it trusts its right for Config.Trust from the
// reading. Every try is conditional on the revision before, so a try that is stored is stored before the deposing, and was
// sent before that. The successor begins to wait after the deposing:
//
//	holder      │◀─ reads its clock, sends        Trust: 428 ms          ▶│ Holds is false
//	bucket      │     ├─ stored   ├─ deposed                              │
//	successor   │     │           │    ├─ acknowledged     Wait: 500 ms   │             ▶│ serves
//
// So the holder's time begins first and is shorter by a seventh. What can go wrong with it:
//
//   - The reply is late: the time counts from the sending, not from the reply.
//   - The reply is lost, and a second try is sent and refused. The key is then read, perhaps where it is old, and shows
//     which try stands there. The right counts from the sending of that one. The refused one proves nothing.
//   - A try was refused because an earlier one of the same process was stored. That is no deposing.
//   - A try arrives when the node has long been deposed: its revision is not there any more, so nothing is stored.
//   - The holder is stopped, or its machine suspended: the clock counts that, and is read last.
//   - The bucket cannot be reached: the right runs out, and holds again with the next try that is stored.
//   - The bucket goes back to an earlier state, or the key is gone: the next try is refused, and the incarnation deposes
//     itself, because a deposing may have been lost.
//   - A second successor finds the node deposed: it waits all the same, from what it saw itself.
//   - A leader of the bucket that was succeeded answers a read: it tells what was. So nothing that ends a wait, or makes one
//     unnecessary, rests on a read, but for what cannot change any more. See deposer.
//
// An incarnation that has been deposed never holds a right again, in whatever order its replies come.
//
// # Parts
//
// What a node has may extend the right to itself ([Part]), such as a partition by an append to its log that was
// acknowledged: so partitions that are written go on while the bucket elects a leader. That ends by what fences the part
// off, and not by the deposing, so there a successor waits from when the fence was acknowledged, which was sent after the
// deposing was.
//
// # What it does not do
//
// It knows neither partitions nor logs, takes nothing over, and does not decide whom to suspect: [Sight.Still] is one
// ground of several. It keeps nobody from writing. It has nothing to say about a process that has no rival, such as one with a
// NATS server of its own: the lock of its directory is its right.
//
// A key is deleted when its node has been away for a day, or by hand. Times in it are for people.
//
// Keys lie in the bucket of the leases that rest on them. So a bucket that goes back to an earlier state, as one that is not
// synced may after a power failure, does not lose a deposing and keep the lease that was taken because of it.
//
// The argument, with the executions that each rule forbids, is docs/model/Takeover.tla.
//
// All exported functions and methods are safe for concurrent use.
//
// This package is no API for other programs.
package right
