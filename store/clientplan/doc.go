// Package clientplan divides a query between the ranges of a container and the client that merges their rows, as the
// plans do that Cosmos DB gives its SDKs.
//
//	SELECT TOP 2 c.id FROM c ORDER BY c.n     the query
//
//	SELECT TOP 2 ORDERRID(c) AS _rid, [{"item": c.n}] AS orderByItems, {"id": c.id} AS payload
//	FROM c WHERE ({documentdb-formattableorderbyquery-filter}) ORDER BY c.n, DOCUMENTID(c)
//	                                          what each range is asked
//	orderBy: [Ascending], top: 2              what the client does with the rows
//
// The client writes a condition where the braces are: true, or the place where it goes on. What each range gives has
// these forms, with x for the value of an expression of the query:
//
//	ORDER BY               {"_rid": …, "orderByItems": [{"item": x}, …], "payload": row}
//	SELECT VALUE COUNT(x)  [{"item": 7}]
//	SELECT COUNT(x) AS n   {"payload": {"n": {"item": 7}}}
//	GROUP BY x             {"groupByItems": [{"item": x}, …], "payload": row, with {"item": 7} for an aggregate}
//	anything else          row
//
// The item of AVG is {"sum": 12, "count": 7}; beside that of MIN and MAX stands "item2": {"min": 3, "count": 7}.
//
// What clients make of them is known from the SDKs for JavaScript and Python: of an aggregate that is undefined Python's
// makes null, and the order of types is theirs. The package knows neither ranges nor requests.
//
// A client that goes on between rows of one place in the order asks for that place again, and drops the rows whose _rid is
// lower than that of the row it stopped at; greater, where the first path is in descending order. So such rows come in
// the order of these. Python's and JavaScript's do not go on there, Java's does.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package clientplan
