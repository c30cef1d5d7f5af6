// Package queryplan chooses how the owner of a partition reaches the items of a query.
//
// There are five ways, and what is known of them decides, not what is measured:
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
// Whatever is chosen, the query's condition is tested on every item: an access only
// has to miss none. Only the choice between two of them that both would do asks how
// much there is, through Counter, and no further than a small number.
//
// ORDER BY puts items without the value first. They are in no index; so the order of
// an index begins, or if it descends ends, with a scan for them, unless the condition
// asks for the value.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package queryplan
