package query

// refusedFunctions are functions of the service that are not here, with the reason.
var refusedFunctions = merge(
	reasons("there are no spatial functions", "ST_AREA", "ST_DISTANCE", "ST_INTERSECTS", "ST_ISVALID", "ST_ISVALIDDETAILED", "ST_WITHIN"),
	reasons("there are no full text functions", "FULLTEXTCONTAINS", "FULLTEXTCONTAINSALL", "FULLTEXTCONTAINSANY", "FULLTEXTSCORE", "RRF"),
	reasons("there are no vector functions", "VECTORDISTANCE"),
	reasons("a query gives the same rows every time it is asked", "RAND"),
	reasons("items have no such number; read c._rid", "DOCUMENTID"),
	reasons("no function makes a list of the values of a group; ask for the values, or write ARRAY(SELECT …) of one item", "MAKELIST", "MAKESET"),
)

func reasons(reason string, names ...string) map[string]string {
	all := make(map[string]string)
	for _, name := range names {
		all[name] = reason
	}
	return all
}
