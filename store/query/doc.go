// Package query understands the Cosmos DB SQL dialect: its queries, and its scalar
// expressions by themselves, as they stand in a where, a condition or a column.
// docs/sql.md says what of the dialect there is.
//
//	SELECT TOP 10 c.id, t.name FROM c JOIN t IN c.tags WHERE c.price > @least ORDER BY c.price DESC
//	type = "category" AND NOT (stock <= 0) AND ARRAY_CONTAINS(tags, {"id": "x"}, true)
//
// A text is read by a lexer and a Pratt parser into a tree, the tree is compiled
// into functions, and these run over the bytes of an item, or of several roots: a
// property is found by scanning, nothing is decoded that the expression does not
// read. A Query and an Expr may be used by many goroutines at once.
//
// # Queries
//
// The package knows no storage. A planner asks a Query for its Kind, Order, Filter,
// Bounds, Tuples and Paths, decides which items to read, and runs it in two halves:
//
//	items of a partition ─→ Run ─→ Part ─┐
//	items of a partition ─→ Run ─→ Part ─┴→ Merge ─→ Page
//
// A Run takes the items of one partition, one by one, and keeps the rows that the
// page can use. Every row has a key, whose order is that of the query's rows over all
// partitions; Merge takes the rows by their keys, and a page ends with the key behind
// which the next one goes on. DISTINCT and GROUP BY put what tells rows apart into the
// key, so that equal rows and parts of a group meet. That is why a run never holds more
// than the rows, or groups, of a page: the least keys behind the last page. FORMAT.md
// describes keys and partial groups byte by byte.
//
// A Run is used by one goroutine; rows are the same however items are spread over
// partitions and rows over pages, as long as ranks are.
//
// # Values
//
// A value is undefined, null, a boolean, a number, a string, an array or an
// object. Undefined is what a missing property and an operation on the wrong types
// give; it is not null and not an error. Values of two types are unequal,
// and have no order; what is compared with undefined is undefined. (By MeaningTyped,
// which logs of earlier releases have, they could not be compared at all.) AND, OR and NOT know three values: false AND undefined is false, true
// OR undefined is true, everything else with undefined is undefined. An item is
// selected only if its condition is true (Expr.True).
//
// Numbers are exact decimals, not doubles: 9007199254740993 is not
// 9007199254740992, 0.1 + 0.2 is 0.3, and 27.12 * 3 is 81.36. Division, modulo of
// fractions and the functions of mathematics compute with doubles, and so does
// what would need more than 512 digits.
//
// A Value is read as what a typed column holds without a detour by text: Int64,
// Float64, Fixed for decimal(p, s), Decimal for any exact number, Text, Bool with
// Type, and Raw for JSON. They say whether the value is exactly that, and round
// nothing but doubles. AppendDecimal writes an exact number.
//
// # Budget
//
// Nothing evaluates without an end. A frame counts the work of every path, comparison,
// call and character of a regular expression, in units of about a nanosecond, and looks
// at what there is after each 4096 of them. There are two budgets:
//
//   - Holds and Run have an end by the clock, and Run a channel that closes when nobody
//     waits any more. When it is over they return ErrTooMuch, soon: no single step
//     takes longer than some tens of milliseconds. So a time limit holds within twice
//     itself for limits from 100 ms on. What they decide is not repeated from a log.
//   - True, Eval, TrueIn and EvalIn decide which items an index or a rule has, which
//     replay must decide alike. So WorkMax counts and no clock is asked, and what is
//     beyond it is undefined, not an error: the write that made the item so large is in
//     the log. Light expressions, of a few nodes each of which reads the item once, need
//     no count.
//
// The memory of values that are made is bounded in both (MadeMax). Regular expressions
// have a size that is checked before they are compiled (RegexpInstMax); a match of much
// work reads its text through a reader that ends when the budget does.
//
// # Precedence
//
// From the weakest: ?: and ??; OR; AND; NOT; = != <> < <= > >= IN BETWEEN LIKE;
// the concatenation ||; | ^ & as in C; << >> >>>; + -; * / %; unary - + ~; and
// property access. Where the service's grammar binds | ^ & and || weaker than
// comparisons, which has no defined value, this one binds them stronger.
//
// # Names
//
// The item is c, item or root (or what ParseExprAs is told), and need not be
// written: c.address.city, item.address.city and address.city are the same. A
// property of the item that is itself named c is c.c. Words of the language are
// written in brackets as properties where they stand first: c["in"].
//
// # Roots
//
// ParseScoped reads an expression over several roots, each of which is JSON of its
// own: an element of an array, what it is in, the item, the element's index. With
// the roots {element}, {parent}, {item, c, root} and {index},
//
//	quantity > 1 AND parent.options[index].price < item.total
//
// reads quantity of the element. The rules are few:
//
//   - A name that stands first is the root of that name, else a property of root 0.
//   - A root hides the property of root 0 that is named like it, which is written
//     behind its root: element.index.
//   - Everywhere else, names are properties: parent.parent is a property.
//   - A root may be a scalar: index is a number, and index.x is undefined.
//   - A root without a value, nil or left out, is undefined like a missing property.
//   - Names of roots have a case: Index is a property.
//   - Behind a root's name, ( begins a call: index(1) is one of a function INDEX.
//
// Paths and Equalities are those of root 0, PathsIn and EqualitiesIn of any root.
// ParseExpr is ParseScoped with one root, and Eval(item) is EvalIn(item).
//
// This package is no API for other programs.
package query
