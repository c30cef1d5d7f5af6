package console

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/millrace/millrace/store"
)

const (
	// downloadsMax bounds the files that are being written at a time, downloadTimeout the writing of one.
	downloadsMax    = 4
	downloadTimeout = time.Hour
	// downloadStep is how long the store may take for a page of rows, and the browser for taking it: who takes
	// nothing must not keep others from their files.
	downloadStep = 2 * time.Minute
	// heldRows and heldBytes bound the rows of a file that are held until its columns are known.
	heldRows  = 10_000
	heldBytes = 16 << 20
)

// savesRows tells whether a request asks for a file with all rows of a query.
func savesRows(r *http.Request) bool {
	q := r.URL.Query()
	return r.URL.Path == "/query" && q.Get("q") != "" && !q.Has("explain") && (q.Get("o") == "json" || q.Get("o") == "csv")
}

// download answers with a file that has all rows of a query, however many. The status comes before the rows, so what
// fails behind it cannot be told any more: the connection is broken off, by which a browser knows that the file is not
// whole, and the log says why.
func (c *Console) download(x *exchange, page *queryPage, form string) error {
	ct, err := c.queried(page)
	if err != nil {
		return err
	}
	ctx, cancel := c.untilEnd(x.r.Context())
	defer cancel()
	if err := awaitTurn(ctx, c.downloads, fmt.Sprintf("The console writes %d files already. Try again in a moment.", downloadsMax)); err != nil {
		return err
	}
	defer func() { <-c.downloads }()
	file := &rowFile{w: x.w}
	pages := &rowPages{query: ct.Query, next: store.QueryRequest{Text: page.Text, RowsMax: store.QueryRowsMax}, step: file.step}
	if form == "csv" {
		err = saveCSV(ctx, file, pages)
	} else {
		err = saveJSON(ctx, file, pages)
	}
	if err == nil || !file.begun {
		return err
	}
	if x.r.Context().Err() == nil || errors.Is(x.r.Context().Err(), context.DeadlineExceeded) { // else nobody takes it any more
		c.log.Warn("console: a file was broken off", "path", x.r.URL.Path, "error", err)
	}
	panic(http.ErrAbortHandler)
}

// rowPages reads the rows of a query, a page at a time. A copy goes on by itself from where it is.
type rowPages struct {
	query func(context.Context, store.QueryRequest) (*store.QueryPage, error)
	next  store.QueryRequest
	over  bool   // there is no further page
	step  func() // is called before each page
}

func (p *rowPages) read(ctx context.Context) ([][]byte, error) {
	p.step()
	found, err := p.query(ctx, p.next)
	if err != nil {
		return nil, err
	}
	p.next.Continuation = found.Continuation
	// Not by the rows: a page may be empty although more follow.
	p.over = found.Continuation == ""
	return found.Rows, nil
}

// rowFile is the file that somebody gets.
type rowFile struct {
	w     http.ResponseWriter
	begun bool // its first bytes are on their way: an error can only break it off
}

// step gives the next part of the work its time.
func (f *rowFile) step() {
	_ = http.NewResponseController(f.w).SetWriteDeadline(time.Now().Add(downloadStep)) // tests have no connection
}

// write writes the next part of the file; the first part with the headers.
func (f *rowFile) write(kind, name string, part *bytes.Buffer) error {
	if !f.begun {
		f.begun = true
		f.w.Header().Set("Cache-Control", "no-store")
		f.w.Header().Set("Content-Type", kind)
		if name != "" {
			f.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
		}
	}
	f.step()
	_, err := part.WriteTo(f.w)
	return err
}

// saveJSON writes a list of all rows. A short one is written as any other JSON is.
func saveJSON(ctx context.Context, f *rowFile, pages *rowPages) error {
	rows, err := pages.read(ctx)
	if err != nil {
		return err
	}
	if pages.over {
		list := make([]json.RawMessage, len(rows))
		for i := range rows {
			list[i] = rows[i]
		}
		return writeJSON(f.w, list)
	}
	part := bytes.NewBufferString("[")
	for separator := ""; ; {
		for _, row := range rows {
			part.WriteString(separator)
			separator = ",\n"
			if err := json.Compact(part, row); err != nil {
				return err
			}
		}
		if pages.over {
			part.WriteString("]\n")
		}
		if err := f.write("application/json", "", part); err != nil || pages.over {
			return err
		}
		if rows, err = pages.read(ctx); err != nil {
			return err
		}
	}
}

// saveCSV writes all rows as a table. Its columns are the properties of all rows, and stand at its beginning. So where
// there are more rows than are held, the rest is read twice:
//
//	held            columns, written
//	the rest        columns
//	the rest again  written
func saveCSV(ctx context.Context, f *rowFile, pages *rowPages) error {
	var held [][]byte
	heading := newColumns()
	for size := 0; !pages.over && len(held) < heldRows && size < heldBytes; {
		rows, err := pages.read(ctx)
		if err != nil {
			return err
		}
		for _, row := range rows {
			size += len(row)
			held = append(held, row)
			heading.add(row)
		}
	}
	rest := *pages
	for !pages.over && !heading.leftOut {
		rows, err := pages.read(ctx)
		if err != nil {
			return err
		}
		for _, row := range rows {
			heading.add(row)
		}
	}
	if heading.leftOut {
		return &refusal{http.StatusBadRequest, fmt.Sprintf("The rows have more than %d properties; name those that are to be columns.", columnsMax)}
	}
	var part bytes.Buffer
	table := csv.NewWriter(&part)
	if err := writeCells(table, heading.names); err != nil {
		return err
	}
	for rows := held; ; {
		for _, row := range rows {
			cells, whole := heading.cells(row)
			if !whole {
				return errNewColumn
			}
			if err := writeCells(table, cells); err != nil {
				return err
			}
		}
		if table.Flush(); table.Error() != nil {
			return table.Error()
		}
		if err := f.write("text/csv; charset=utf-8", "rows.csv", &part); err != nil || rest.over {
			return err
		}
		var err error
		if rows, err = rest.read(ctx); err != nil {
			return err
		}
	}
}

// errNewColumn says that a file cannot be whole.
var errNewColumn = errors.New("a row was written meanwhile that has a property for which there is no column")

// writeCells writes a line of a file. What stands in it, the names of properties too, is what the application's users have
// written.
func writeCells(table *csv.Writer, cells []string) error {
	for i := range cells {
		cells[i] = harmless(cells[i])
	}
	return table.Write(cells)
}
