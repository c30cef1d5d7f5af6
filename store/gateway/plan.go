package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/millrace/millrace/store/clientplan"
	"github.com/millrace/millrace/store/query"
)

// queryPlan tells a client how to run a query by itself.
type queryPlan struct {
	Version int             `json:"partitionedQueryExecutionInfoVersion"`
	Info    clientplan.Info `json:"queryInfo"`
	Ranges  []queryRange    `json:"queryRanges"`
}

type queryRange struct {
	Min            string `json:"min"`
	Max            string `json:"max"`
	IsMinInclusive bool   `json:"isMinInclusive"`
	IsMaxInclusive bool   `json:"isMaxInclusive"`
}

// wholeMark begins the rewritten text of a query whose rows need all ranges at once. A client
// that runs a plan asks each range for the rewritten query, and appends the answers in the
// order of the ranges. So the first range answers for all of them, merged as for a client
// without a plan, and the others answer no rows:
//
//	SELECT … ORDER BY c.price    range 1   all rows in order
//	                             range 2   none
const wholeMark = "/* millrace: the first range answers for all */ "

// partMark begins the rewritten text of a query that a client merges, as with gateway.strict. Cosmos DB would not take
// such texts from people, and a range takes them from its clients.
const partMark = "/* millrace: a range's part of a plan */ "

// planQuery answers the plan of a query. By the plan the client only appends the answers of the
// ranges; with gateway.strict it merges them, as in Cosmos DB.
func (s *Server) planQuery(x *exchange) error {
	c, err := s.collection(x)
	if err != nil {
		return err
	}
	spec, err := parseQuery(x.body)
	if err != nil {
		return err
	}
	text, q, err := spec.query(s.cfg.Strict)
	if err != nil {
		return err
	}
	if err := s.strictly(x.ctx, c, q); err != nil {
		return err
	}
	sc, err := c.scope(x)
	if err != nil {
		return err
	}
	plan := queryPlan{
		Version: 2, Info: clientplan.Whole(),
		Ranges: []queryRange{{Min: sc.span.Min.Hex(), Max: sc.span.Max.Hex(), IsMinInclusive: true}},
	}
	merged := false
	if s.cfg.Strict && !independentRanges(q) {
		if plan.Info, merged, err = mergedPlan(x, text, q); err != nil {
			return err
		}
	}
	plan.Info.HasSelectValue = text.Parts().Value // however the rows are merged
	if !merged && len(sc.partitions) > 1 && !independentRanges(q) {
		if !sc.whole { // the first range, which answers, may be none of those that the client asks
			return refuse(http.StatusBadRequest, "there is no plan for a part of a container in several ranges; ask the query without one")
		}
		plan.Info.RewrittenQuery = wholeMark + spec.Text
	}
	return x.answerJSON(http.StatusOK, chargeResource, plan)
}

// mergedPlan returns the plan by which a client merges the rows of ranges; ok is false if the query has none.
func mergedPlan(x *exchange, text, q *query.Query) (info clientplan.Info, ok bool, err error) {
	info, features, ok := clientplan.Of(text, q)
	if !ok {
		return clientplan.Whole(), false, nil
	}
	info.RewrittenQuery = partMark + info.RewrittenQuery
	header := x.header(headerFeatures)
	if header == "" {
		return info, true, nil
	}
	known := strings.FieldsFunc(header, func(r rune) bool { return r == ',' || r == ' ' })
	for _, name := range features {
		if !slices.Contains(known, name) {
			return info, false, refuse(http.StatusBadRequest, "the query has features that this client has no plan for, such as %s: name the partition key, or ask by another SDK (gateway.strict)", name)
		}
	}
	return info, true, nil
}

// wholeScope changes the scope of a marked query: for the first range to the whole container,
// for any other to nothing.
func (c *collection) wholeScope(sc *scope) {
	first := len(sc.partitions) > 0 && sc.partitions[0].Range.Min == ""
	sc.partitions = nil
	if first {
		sc.partitions, sc.span, sc.whole = c.info.Partitions, all, true
	}
}

// independentRanges reports whether the rows of a query are the rows of its ranges, one range
// after the other, so that each range may answer alone. One that reads no items has one row, not
// one of each range.
func independentRanges(q *query.Query) bool {
	offset, limit := q.Window()
	return q.ReadsItems() && q.Kind() == query.Stream && offset == 0 && limit == 1<<63-1
}
