// Package queryplan chooses how the owner of a partition reaches the items of a query.
//
// There are five ways. Rules choose between them, not statistics:
//
//	nothing   no item can give a row
//	items     items in the order of their keys: some ids, some logical partitions,
//	          a range of hashes, or all
//	values    the items that have one of some values in an index, in the order of
//	          their keys
//	range     the items whose value in an index lies in some stretches of it, in the
//	          order of that value
//	order     all items in the order of an index, which is that of ORDER BY
//
// The query's condition is tested on every item in any case, so an access may show too
// many items and must not miss one. Only where two accesses would both do does the planner
// count, through Counter, and only up to a small number.
//
// ORDER BY puts items without the value first, and no index has them. So the order of an
// index begins with a scan for them, or ends with it if it descends, unless the condition
// demands the value.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package queryplan
