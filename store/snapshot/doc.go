// Package snapshot keeps copies of physical partitions as of one commit, so that an
// engine can be made without replaying a log from its beginning. It is no API: it is for
// store/owner.
//
// # Model
//
//	engine.Snapshot ──Write──▶ parts, manifest ──read back──▶ pointer ──Load──▶ engine.Partition
//	   at LSN n                     in a Store     same digest             then the log from n+1
//
// A snapshot is a list of parts, immutable objects of some MiB in a Store, and a
// manifest that names the parts and says what they are a copy of: the log, the LSN, its
// checksum, the settings, how many entries, their digest. A pointer for each partition names
// the newest two. FORMAT.md describes them byte by byte.
//
// # What it promises
//
// The pointer names a snapshot only after all of it was read back from the Store and its
// digest was that of the engine that it was taken from. So what the pointer names was
// whole once. What is damaged since is found when it is loaded, by the checksum of each
// part and the digest of all: the error is *DamagedError, nothing of it is in the engine,
// and whoever loads goes on with the older snapshot, or with the log alone.
//
// A crash at any moment leaves the pointer at what it named before or at the new one.
// Parts that no pointer names are removed by the next Write.
//
// # Pins
//
// A reader that needs the items of a snapshot for a while pins it: the pointer then names it
// besides the newest two, for a holder and until a time, and it stays however many are newer.
// Items reads it in the order of keys, part by part, by ordinals that are the same for every
// reader and at every reading. A pin that is not extended lapses: a reader that never comes
// back must not keep a snapshot for ever.
//
// Whether a snapshot is of the history that the log tells is for the caller to compare:
// the log's commit at its LSN must have its checksum.
//
// # Concurrency
//
// One process at a time writes the snapshots of a partition and their pointer: the one that
// holds its lease. In that process one goroutine at a time takes a snapshot of the partition.
// Others pin and release meanwhile; a lock lets one at a time read the pointer, change it and
// write it. Many goroutines may use a Store.
package snapshot
