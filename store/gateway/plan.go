package gateway

import (
	"net/http"

	"github.com/millrace/millrace/store/query"
)

// queryPlan tells a client how to carry out a query by itself.
type queryPlan struct {
	Version int          `json:"partitionedQueryExecutionInfoVersion"`
	Info    queryInfo    `json:"queryInfo"`
	Ranges  []queryRange `json:"queryRanges"`
}

// queryInfo says what the client has left to do with the rows: nothing.
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

// wholeMark begins the rewritten text of a query whose rows need all ranges at once.
// A client that carries out a plan asks each range for the rewritten query and joins
// what comes, in the order of the ranges. So the first range answers for all, merged
// as for a client that asks without a plan, and the others have nothing to add.
const wholeMark = "/* millrace: the first range answers for all */ "

// planQuery answers the plan of a query, in which nothing is left to do for the
// client but to join what the ranges answer.
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
	sc, err := c.scope(x)
	if err != nil {
		return err
	}
	rewritten := ""
	if len(sc.partitions) > 1 && !eachForItself(q) {
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

// wholeScope turns the scope of a query that is marked into that of all it was
// planned for, if the request is for the first range; nothing is left of it else.
func (c *collection) wholeScope(sc *scope) {
	first := len(sc.partitions) > 0 && sc.partitions[0].Range.Min == ""
	sc.partitions = nil
	if first {
		sc.partitions, sc.span, sc.whole = c.info.Partitions, all, true
	}
}

// eachForItself tells whether the rows of a query are those of its ranges, one after
// the other.
func eachForItself(q *query.Query) bool {
	offset, limit := q.Window()
	return q.Kind() == query.Stream && offset == 0 && limit == 1<<63-1
}
