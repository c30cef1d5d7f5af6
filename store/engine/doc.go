// Package engine keeps the state of physical partitions on local disk: what you
// get by applying their logs. It is the only code that names Badger.
//
// # Model
//
// One DB per node holds all of its partitions; each has a short prefix of its own
// in the key space (KEYS.md). A Partition holds items in item order (hash of the
// partition key, then the key, then id), entries of indexes and unique keys, the
// times at which items expire, records that the owner keeps, and a State that says
// which commit of which log was applied last.
//
//	            Batch.Commit          SyncPartitions
//	commit n ───────────────▶ State ─────────────────▶ Synced
//	                            ▲                          │
//	                            └──────────────────────────┘
//	                   a partition opened after an unclean stop
//
// Writing does not wait for the disk. State is what was applied; Synced is what a
// power loss cannot take away. When a partition is opened, State is what Synced
// was, unless the DB was closed in order: whoever applies the log then goes on
// from State, and may meet keys that later commits left behind. So every write is
// of absolute values, and applying a commit again is harmless. Found tells how far
// the log had been applied. What no commit writes is to be done again with the
// commit that asks for it: BuildIndex, DropIndex, RebuildExpiries.
//
// # What it promises
//
// A Snapshot shows all of a commit or nothing of it, however large the commit is.
// After an unclean stop a commit beyond Synced may be there in parts; applying the
// log from State makes it whole, because every key that a lost commit touched is
// touched again, in the same order.
//
// State never says more than the disk holds. Sync covers all that Badger's own
// does not: it syncs only the log of the memtable that is being written and of the
// newest value log, while older memtables wait for their flush with logs that
// nobody synced.
//
// Blocks of tables are compared with their checksums when they are read. Badger does
// not pass the error on: a get finds nothing or an older version, a scan leaves out
// what the block held, a merge drops it. So the error is counted where Badger makes it,
// and whoever has read asks Sound before anybody relies on what he read. A DB that is not
// sound stays so; Renew makes another in its place. What stands behind a block, its
// checksum and that one's length, is some 20 bytes of 4 KiB: a bit that flips there may
// make Badger pass over the block without that error. Scrub finds it.
//
// Files are written and read through mappings. Where the disk is full, or cannot read, under
// one of them, package mapguard keeps the process alive and counts it; Sound and Sync compare
// the count, so that the DB is damaged then like by a block that differs, or by a failed sync.
//
// The package reads no clock: what expires when is computed from the times that
// commits carry.
//
// # Concurrency
//
// Everything may be used by many goroutines, except that a Batch and a Snapshot
// belong to one goroutine at a time. Commits of one partition are applied one
// after the other; those of different partitions overlap. Close waits for open
// snapshots.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package engine
