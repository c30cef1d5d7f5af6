// Package queryplan chooses how the owner of a partition reaches the items of a query.
//
// There are five ways. Rules choose between them, not statistics:
//
//	nothing   no item can give a row
//	items     items in the order of their keys: some ids, some logical partitions,
//	          a range of hashes, or all
//	values    the items that have one of some values in an index, in the order of
//	          their keys
//	range     the items whose value in an index lies in given ranges, in the order of
//	          that value
//	order     all items in the order of an index, which is that of ORDER BY
//
// The query's condition is tested on every item in any case. So an access may read too many
// items, and must not miss one. The planner counts, through Counter and up to a small
// number, only if two accesses would both serve the query.
//
// ORDER BY puts items without the value first, and no index has them. So reading in the order
// of an index begins with a scan for such items, or ends with it if it descends, unless the
// condition requires the value.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package queryplan
