// Package digest compares what the replicas of a partition hold: its owner's engine, and the copies of standbys.
//
// # Model
//
// State is a function of the log (I3), so a digest as of one LSN is the same wherever it is computed. Now and then the
// owner orders one, in the log, and tells its own, in the log too:
//
//	log        … 40    41 order    42 43 …    57 told: of 41, with these sums    58 …
//	owner              view at 41 ── computes ──▶ appends it
//	standby            view at 41 ── computes ────────▶ compares
//
// Whoever applies an order opens a view of the engine behind that commit, in front of the next one, and computes in the
// background, at a gentle pace ([Compute]). Who has both digests of one LSN compares them ([Replica]). Nothing of the
// state follows from either record but that the LSN moves on, and nobody keeps them: a log may be trimmed or moved
// between them, a snapshot taken, a partition split. An order whose digest is not told, because its owner is gone, was
// deposed or gave way, is forgotten with the next one. Only who follows a log as a standby compares. Others that apply
// it, such as the heirs of a split, which take their share of it, and a restore, pass the records over.
//
// # What is compared
//
// All entries of the engine, sorted into parts by what they are, so that it can be told what differs: items, what
// expires when, index entries, unique keys, and the owner's records by their kinds. For each part there are the number
// of its entries, and a hash of their keys and values in the order of the keys. What is left out, and why:
//
//   - The states of the engine, applied, synced, witnessed and reached: how far a node has synced is its own matter.
//     The applied state names the commit, whose LSN is compared and whose checksum a replica has compared when it
//     took the commit from the log. Its settings are encoded anew by whatever release applies a commit; what they
//     are made of is in the log, under its checksums.
//   - Entries of an index that is not ready. The owner builds it step by step before the commit that declares it ready,
//     and others when they apply that commit.
//   - Where a record ends in fields that are zero: an earlier release has written fewer of them. The owner
//     says what a record means, see [Records].
//
// An engine that a process has found applied further than it was synced holds some of what later commits made, until it is as
// far again. So it orders and computes nothing below that LSN.
//
// The meaning of a digest has a version ([Version]). Who reads one of another version compares nothing.
//
// # What it costs
//
// One reading of the partition on each side, in a small share of a processor, with a buffer for one entry. A view keeps
// what it sees from being freed on disk, and an engine that takes in tables waits until no view is open. So who computes stops
// resting when that has taken ten minutes, and gives way to a load ([ErrGaveWay]): then this digest is not told, or not
// compared.
//
// # What a difference tells
//
// One of the two replicas is wrong. Which one is told by making the standby's anew, from an older snapshot
// than the newest, where there is one, and the log: if that equals the owner's, the standby was wrong. If it
// differs again, what the log makes is not what the owner has.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package digest
