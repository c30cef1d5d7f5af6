package clientplan

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/millrace/millrace/store/query"
)

// Info says what a client does with the rows of ranges. Its JSON is the service's queryInfo, whose lists are never null.
type Info struct {
	// DistinctType is None, Ordered where equal rows follow each other, or Unordered.
	DistinctType string `json:"distinctType"`
	Top          *int64 `json:"top"`
	Offset       *int64 `json:"offset"`
	Limit        *int64 `json:"limit"`

	OrderBy            []string `json:"orderBy"` // Ascending or Descending
	OrderByExpressions []string `json:"orderByExpressions"`

	GroupByExpressions []string `json:"groupByExpressions"`
	GroupByAliases     []string `json:"groupByAliases"`
	// GroupByAliasToAggregateType has the properties of a row of groups, null for one that is no aggregate. With SELECT
	// VALUE it is empty, and Aggregates has the one aggregate.
	GroupByAliasToAggregateType map[string]*string `json:"groupByAliasToAggregateType"`
	Aggregates                  []string           `json:"aggregates"`

	// RewrittenQuery is what each range is asked; "" says that it is the query itself.
	RewrittenQuery         string    `json:"rewrittenQuery"`
	HasSelectValue         bool      `json:"hasSelectValue"`
	DCountInfo             *struct{} `json:"dCountInfo"`
	HasNonStreamingOrderBy bool      `json:"hasNonStreamingOrderBy"`
}

// filterPlace is where a client writes its condition.
const filterPlace = "{documentdb-formattableorderbyquery-filter}"

// Whole returns the plan of a query of which the client does nothing but append the rows of ranges.
func Whole() Info {
	none := []string{}
	return Info{
		DistinctType: "None", OrderBy: none, OrderByExpressions: none, GroupByExpressions: none, GroupByAliases: none, Aggregates: none,
		GroupByAliasToAggregateType: map[string]*string{},
	}
}

// Of returns the plan of a query over items, and the features that a client must have for it, by the names that the
// service's header of them has. text is the query as it was sent, and bound the same with its parameters. ok is false
// where there is no plan: of the order of VectorDistance, of aggregates within expressions, and of a query without FROM.
func Of(text, bound *query.Query) (info Info, features []string, ok bool) {
	p := planner{parts: text.Parts(), info: Whole()}
	if p.parts.From == "" || p.parts.Nearest {
		return info, nil, false
	}
	for _, o := range p.parts.Outputs {
		if o.Composed {
			return info, nil, false
		}
	}
	p.info.HasSelectValue = p.parts.Value
	p.window(bound)
	grouped := text.Kind() == query.Grouped
	if p.parts.Distinct && !grouped {
		p.distinct()
	}
	switch {
	case grouped:
		p.group()
	case len(p.parts.Orders) > 0:
		p.order()
	default:
		p.info.RewrittenQuery = p.query(p.parts.List, p.parts.Where, "")
	}
	return p.info, p.features, true
}

// planner makes a plan.
type planner struct {
	parts    query.Parts
	info     Info
	features []string

	before, behind string // what bounds the rows of a range: TOP, OFFSET LIMIT
}

func (p *planner) needs(feature string) { p.features = append(p.features, feature) }

// window leaves TOP and OFFSET LIMIT to the client. A range gives no more rows than the client may use of it, which of
// groups, and of rows that the client compares, is not known.
func (p *planner) window(bound *query.Query) {
	offset, limit := bound.Window()
	switch {
	case p.parts.Top:
		p.needs("Top")
		p.info.Top = &limit
		p.before = fmt.Sprintf("TOP %d ", limit)
	case limit < 1<<63-1:
		p.needs("OffsetAndLimit")
		p.info.Offset, p.info.Limit = &offset, &limit
		p.behind = fmt.Sprintf(" OFFSET 0 LIMIT %d", min(offset+limit, query.CountMax))
	}
}

// distinct leaves it to the client to drop equal rows of several ranges. They follow each other if the rows are what
// comes first in the order.
func (p *planner) distinct() {
	p.needs("Distinct")
	p.info.DistinctType = "Unordered"
	if p.parts.Star || len(p.parts.Outputs) > len(p.parts.Orders) {
		return
	}
	shown := map[string]bool{}
	for _, o := range p.parts.Outputs {
		shown[o.Text] = true
	}
	for _, o := range p.parts.Orders[:len(p.parts.Outputs)] {
		if !shown[o.Text] {
			return
		}
	}
	p.info.DistinctType = "Ordered"
}

