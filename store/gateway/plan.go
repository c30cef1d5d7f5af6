package gateway

import (
	"net/http"

	"github.com/millrace/millrace/store/query"
)

// queryPlan tells a client how to run a query by itself.
type queryPlan struct {
	Version int          `json:"partitionedQueryExecutionInfoVersion"`
	Info    queryInfo    `json:"queryInfo"`
	Ranges  []queryRange `json:"queryRanges"`
}

// queryInfo says what the client must do with the rows: nothing.
type queryInfo struct {
	DistinctType                string            `json:"distinctType"`
	Top                         *int64            `json:"top"`
	Offset                      *int64            `json:"offset"`
	Limit                       *int64            `json:"limit"`
	OrderBy                     []string          `json:"orderBy"`
	OrderByExpressions          []string          `json:"orderByExpressions"`
	GroupByExpressions          []string          `json:"groupByExpressions"`
	GroupByAliases              []string          `json:"groupByAliases"`
	Aggregates                  []string          `json:"aggregates"`
	GroupByAliasToAggregateType map[string]string `json:"groupByAliasToAggregateType"`
	RewrittenQuery              string            `json:"rewrittenQuery"`
	HasSelectValue              bool              `json:"hasSelectValue"`
	DCountInfo                  *struct{}         `json:"dCountInfo"`
	HasNonStreamingOrderBy      bool              `json:"hasNonStreamingOrderBy"`
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

// planQuery answers the plan of a query. By the plan the client only appends the answers of the
// ranges.
func (s *Server) planQuery(x *exchange) error {
	c, err := s.collection(x)
	if err != nil {
		return err
	}
	spec, err := parseQuery(x.body)
	if err != nil {
		return err
	}
	q, err := spec.query()
	if err != nil {
		return err
	}
	if err := s.strictly(x.ctx, c, spec.Text, q); err != nil {
		return err
	}
	sc, err := c.scope(x)
	if err != nil {
		return err
	}
	rewritten := ""
	if len(sc.partitions) > 1 && !independentRanges(q) {
		if !sc.whole { // the first range, which answers, may be none of those that the client asks
			return refuse(http.StatusBadRequest, "there is no plan for a part of a container in several ranges; ask the query without one")
		}
		rewritten = wholeMark + spec.Text
	}
	none := []string{}
	return x.answerJSON(http.StatusOK, chargeResource, queryPlan{
		Version: 2,
		Info: queryInfo{
			DistinctType: "None", OrderBy: none, OrderByExpressions: none, GroupByExpressions: none, GroupByAliases: none, Aggregates: none,
			GroupByAliasToAggregateType: map[string]string{}, RewrittenQuery: rewritten,
		},
		Ranges: []queryRange{{Min: sc.span.Min.Hex(), Max: sc.span.Max.Hex(), IsMinInclusive: true}},
	})
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
