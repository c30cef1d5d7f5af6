package console

import (
	"bytes"
	"context"
	"encoding/csv"
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
	// rowsShown bounds the rows of a query on a page, rowsSaved those of a file.
	rowsShown = 100
	rowsSaved = 10_000
	// answerBytesMax bounds the rows of an answer, whatever their number: they are in memory.
	answerBytesMax = 16 << 20
	// queriesMax bounds the answers that are in memory at once, and queryWait how long a query waits
	// for its turn. Who takes an answer slowly holds it for two minutes at most.
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
	all, err := c.client.Catalog().List(x.r.Context())
	if err != nil {
		return err
	}
	q := x.r.URL.Query()
	page := queryPage{Containers: all, Container: q.Get("container"), Text: q.Get("q")}
	if page.Text == "" {
		page.Text = "SELECT TOP 20 * FROM c"
		return c.show(x, "query", "Query", page, nil)
	}
	most, form, explain := rowsShown, q.Get("o"), q.Has("explain")
	if explain && form == "csv" {
		return &refusal{http.StatusBadRequest, "How a query is answered has no rows to save as CSV. Ask for it with o=json, or leave explain away."}
	}
	if form == "json" || form == "csv" {
		most = rowsSaved
	}
	if err := c.awaitQueries(x.r.Context()); err != nil {
		return err
	}
	// Until the answer is written, for its rows are in memory as long.
	defer func() { <-c.queries }()
	if err := c.answer(x, &page, most, explain); err != nil {
		// A program is to see that it failed; a page shows the query with what is wrong with it.
		if form != "" {
			return err
		}
		page.Problem = err.Error()
	}
	switch {
	case form == "json" && explain:
		return writeJSON(x.w, page.Explained)
	case form == "json":
		rows := make([]json.RawMessage, len(page.Rows))
		for i := range rows {
			rows[i] = page.Rows[i]
		}
		return writeJSON(x.w, rows)
	case form == "csv":
		// No cell is larger than the answer, so none is cut in a file.
		page.table(answerBytesMax)
		return page.writeCSV(x.w)
	}
	page.table(cellMax)
	return c.show(x, "query", "Query", page, nil)
}

// awaitQueries waits for one of the turns to answer a query.
func (c *Console) awaitQueries(ctx context.Context) error {
	timer := time.NewTimer(queryWait)
	defer timer.Stop()
	select {
	case c.queries <- struct{}{}:
		return nil
	case <-timer.C:
		return &refusal{http.StatusTooManyRequests, fmt.Sprintf("The console answers %d queries already. Try again in a moment.", queriesMax)}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// answer runs the query of a page, until there are as many rows as are shown at most.
func (c *Console) answer(x *exchange, page *queryPage, most int, explain bool) error {
	var info *store.ContainerInfo
	for i := range page.Containers {
		if one := &page.Containers[i]; one.Database+"/"+one.Name == page.Container {
			info = one
		}
	}
	if info == nil {
		return &refusal{http.StatusBadRequest, "Choose the container that the query is about."}
	}
	ct, err := c.client.Open(*info)
	if err != nil {
		return err
	}
	r := store.QueryRequest{Text: page.Text, Explain: explain}
	read, size := inspect.QueryRead{}, 0
	for {
		r.RowsMax = min(store.QueryRowsMax, most-len(page.Rows))
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
		if page.More = r.Continuation != ""; !page.More || len(page.Rows) >= most || size >= answerBytesMax {
			return nil
		}
	}
}

// columnsMax bounds the columns of a table: rows of many shapes would make one of thousands.
const columnsMax = 100

// table makes columns of the properties that rows have, in the order in which they come. A row
// that is no object stands in one column. A cell has at most cellMax bytes.
func (p *queryPage) table(cellMax int) {
	at := map[string]int{}
	for _, row := range p.Rows {
		cells := make([]string, len(p.Columns), max(len(p.Columns), 1))
		for name, value := range properties(row) {
			i, known := at[name]
			if !known {
				if len(p.Columns) == columnsMax {
					p.LeftOut = true
					continue
				}
				i = len(p.Columns)
				at[name] = i
				p.Columns = append(p.Columns, name)
			}
			for len(cells) <= i {
				cells = append(cells, "")
			}
			cells[i] = clip(cellText(value), cellMax)
		}
		p.Cells = append(p.Cells, cells)
	}
	// A later row may have brought columns that the earlier ones lack.
	for i, cells := range p.Cells {
		for len(cells) < len(p.Columns) {
			cells = append(cells, "")
		}
		p.Cells[i] = cells
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

func (p *queryPage) writeCSV(w http.ResponseWriter) error {
	if p.LeftOut {
		return &refusal{http.StatusBadRequest, fmt.Sprintf("The rows have more than %d properties; name those that are to be columns.", columnsMax)}
	}
	for _, cells := range p.Cells {
		for i := range cells {
			cells[i] = harmless(cells[i])
		}
	}
	// The names of properties are the application's users' too.
	heading := make([]string, len(p.Columns))
	for i, name := range p.Columns {
		heading[i] = harmless(name)
	}
	var out bytes.Buffer
	file := csv.NewWriter(&out)
	if err := file.Write(heading); err != nil {
		return err
	}
	if err := file.WriteAll(p.Cells); err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="rows.csv"`)
	_, _ = out.WriteTo(w) // who asked may have gone
	return nil
}