// order leaves it to the client to merge the rows of ranges, each of which has its own in order.
func (p *planner) order() {
	p.needs("OrderBy")
	if len(p.parts.Orders) > 1 {
		p.needs("MultipleOrderBy")
	}
	if p.info.DistinctType != "None" {
		// Equal rows of one range are left to the client too: they may have several places in the order.
		p.before, p.behind = "", ""
	}
	var orders []string
	for _, o := range p.parts.Orders {
		direction, text := "Ascending", o.Text
		if o.Desc {
			direction, text = "Descending", text+" DESC"
		}
		p.info.OrderBy = append(p.info.OrderBy, direction)
		p.info.OrderByExpressions = append(p.info.OrderByExpressions, o.Text)
		orders = append(orders, text)
	}
	list := items(p.info.OrderByExpressions) + " AS orderByItems, " + p.payload() + " AS payload"
	if p.parts.Item != "" {
		// Between rows of one place in the order a client goes on by their resource ids, in the direction of the first path.
		id := "DOCUMENTID(" + p.parts.Item + ")"
		if p.parts.Orders[0].Desc {
			id += " DESC"
		}
		list, orders = "ORDERRID("+p.parts.Item+") AS _rid, "+list, append(orders, id)
	}
	where := "(" + filterPlace + ")"
	if p.parts.Where != "" {
		where = "(" + p.parts.Where + ") AND " + where
	}
	if p.parts.Value && !p.parts.Outputs[0].Defined {
		// There is no row of an undefined value, and clients want a payload of each.
		where = "IS_DEFINED(" + p.parts.Outputs[0].Text + ") AND " + where
	}
	p.info.RewrittenQuery = p.query(list, where, " ORDER BY "+strings.Join(orders, ", "))
}

// group leaves it to the client to merge the groups of ranges, and the aggregates of each.
func (p *planner) group() {
	p.before, p.behind = "", ""
	by := ""
	if len(p.parts.Groups) > 0 {
		p.needs("GroupBy")
		by = " GROUP BY " + strings.Join(p.parts.Groups, ", ")
		p.info.GroupByExpressions = p.parts.Groups
	}
	list := ""
	if p.parts.Value {
		o := p.parts.Outputs[0]
		list = o.Text
		if o.Aggregate != "" {
			p.aggregate(o.Aggregate)
			p.info.Aggregates = []string{kinds[o.Aggregate]}
			list = "[" + partial(o) + "]"
		}
	} else {
		list = p.groupRow()
	}
	switch {
	case by != "":
		list = items(p.parts.Groups) + " AS groupByItems, " + list + " AS payload"
	case p.parts.Value:
		list = "VALUE " + list
	default:
		p.needs("NonValueAggregate")
		list += " AS payload"
	}
	p.info.RewrittenQuery = p.query(list, p.parts.Where, by)
}

// groupRow returns the row of a group, with a partial aggregate for each aggregate.
func (p *planner) groupRow() string {
	var values []string
	aggregates := 0
	for _, o := range p.parts.Outputs {
		p.info.GroupByAliases = append(p.info.GroupByAliases, o.Name)
		p.info.GroupByAliasToAggregateType[o.Name] = nil
		value := o.Text
		if o.Aggregate != "" {
			p.aggregate(o.Aggregate)
			kind := kinds[o.Aggregate]
			p.info.GroupByAliasToAggregateType[o.Name] = &kind
			value = partial(o)
			aggregates++
		}
		values = append(values, quoted(o.Name)+": "+value)
	}
	if aggregates > 1 {
		p.needs("MultipleAggregates")
	}
	return "{" + strings.Join(values, ", ") + "}"
}

// kinds are the names that clients have for aggregates.
var kinds = map[string]string{"COUNT": "Count", "SUM": "Sum", "AVG": "Average", "MIN": "Min", "MAX": "Max"}

func (p *planner) aggregate(name string) {
	if name == "AVG" {
		p.needs("CompositeAggregate")
		return
	}
	p.needs("Aggregate")
}

// partial returns what a range gives of an aggregate, so that those of several ranges can be merged.
func partial(o query.Output) string {
	switch o.Aggregate {
	case "AVG":
		return fmt.Sprintf(`{"item": {"sum": SUM(%[1]s), "count": COUNT(%[1]s)}}`, o.Argument)
	case "MIN", "MAX":
		return fmt.Sprintf(`{"item": %s, "item2": {%q: %[1]s, "count": COUNT(%[3]s)}}`, o.Text, strings.ToLower(o.Aggregate), o.Argument)
	}
	return `{"item": ` + o.Text + "}"
}

// payload returns a row as one value.
func (p *planner) payload() string {
	switch {
	case p.parts.Star:
		return p.parts.First
	case p.parts.Value:
		return p.parts.Outputs[0].Text
	}
	var values []string
	for _, o := range p.parts.Outputs {
		values = append(values, quoted(o.Name)+": "+o.Text)
	}
	return "{" + strings.Join(values, ", ") + "}"
}

// query puts a query together. by is what follows WHERE.
func (p *planner) query(list, where, by string) string {
	distinct := ""
	if p.info.DistinctType != "None" && len(p.parts.Orders) == 0 {
		distinct = "DISTINCT "
	}
	if where != "" {
		where = " WHERE " + where
	}
	return "SELECT " + distinct + p.before + list + " " + p.parts.From + where + by + p.behind
}

// items returns values as clients compare them.
func items(texts []string) string {
	list := make([]string, len(texts))
	for i, text := range texts {
		list[i] = `{"item": ` + text + "}"
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// quoted returns a name as JSON, which is a string of the language too.
func quoted(name string) string {
	text, err := json.Marshal(name)
	if err != nil {
		panic(err) // of a string there is none
	}
	return string(text)
}
