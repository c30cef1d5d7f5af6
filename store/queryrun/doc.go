// Package queryrun answers a page of a query from one snapshot of a partition.
//
//	request ─▶ parse ─▶ queryplan.Choose ─▶ candidates in order ─▶ query.Run ─▶ rows
//	                          │                    │
//	                     Source.Indexes      Source.Snapshot
//
// queryplan says how items are reached, this package reaches them, and store/query
// tests the condition and makes the rows. Between them stands the rank: a key of bytes
// that an item has in the order in which the access shows items. A page ends behind a
// rank, the next one begins there, and the pages of several partitions are merged by it.
//
// # What it promises
//
//   - A page reads at most as long as Limits allow. It looks at the clock, and at
//     whether anybody still waits for it, every 256 items or entries, or 1 MiB.
//   - Whatever the access is, the condition is tested on every item: an access may
//     show too many items, never too few.
//   - It decides nothing and changes nothing. Pages may run beside each other, and
//     beside the commits of the partition.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package queryrun
