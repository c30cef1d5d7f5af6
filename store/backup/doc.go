// Package backup keeps copies of a whole store in a place of their own, and makes a store
// of them again. It is no API: it is for cmd/millrace.
//
// # Model
//
//	owner's snapshot ──parts──▶ ┌──────────── a Store ────────────┐
//	log behind it    ──commits─▶│ parts, segments of logs         │──Restore──▶ new logs
//	catalog, pipelines ────────▶│ backups/ID.json, written last   │
//	                            └─────────────────────────────────┘
//
// A backup has of each physical partition a base, which is the owner's newest snapshot or
// nothing where the log begins with its first commit, and the log behind it up to where it
// ended. Parts and segments are immutable and named by what they hold. So the next backup
// in the same place sends what is not there: the log since, and when that has grown past
// half of the base, a new base.
//
// # What it promises
//
//   - A backup is there when its manifest is. It is written last, whole or not at all, after
//     everything that it names. A crash leaves objects that nothing names; the next Create
//     finds and uses them.
//   - What is restored at LSN n is what every owner held at LSN n (I3). The base was read
//     back and digested before the owner named it; the segments are the log's own bytes, each
//     commit with its checksum and that of the one before; the state is made by the owner's
//     own apply. Without a base it begins with the commit that a log begins with (owner.Begins):
//     a log that was trimmed is copied behind a snapshot or not at all, Verify looks for that
//     commit, and apply takes no other one for the first. So any LSN between the base and the end
//     can be restored, and no other.
//   - Each partition is cut at a moment of its own: a backup is no one moment of a store, as
//     the store has none. Within a partition a transaction is whole or not there.
//   - What is damaged is found by Verify, and by Restore before it changes anything.
//
// It does not copy what a machine or a person keeps secret: keys of the gateway,
// credentials, certificates. Positions of pipelines and leases are left out too: they mean
// nothing for another log.
//
// # Concurrency
//
// A directory does not compare before it replaces: whoever writes to it holds its lock, one
// process at a time.
//
// In a bucket several may be at work. Creates do not disturb each other: what they write is
// immutable, and named by what it holds. A prune could delete what a create has seen there
// and does not send. So the mark has an epoch, which a prune raises, by compare-and-set,
// before it deletes anything; it names the backups that stay, and those that came until it
// looked once more. A backup counts only if its epoch is the mark's or if it is named. A create reads the epoch
// before it looks at what is there and once more behind its manifest: it finds the same, and
// no prune began since it looked; or its manifest is named, and all that it needs stays; or
// it begins again. No clocks are compared. A prune that ends before it has named what came has
// deleted nothing: until the next one, the mark says that it was choosing, and those of the
// epoch before count too for whoever lists.
//
// While a prune deletes, no create begins. A prune that was killed must not stop them for ever.
// So a prune changes the mark every few seconds, which shows that it is alive, and fails if
// another has changed it, also before the first deletion. A create or prune that has seen no change for two minutes goes on in
// its place. A prune that stands still between such a sign and a request for longer than that
// could still delete what was sent anew; a request itself ends after half a minute.
package backup
