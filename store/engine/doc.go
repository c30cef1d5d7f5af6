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
// the log had been applied. BuildIndex, DropIndex and RebuildExpiries write beside
// the commits, so they must be called again with the commit that asks for them.
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
// what the block held. So the error is counted where Badger makes it,
// and whoever has read asks Sound before anybody relies on what he read. A DB that is not
// sound stays so; Renew makes another in its place.
//
// One of those errors cannot be counted. It says that the length of a block's checksum, the
// last four bytes of the block, is more than the block has. So whoever reads looks at those
// bytes himself, when Badger has looked there:
//
//	who reads     looks at the ends of the blocks            when
//	get           that may have the key                      when a table shows nothing
//	scan          between where it began and where it is     when it ends, or goes elsewhere
//	merge         of all tables that it merges               before they are replaced
//
// That finds all that Badger passed over when it read. A block that a scan did not get is still in
// a table of its level when it looks, or a merge has taken the table away: then that merge has read the block, and
// compared it. Badger may have looked at fewer blocks than these, never at others.
//
// The index of a table is compared with its checksum when the DB is opened, before a merge
// replaces the table, and by Scrub. Where its page is dropped from memory and comes back from
// the disk changed, while the DB is open, a get may find nothing until then.
//
// # Gets
//
// A get looks at a memtable or a table only if that has a version above what was found until then (get.go); Badger's looks at all
// that may have the key. From the newest to the oldest that is nearly always the first in which the key stands. It is no more than
// nearly: whoever trusts in the order of levels would read an older value where
//
//   - a process is killed while an iterator has a memtable whose table is written: Badger finds the log that is left, and makes the
//     newest table of the first level of it, though later ones have been written. That log is emptied now, but not synced;
//   - Badger's own merges, in releases before, gave what they merged in the first level a greater number than tables that are newer.
//
// A caller with ascending keys that are far apart gets each of them: an iterator that seeks looks into all tables.
//
// # Writes
//
// Nothing is written through Badger's transactions: a commit goes into Badger's memtable and its log by the goroutine that commits
// (internal/memtable), and full memtables are flushed here (DB.flush). Badger reads what stands there as if it had written it, and
// so does an earlier release.
//
//	Batch.Commit ─▶ log of the memtable, by one call ─▶ its skiplist ─▶ full: waits ─▶ a table of the first level ─▶ the log goes
//
// What a commit has is seen from the moment at which the oracle ends its timestamp. Where the log cannot be written the DB is damaged
// before that moment, so nobody relies on a part of the commit that went before; it says that the disk was full, if it was. A flush that
// fails is tried again, for ever; writers wait when too many memtables wait, and a flush waits while the first level has too many
// tables. A DB that is damaged flushes nothing more: what it has is in its logs, for the one that is opened next.
//
// # Merges
//
// Badger merges nothing here (NumCompactors is 0): the engine does, one merge at a time (merger.go, internal/merge). It keeps
// Badger's levels, tables and manifest, so that an earlier release opens what this one leaves, and the other way round.
//
//	choose tables ─▶ read, write new ones ─▶ sync them, and ─▶ look at what ─▶ change the ─▶ replace them,
//	                                         their names       was read       manifest      remove the old
//
// Until the manifest is changed nothing has happened: what a merge that fails has made is removed, what it read stays, and it is
// tried again; a kill leaves files that the manifest does not name, which Badger removes when it is opened. A merge that cannot
// make a table, or cannot read one, therefore loses nothing. The log has an error each time. Where it lasts, the tables of the first
// level are not merged, and writers wait in the end as they do for a slow merge. After an error of the manifest itself it may name
// either tables, of which all are there: the DB is damaged then and opened anew.
//
// Of a key the newest version at or below the lowest timestamp that anybody reads at is kept, and all above it; a deletion
// goes where no level below may have the key. What is newer stands above what is older: the first level is merged from its oldest
// table on, and into no level that has one above it.
//
// Tables are read through mappings, and what Badger writes itself is written through them: tables of the logs that it finds when it
// is opened. Where the disk is full, or cannot read, under
// one of them, package mapguard keeps the process alive and counts it; Sound and Sync compare
// the count, so that the DB is damaged then like by a block that differs, or by a failed sync.
//
// A small DB to which nothing was written for some seconds merges its tables into one level, once: at rest it
// takes about what its keys take, and a memtable, whatever was overwritten before.
//
// The package reads no clock: what expires when is computed from the times that
// commits carry.
//
// # Loads
//
// A dump of more than a few MiB is not written through transactions but as tables of Badger,
// beside it, and handed over at once:
//
//	room for all ─▶ Clear ─▶ new prefix ─▶ build, write and sync tables ─▶ alone: close Badger, name
//	                                       (others read and write)           tables, manifest, open ─▶ State
//
// Four loads of a process make tables at once. The
// others wait for their turn; what was made is handed over by one after the other.
//
// A load asks for room on the disk before it empties the partition, if it is known how much it
// takes, and before each table; what it has not used yet is kept from other loads. Without room it
// ends with a *NoRoomError: what a full disk does not take of the commits of others damages the DB.
//
// A load is refused before Badger is closed: for tables with other keys than those of the
// partition, a disk without room, or levels that have no place. Closing may hang, where a flush or
// a merge does not end; then the DB is damaged, and can be renewed when it has ended.
//
// An interrupted load is harmless wherever it stops. Before the new manifest has its name the
// tables are files that Badger does not know: Open removes them, under either name, and a
// manifest that has no name yet. The manifest
// is replaced whole, after the tables, their names and its own bytes were synced, so that it
// names all tables or none, and none that the disk may lack. Behind it the tables are there and
// the State is not, like the entries of a load through transactions that stopped: the partition
// counts as never written and gets another prefix when it is opened, under which none of them is.
//
// What is loaded reads as if it had been written. A prefix is given out once, so no other table
// and no memtable has a key under it; it does not matter then at which level the tables are, nor
// which of the versions they have that are below all later commits. Nothing of other partitions
// changes: closing Badger writes what is in memory, nobody has a commit or a snapshot meanwhile,
// and what is in the files when it is opened is what was there.
//
// If a long read leaves no moment without commits and snapshots for some seconds, the load
// begins again through transactions.
//
// # Concurrency
//
// Everything may be used by many goroutines, except that a Batch and a Snapshot
// belong to one goroutine at a time. Commits of one partition are applied one
// after the other; those of different partitions overlap. Close waits for open
// snapshots and for what is being handed over. At the end of a large Load all others wait, 0.1 to 0.2 s.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package engine
