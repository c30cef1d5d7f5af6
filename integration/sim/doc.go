// Package sim runs the real roles of a store in a simulated world. It has tests only.
//
// One seed is one run: processes with the real owner.Server, leases.Manager, engine, snapshots and
// trimming, and clients with the real store.Client, in one bubble of testing/synctest. What is
// simulated is the world between them:
//
//	process node0            process node1           clients
//	owner, leases, engine    owner, leases, engine   store.Client
//	nats.go                  nats.go                 nats.go
//	   │                        │                       │      bytes of the NATS protocol
//	───┴────────────────────────┴───────────────────────┴───   network: each message takes a while,
//	                 server: streams, buckets,                 or is lost, or comes late; links fall
//	                 consumers, in memory                      silent, connections break, nodes die
//
// So no code of the product stands aside, and no seam had to be made. One rule of the house is
// tested on the way: who holds a lock asks nobody, because in a bubble the clock stands
// still while somebody waits for a lock. What differs from production is the NATS server,
// the clock, and the disk, which is one in memory.
//
// TestPipelines adds the role of a worker to each process: registry, supervisor, host, hub, and
// the processors of a cascade and of an aggregate, which are declared while everything runs, so
// that their generations begin with walks over logs that are trimmed already. In half of the
// seeds nobody works on pipelines for a while, so that they read far behind what is trimmed.
//
// In half of the seeds without pipelines partitions have standbys: the other node follows each, answers reads in sessions and eventual ones, and
// opens it from its copy when its turn comes, and owners have digests compared every other second (standbys_test.go). In those of
// TestStandbys a copy grows old, because its node does not reach JetStream, while the owner dies.
//
// # What happens
//
// A plan, drawn from the seed, says how many operations clients make and what befalls the
// nodes: they are killed as by kill -9 (the engine's files stay as they are at that moment, or are
// lost), stopped in order, cut off, held silent past the end of their leases; connections of
// clients break. In half of the plans partitions are split meanwhile, and those that come of it, too; who takes a step of a
// split may be killed, silenced or cut off from JetStream at that moment (ambush_test.go). A message that
// a process sent before it died arrives or does not, at once or after the next owner has
// replayed: that is the torn tail. Snapshots and trims are so frequent that most of the log
// is gone at the end.
//
// # What is judged
//
// The simulated server keeps every message that a log ever held, also those that were
// trimmed. The judge reads them by itself, without the engine:
//
//   - Commits follow each other: sequence, checksum of the one before, epoch, time, trim
//     point (I1, I4). Each change replaces what the change before left.
//   - What was acknowledged is in the log, once, at the etag that was told (I2). What was
//     refused is not in it.
//   - What was read, and each refusal (404, 409, 412), is true of a state of the item not
//     older than what any client knew when the call began, unless it was to be read from a standby.
//   - What is read in a session is not older than what that session has learned, whoever answers; no standby's digest
//     differs from the owner's, and what owners tell is the digest of a replay from the very first commit (I3).
//   - A log begins no later than its last commit allows, and no purge takes what a pipeline that
//     was registered has not read (holds_test.go).
//   - Nothing stands behind a split commit. The logs of the children begin at the LSN that it
//     says, with one first commit each, and hold what lies in their ranges: an item's changes, a
//     key's retries and what clients know go on from the parent's log in those (splits_test.go).
//   - Replay from the very first commit, and the newest snapshot with the tail behind it,
//     give engines with equal digests (I3). The first commit of a child is that of its root's log,
//     of which is taken what lies in its range.
//   - When nothing moves any more, the copies of a cascade and the sums of an aggregate are
//     what a recomputation from the items gives (I6).
//   - A minute after the last fault every item can be read, no split is half done, and the catalog names what the
//     logs say.
//
// # How far a seed repeats itself
//
// All delays and faults are drawn from generators of the seed, one for each way of each
// connection, and events of the network happen one after the other, each after everything
// else has come to rest. So a seed means one plan. It does not mean one execution: the
// product draws jitter and names from Go's own generators, select takes any of its ready cases,
// and what is woken at one moment runs in the scheduler's order. A failing seed is run again
// some times, and made smaller, before it is reported.
//
// # What a seed costs
//
// A tenth of a second of CPU, half a second with pipelines, five times that with the race detector;
// a sixth of it is the zeroing of memtables, at each start of an engine. Many seeds are run in
// parts, each in a process of its own (parts_test.go). With the race detector fewer are run by
// default; `make test` runs the mass of them, and the tests that the simulation can fail, without it.
//
// # What it does not do
//
// Processes are not stopped while their clocks go on; a link that is silent comes near to it,
// because nobody but the process itself can tell. The disk does not lose what was not
// synced; tests of the engine do that. Projections and rewinds are not in it.
package sim
