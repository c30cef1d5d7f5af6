package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/store"
)

const (
	// rowsShown bounds the rows of a query on a page, rowsBytesMax their bytes: they are in memory.
	rowsShown    = 100
	rowsBytesMax = 16 << 20
	// queriesMax bounds the pages of rows that are in memory at once, and queryWait how long a query waits
	// for its turn. Who takes a page slowly holds it for two minutes at most.
	queriesMax = 8
	queryWait  = 5 * time.Second
	// cellMax bounds what a cell of a page shows, in bytes.
	cellMax = 2_000
)

// queryPage is a query and its rows.
type queryPage struct {
	Containers []store.ContainerInfo
	Container  string // database/name
	Text       string
	Ran        bool
	Problem    string // why it was not answered
	Columns    []string
	Cells      [][]string
	Rows       [][]byte
	More       bool
	Cost       string
	// Explained is how the query was answered, or would be if it was not run; nil if it is wrong.
	Explained *inspect.Explained
	// LeftOut says that rows have properties for which there is no column.
	LeftOut bool
}

func (c *Console) query(x *exchange) error {
	// A file has more time than a page, but not for this.
	ctx, cancel := context.WithTimeout(x.r.Context(), pageTimeout)
	defer cancel()
	all, err := c.client.Catalog().List(ctx)
	if err != nil {
		return err
	}
	q := x.r.URL.Query()
	page := queryPage{Containers: all, Container: q.Get("container"), Text: q.Get("q")}
	if page.Text == "" {
		page.Text = "SELECT TOP 20 * FROM c"
		return c.show(x, "query", "Query", page, nil)
	}
	form, explain := q.Get("o"), q.Has("explain")
	if explain && form == "csv" {
		return &refusal{http.StatusBadRequest, "How a query is answered has no rows to save as CSV. Ask for it with o=json, or leave explain away."}
	}
	if savesRows(x.r) {
		return c.download(x, &page, form)
	}
	if err := awaitTurn(x.r.Context(), c.queries, fmt.Sprintf("The console answers %d queries already. Try again in a moment.", queriesMax)); err != nil {
		return err
	}
	// Until the answer is written, for its rows are in memory as long.
	defer func() { <-c.queries }()
	if err := c.answer(x, &page, explain); err != nil {
		// A program is to see that it failed; a page shows the query with what is wrong with it.
		if form != "" {
			return err
		}
		page.Problem = err.Error()
	}
	if form == "json" { // explain, or it would be a file
		return writeJSON(x.w, page.Explained)
	}
	page.table(cellMax)
	return c.show(x, "query", "Query", page, nil)
}

// awaitTurn waits for one of the turns, and refuses with a text if none is free for long. Who has one takes it out again.
func awaitTurn(ctx context.Context, turns chan struct{}, refused string) error {
	timer := time.NewTimer(queryWait)
	defer timer.Stop()
	select {
	case turns <- struct{}{}:
		return nil
	case <-timer.C:
		return &refusal{http.StatusTooManyRequests, refused}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// queried returns the container that the query of a page is about.
func (c *Console) queried(page *queryPage) (*store.Container, error) {
	for i := range page.Containers {
		if one := &page.Containers[i]; one.Database+"/"+one.Name == page.Container {
			return c.client.Open(*one)
		}
	}
	return nil, &refusal{http.StatusBadRequest, "Choose the container that the query is about."}
}

// answer runs the query of a page, until there are as many rows as are shown at most.
func (c *Console) answer(x *exchange, page *queryPage, explain bool) error {
	ct, err := c.queried(page)
	if err != nil {
		return err
	}
	r := store.QueryRequest{Text: page.Text, Explain: explain}
	read, size := inspect.QueryRead{}, 0
	for {
		r.RowsMax = min(store.QueryRowsMax, rowsShown-len(page.Rows))
		found, err := ct.Query(x.r.Context(), r)
		if err != nil {
			return err
		}
		page.Ran = !explain
		// The first part of the answer tells how all of it is found.
		if page.Explained == nil {
			page.Explained, err = inspect.Explain(&r, found)
		}
		if err != nil || explain {
			return err
		}
		page.Rows = append(page.Rows, found.Rows...)
		for _, row := range found.Rows {
			size += len(row)
		}
		read.Add(found)
		page.Explained.Read = &read
		page.Cost = fmt.Sprintf("%s; %s; %s read in %.1f ms", format.Plural(len(page.Rows), "row", "rows"), found.Metrics.Access,
			format.Plural(read.Items, "item", "items"), read.Millis)
		r.Continuation = found.Continuation
		// Not by the rows of a part: one may be empty although more follow.
		if page.More = r.Continuation != ""; !page.More || len(page.Rows) >= rowsShown || size >= rowsBytesMax {
			return nil
		}
	}
}

// columnsMax bounds the columns of a table: rows of many shapes would make one of thousands.
const columnsMax = 100

// columns are the properties that rows have, in the order in which they come. A row that is no object stands in one column.
type columns struct {
	names   []string
	at      map[string]int
	leftOut bool // there are more than columnsMax
}

func newColumns() *columns { return &columns{at: map[string]int{}} }

// add adds the properties of a row.
func (c *columns) add(row []byte) {
	for name := range properties(row) {
		if _, known := c.at[name]; known {
			continue
		}
		if len(c.names) == columnsMax {
			c.leftOut = true
			return
		}
		c.at[name] = len(c.names)
		c.names = append(c.names, name)
	}
}

// cells are the values of a row in the order of the columns; whole tells whether there is a column for each.
func (c *columns) cells(row []byte) (cells []string, whole bool) {
	cells, whole = make([]string, len(c.names)), true
	for name, value := range properties(row) {
		if i, known := c.at[name]; known {
			cells[i] = cellText(value)
		} else {
			whole = false
		}
	}
	return cells, whole
}

// table makes a table of the rows. A cell has at most cellMax bytes.
func (p *queryPage) table(cellMax int) {
	heading := newColumns()
	for _, row := range p.Rows {
		heading.add(row)
	}
	p.Columns, p.LeftOut = heading.names, heading.leftOut
	for _, row := range p.Rows {
		cells, _ := heading.cells(row)
		for i := range cells {
			cells[i] = clip(cells[i], cellMax)
		}
		p.Cells = append(p.Cells, cells)
	}
}

// properties yields those of an object in their order; of any other value itself, without a name.
func properties(row []byte) func(yield func(string, json.RawMessage) bool) {
	return func(yield func(string, json.RawMessage) bool) {
		dec := json.NewDecoder(bytes.NewReader(row))
		if token, err := dec.Token(); err != nil || token != json.Delim('{') {
			yield("value", row)
			return
		}
		for dec.More() {
			name, err := dec.Token()
			if err != nil {
				return
			}
			var value json.RawMessage
			if dec.Decode(&value) != nil || !yield(name.(string), value) {
				return
			}
		}
	}
}

// cellText is a value as a cell shows it: a text without quotes, all else as JSON.
func cellText(value json.RawMessage) string {
	var text string
	if len(value) > 0 && value[0] == '"' && json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

// clip cuts a text after so many bytes.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// harmless keeps a spreadsheet from taking a text for a formula.
func harmless(cell string) string {
	if cell == "" || !strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return cell
	}
	// A number may begin with a minus; =1+1 does not parse as one.
	if _, err := strconv.ParseFloat(cell, 64); err == nil {
		return cell // -1.5
	}
	return "'" + cell
}
