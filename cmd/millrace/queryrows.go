package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/millrace/millrace/cmd/millrace/internal/declaration"
	"github.com/millrace/millrace/feed/document"
)

// rowWriter prints the rows of a query as they come. The columns of a table are the
// properties of the rows of the first page.
type rowWriter struct {
	w             io.Writer
	form          string
	width         int      // of the terminal; 0 is none
	names         []string // of columns; nil before the first page
	widths        []int    // of columns
	scalar        bool     // rows are no objects
	count         int
	withoutColumn []string // properties without a column
	withoutCells  int      // later rows that are no objects, where the first ones are
	csv           *csv.Writer
	yaml          []json.RawMessage // which can only be printed whole
}

func newRowWriter(w io.Writer, form string) *rowWriter {
	r := &rowWriter{w: w, form: form}
	if width, ok := terminal(w); ok {
		r.width = width
	}
	if form == "csv" {
		r.csv = csv.NewWriter(w)
	}
	return r
}

// writePage prints the rows of a page.
func (r *rowWriter) writePage(rows [][]byte) error {
	if len(rows) == 0 {
		return nil
	}
	switch r.form {
	case "json", "ndjson":
		return r.writeJSON(rows)
	case "yaml":
		for _, row := range rows {
			r.yaml = append(r.yaml, json.RawMessage(row))
		}
		return nil
	}
	if r.count == 0 {
		r.findColumns(rows)
		if err := r.writeHeader(rows); err != nil {
			return err
		}
	}
	for _, row := range rows {
		r.count++
		if err := r.writeCells(r.cells(row)); err != nil {
			return err
		}
	}
	return r.flush()
}

// writeJSON prints each row as JSON in a line.
func (r *rowWriter) writeJSON(rows [][]byte) error {
	var out bytes.Buffer
	for _, row := range rows {
		switch {
		case r.form == "ndjson":
		case r.count == 0:
			out.WriteString("[\n  ")
		default:
			out.WriteString(",\n  ")
		}
		if err := json.Compact(&out, row); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		if r.form == "ndjson" {
			out.WriteByte('\n')
		}
		r.count++
	}
	_, err := r.w.Write(out.Bytes())
	return err
}

// close ends the output.
func (r *rowWriter) close() error {
	switch {
	case r.form == "json" && r.count == 0:
		_, err := io.WriteString(r.w, "[]\n")
		return err
	case r.form == "json":
		_, err := io.WriteString(r.w, "\n]\n")
		return err
	case r.form == "yaml":
		if r.yaml == nil {
			r.yaml = []json.RawMessage{}
		}
		return declaration.WriteYAML(r.w, r.yaml)
	case r.form == "table" && r.count == 0:
		_, err := io.WriteString(r.w, "no rows\n")
		return err
	}
	return r.flush()
}

func (r *rowWriter) flush() error {
	if r.csv == nil {
		return nil
	}
	r.csv.Flush()
	return r.csv.Error()
}

// findColumns finds the columns of a table in its first rows. Rows are printed as they come,
// so nothing later can add one.
func (r *rowWriter) findColumns(rows [][]byte) {
	r.names = []string{}
	for _, row := range rows {
		if document.KindOf(row) != document.Object {
			r.scalar = true
			r.names = []string{"value"}
			return
		}
		document.Members(row, func(name, _ []byte) bool {
			if !slices.Contains(r.names, string(name)) {
				r.names = append(r.names, string(name))
			}
			return true
		})
	}
}

// cells returns the values of a row in the order of the columns.
func (r *rowWriter) cells(row []byte) []string {
	if r.scalar {
		return []string{cell(row)}
	}
	cells := make([]string, len(r.names))
	if document.KindOf(row) != document.Object {
		r.withoutCells++
		return cells
	}
	document.Members(row, func(name, raw []byte) bool {
		at := slices.Index(r.names, string(name))
		switch {
		case at >= 0:
			cells[at] = cell(raw)
		case !slices.Contains(r.withoutColumn, string(name)):
			r.withoutColumn = append(r.withoutColumn, string(name))
		}
		return true
	})
	return cells
}

// cell returns a value as a table shows it: text as it is, others as JSON.
func cell(raw []byte) string {
	if text, ok := document.Text(raw); ok {
		return text
	}
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil {
		return string(raw)
	}
	return out.String()
}

// cellMax is how wide a column of a table is at most, on a terminal.
const cellMax = 40

// writeHeader prints the names of the columns. Their widths fit the first rows.
func (r *rowWriter) writeHeader(rows [][]byte) error {
	if r.csv != nil {
		return r.csv.Write(r.names)
	}
	// Later rows may be wider and are not waited for: a table of a million rows begins at
	// once, and some lines of it are out of line.
	r.widths = make([]int, len(r.names))
	measure := func(cells []string) {
		for i, c := range cells {
			r.widths[i] = max(r.widths[i], len([]rune(plain(c))))
		}
	}
	measure(r.names)
	for _, row := range rows {
		measure(r.cells(row))
	}
	if r.width > 0 {
		for i := range r.widths {
			r.widths[i] = min(r.widths[i], cellMax)
		}
	}
	names := make([]string, len(r.names))
	for i, name := range r.names {
		names[i] = strings.ToUpper(name)
	}
	return r.writeCells(names)
}

// writeCells prints the cells of a row.
func (r *rowWriter) writeCells(cells []string) error {
	if r.csv != nil {
		return r.csv.Write(cells)
	}
	var b strings.Builder
	for i, c := range cells {
		c = plain(c)
		if r.width > 0 {
			c = cut(c, r.widths[i])
		}
		b.WriteString(c)
		if pad := r.widths[i] + 2 - len([]rune(c)); i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", max(pad, 1)))
		}
	}
	text := strings.TrimRight(b.String(), " ")
	if r.width > 0 {
		text = cut(text, r.width)
	}
	_, err := io.WriteString(r.w, text+"\n")
	return err
}

// plain shows control characters, such as an end of line, as spaces.
func plain(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7F {
			return ' '
		}
		return c
	}, s)
}
