// Package query implements the Cosmos DB SQL dialect: queries, and scalar expressions by
// themselves, as a where, a condition or a column has them. docs/sql.md says which parts of
// the dialect are supported.
//
//	SELECT TOP 10 c.id, t.name FROM c JOIN t IN c.tags WHERE c.price > @least ORDER BY c.price DESC
//	type = "category" AND NOT (stock <= 0) AND ARRAY_CONTAINS(tags, {"id": "x"}, true)
//
// A lexer and a Pratt parser read a text into a tree. The tree is compiled into functions,
// which run over the bytes of an item, or of several roots. A property is found by
// scanning; nothing is decoded that the expression does not read. A Query and an Expr may
// be used by many goroutines at once.
//
// # Queries
//
// The package does not know how items are stored. A planner asks a Query for its Kind, Order,
// Filter, Bounds, Tuples and Paths, decides which items to read, and runs it in two halves:
//
//	items of a partition ─→ Run ─→ Part ─┐
//	items of a partition ─→ Run ─→ Part ─┴→ Merge ─→ Page
//
// A Run takes the items of one partition, one by one, and keeps the rows that the page can
// use. Every row has a key. The order of the keys is the order of the query's rows over all
// partitions. Merge takes the rows by their keys, and a page ends with the key behind which
// the next page begins. With DISTINCT and GROUP BY the key holds what makes rows different,
// so that equal rows, and the parts of one group, have the same key. So a run never holds
// more than the rows, or groups, of one page: those with the least keys behind the page
// before. FORMAT.md describes keys and partial groups byte by byte.
//
// A Run is used by one goroutine. The rows do not depend on how items are spread over
// partitions and rows over pages, as long as the items' ranks stay the same.
//
// # Values
//
// A value is undefined, null, a boolean, a number, a string, an array or an object. A
// missing property is undefined, and so is the result of an operation on the wrong types;
// undefined is not null and not an error. Values of two types are unequal, and have no
// order; a comparison with undefined is undefined. (By MeaningTyped, which logs of earlier
// releases have, a comparison of two types is undefined too.) AND, OR and NOT have three
// values: false AND undefined is false, true OR undefined is true, everything else with
// undefined is undefined. An item is selected only if its condition is true (Expr.True).
//
// Numbers are exact decimals, not doubles: 9007199254740993 is not
// 9007199254740992, 0.1 + 0.2 is 0.3, and 27.12 * 3 is 81.36. Division, modulo of
// fractions and the functions of mathematics compute with doubles, and so does an
// operation whose exact result would need more than 512 digits.
//
// # Budget
//
// Every evaluation has a bound. A frame counts the work of each path, comparison, call and
// character of a regular expression, in units of about a nanosecond. After each 4096 units
// it compares the work with the budget. There are two budgets:
//
//   - Holds and Run end by the clock, and Run also when nobody waits for its rows any more.
//     Then they return ErrTooMuch, soon: no single step takes longer than some tens of
//     milliseconds. So for limits of at least 100 ms, an evaluation ends within twice its
//     limit. Their results are not in a log, so they need not be repeatable.
//   - True, Eval, TrueIn and EvalIn decide which items an index or a rule has, and a replay
//     of the log must decide the same. So WorkMax counts units, and no clock is read. An
//     expression beyond it is undefined and no error, because the write that made the item
//     so large is in the log. Light expressions, of a few nodes each of which reads the
//     item once, need no count.
//
// Both bound the memory of values that are made (MadeMax). The size of a regular expression
// is checked before it is compiled (RegexpInstMax). A long match reads its text through a
// reader that ends when the budget is spent.
//
// # Precedence
//
// From the weakest: ?: and ??; OR; AND; NOT; = != <> < <= > >= IN BETWEEN LIKE;
// the concatenation ||; | ^ & as in C; << >> >>>; + -; * / %; unary - + ~; and
// property access. The service's grammar binds | ^ & and || weaker than comparisons, where
// their value is not defined; this one binds them stronger.
//
// # Names
//
// The item is named c, item or root (or as ParseExprAs is told), and the name may be left
// out: c.address.city, item.address.city and address.city are the same. A property of the
// item that is itself named c is c.c. A property whose name is a word of the language is
// written in brackets if it stands first: c["in"].
//
// # Roots
//
// ParseScoped reads an expression over several roots, each a JSON value of its own: an
// element of an array, the object that holds it, the item, the element's index. With the
// roots {element}, {parent}, {item, c, root} and {index},
//
//	quantity > 1 AND parent.options[index].price < item.total
//
// reads quantity of the element. The rules are few:
//
//   - A name that stands first is the root of that name, else a property of root 0.
//   - A root hides the property of root 0 of the same name, which is then written behind
//     its root: element.index.
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
