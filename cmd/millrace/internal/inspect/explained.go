package inspect

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/gateway"
	"github.com/millrace/millrace/store/query"
)

// Explained is how a query is answered. What is read is chosen by rules and not by statistics, so
// nothing is estimated; Read tells what was read where the query was run.
type Explained struct {
	// Access is how each partition reaches items, and why; Index the path of the index by which.
	Access     string `json:"access"`
	Index      string `json:"index"`
	Partitions int    `json:"partitions"`
	// Steps are what is done with the items, in this order.
	Steps []QueryStep `json:"steps"`
	Read  *QueryRead  `json:"read,omitempty"`
}

// QueryStep is one step of a query.
type QueryStep struct {
	Step string `json:"step"` // reach, test, group, sort, window or merge
	Does string `json:"does"`
	// Ranges are what the condition says of the path of an index, such as /price > 3; absent
	// where no index is read, or all of it.
	Ranges []string `json:"ranges,omitempty"`
}

// QueryRead is what the pages of a query have read, all together.
type QueryRead struct {
	Pages   int     `json:"pages"`
	Entries int64   `json:"entries"` // of the index
	Items   int64   `json:"items"`
	Bytes   int64   `json:"bytes"` // of those items
	Rows    int64   `json:"rows"`
	Millis  float64 `json:"ms"`     // of the owners, all together
	Charge  float64 `json:"charge"` // in request units, as the gateway charges such pages
	// More says that there are pages that were not read.
	More bool `json:"more,omitempty"`
}

// Add adds a page.
func (r *QueryRead) Add(page *store.QueryPage) {
	size := 0
	for _, row := range page.Rows {
		size += len(row) + 1
	}
	m := &page.Metrics
	r.Pages++
	r.Entries, r.Items, r.Bytes, r.Rows = r.Entries+m.Entries, r.Items+m.Items, r.Bytes+m.Bytes, r.Rows+m.Rows
	r.Millis += float64(m.Time.Microseconds()) / float64(time.Millisecond/time.Microsecond)
	r.Charge = math.Round(100*(r.Charge+gateway.QueryCharge(m, size))) / 100
	r.More = page.Continuation != ""
}

// Explain tells how a query was answered, or would be, from what a page of it says.
func Explain(r *store.QueryRequest, page *store.QueryPage) (*Explained, error) {
	q, err := query.ParseQuery(r.Text)
	if err != nil {
		return nil, err
	}
	params := map[string][]byte{}
	for _, p := range r.Params {
		params[p.Name] = p.Value
	}
	if q, err = q.Bind(params); err != nil {
		return nil, err
	}
	e := &Explained{Access: page.Metrics.Access, Index: page.Metrics.Index, Partitions: page.Partitions}
	reach := QueryStep{Step: "reach", Does: e.Access}
	bounds := q.Bounds()
	for i := range bounds {
		if e.Index != "" && bounds[i].Pointer() == e.Index {
			reach.Ranges = append(reach.Ranges, bounds[i].String())
		}
	}
	e.Steps = append(e.Steps, reach)
	e.arrange(q)
	e.merge(q)
	return e, nil
}

// add adds a step.
func (e *Explained) add(step, does string, args ...any) {
	e.Steps = append(e.Steps, QueryStep{Step: step, Does: fmt.Sprintf(does, args...)})
}

// arrange adds what a partition does with the items that it has reached.
func (e *Explained) arrange(q *query.Query) {
	c := q.Clauses()
	if c.Where != "" {
		e.add("test", "of every item: %s", c.Where)
	}
	switch {
	case q.Kind() == query.Grouped && c.GroupBy == "":
		e.add("group", "all items to one row")
	case q.Kind() == query.Grouped:
		e.add("group", "by %s", c.GroupBy)
	case q.Distinct():
		e.add("group", "equal rows to one")
	}
	if c.OrderBy == "" {
		return
	}
	if e.inOrder(q) {
		e.add("sort", "by %s: not needed, the index has the order", c.OrderBy)
		return
	}
	e.add("sort", "by %s: of all that passed, for each page", c.OrderBy)
}

// inOrder tells whether the items come in the order of the query.
func (e *Explained) inOrder(q *query.Query) bool {
	order := q.Order()
	if q.Kind() != query.Sorted || q.Distinct() || len(order) != 1 || order[0].Path == nil {
		return false
	}
	path := (&query.Bound{Path: order[0].Path}).Pointer()
	return e.Index == path && (strings.HasPrefix(e.Access, "index "+path+", ascending") || strings.HasPrefix(e.Access, "index "+path+", descending"))
}

// merge adds how the rows of partitions come together.
func (e *Explained) merge(q *query.Query) {
	of := format.Plural(e.Partitions, "partition", "partitions")
	switch {
	case e.Partitions < 2:
		e.add("merge", "of %s: nothing to bring together", of)
	case q.Kind() == query.Grouped:
		e.add("merge", "of %s: what each knows of a group", of)
	default:
		e.add("merge", "of %s: by the keys of rows", of)
	}
	switch offset, limit := q.Window(); {
	case limit == math.MaxInt64 && offset == 0:
	case offset == 0:
		e.add("window", "the first %s", format.Plural(limit, "row", "rows"))
	case limit == math.MaxInt64:
		e.add("window", "without the first %s", format.Plural(offset, "row", "rows"))
	default:
		e.add("window", "%s behind the first %s", format.Plural(limit, "row", "rows"), format.Count(offset))
	}
}
