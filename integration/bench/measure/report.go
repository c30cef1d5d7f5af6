//go:build linux

package measure

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Report is what one run of the benchmarks has to say.
type Report struct {
	Began   time.Time `json:"began"`
	Machine Machine   `json:"machine"`
	Tables  []*Table  `json:"tables"`
}

// Table holds the figures of one case, and the bars that they must clear.
type Table struct {
	// ID names the case: it is the marker in the documentation and never changes.
	ID    string `json:"id"`
	Title string `json:"title"`
	// Note tells what was done, in sentences.
	Note    string   `json:"note"`
	Columns []string `json:"columns"`
	Rows    []*Row   `json:"rows"`
	Bars    []Bar    `json:"bars,omitempty"`
	// Others is the share of all processors, in per cent, that neither the
	// benchmark nor its peers used: what else the machine was doing.
	Others Series `json:"othersCPUPercent,omitempty"`
}

// Row is what one system did in one configuration.
type Row struct {
	Name   string            `json:"name"`
	Values map[string]Series `json:"values"` // by column
	table  *Table
}

// Bar is a promise and what was measured.
type Bar struct {
	Text     string  `json:"text"`
	Limit    float64 `json:"limit"`
	AtMost   bool    `json:"atMost"` // else at least
	Unit     string  `json:"unit,omitempty"`
	Measured Series  `json:"measured"`
	// Judged is false if the run was not of the size that the bar is about.
	Judged bool `json:"judged"`
}

// Met says whether the median clears the bar.
func (b *Bar) Met() bool {
	if len(b.Measured) == 0 {
		return false
	}
	if b.AtMost {
		return b.Measured.Median() <= b.Limit
	}
	return b.Measured.Median() >= b.Limit
}

// Verdict is "met", "missed" or why neither can be said.
func (b *Bar) Verdict() string {
	switch {
	case len(b.Measured) == 0:
		return "not measured"
	case !b.Judged:
		return "not judged at this size"
	case b.Met():
		return "met"
	}
	return "**missed**"
}

// Row returns the row with this name, and makes it if there is none.
func (t *Table) Row(name string) *Row {
	for _, r := range t.Rows {
		if r.Name == name {
			return r
		}
	}
	r := &Row{Name: name, Values: map[string]Series{}, table: t}
	t.Rows = append(t.Rows, r)
	return r
}

// Add appends a sample to a column of the row, and the column to the table if it
// is new.
func (r *Row) Add(column string, v float64) {
	if !slices.Contains(r.table.Columns, column) {
		r.table.Columns = append(r.table.Columns, column)
	}
	r.Values[column] = append(r.Values[column], v)
}

// Series returns the samples of one row and column, nil if there are none.
func (t *Table) Series(row, column string) Series {
	for _, r := range t.Rows {
		if r.Name == row {
			return r.Values[column]
		}
	}
	return nil
}

// Ratio divides a column of one row by that of another, round by round.
func (t *Table) Ratio(row, by, column string) Series {
	return t.Series(row, column).Over(t.Series(by, column))
}

// Beside adds a column to one row: how many times that of the peer a column of it
// is, round by round. Without a peer's samples there is nothing to add.
func (t *Table) Beside(row, peer, column, as string) {
	for _, ratio := range t.Ratio(row, peer, column) {
		t.Row(row).Add(as, ratio)
	}
}

// AtLeast adds a bar that the median must reach. A peer that did not run leaves
// no samples, and then there is no bar.
func (t *Table) AtLeast(text string, measured Series, limit float64, unit string, judged bool) {
	if len(measured) > 0 {
		t.Bars = append(t.Bars, Bar{Text: text, Limit: limit, Unit: unit, Measured: measured, Judged: judged})
	}
}

// AtMost adds a bar that the median must not exceed, as AtLeast does.
func (t *Table) AtMost(text string, measured Series, limit float64, unit string, judged bool) {
	if len(measured) > 0 {
		t.Bars = append(t.Bars, Bar{Text: text, Limit: limit, AtMost: true, Unit: unit, Measured: measured, Judged: judged})
	}
}

// Missed returns the bars that were judged and not cleared.
func (r *Report) Missed() []Bar {
	var missed []Bar
	for _, t := range r.Tables {
		for i := range t.Bars {
			if b := &t.Bars[i]; b.Judged && !b.Met() {
				missed = append(missed, *b)
			}
		}
	}
	return missed
}

// Markdown writes the table and its bars. An error is w's.
func (t *Table) Markdown(w io.Writer) error {
	var b strings.Builder
	if t.Note != "" {
		fmt.Fprintf(&b, "%s\n\n", t.Note)
	}
	fmt.Fprintf(&b, "| | %s |\n|---%s|\n", strings.Join(t.Columns, " | "), strings.Repeat("|---", len(t.Columns)))
	for _, r := range t.Rows {
		b.WriteString("| " + r.Name + " |")
		for _, c := range t.Columns {
			b.WriteString(" " + r.Values[c].String() + " |")
		}
		b.WriteByte('\n')
	}
	if len(t.Bars) > 0 {
		b.WriteString("\n| bar | asked | measured | |\n|---|---|---|---|\n")
		for i := range t.Bars {
			bar := &t.Bars[i]
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", bar.Text, bar.asked(), bar.Measured, bar.Verdict())
		}
	}
	if len(t.Others) > 0 {
		fmt.Fprintf(&b, "\nOther work on the machine meanwhile, in %% of its processors: %s.\n", t.Others)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (b *Bar) asked() string {
	word := "at least"
	if b.AtMost {
		word = "at most"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", word, Number(b.Limit), b.Unit))
}

// Markdown writes the machine and all tables, each under its title.
func (r *Report) Markdown(w io.Writer) error {
	if err := r.Machine.Markdown(w); err != nil {
		return err
	}
	for _, t := range r.Tables {
		if _, err := fmt.Fprintf(w, "\n## %s\n\n", t.Title); err != nil {
			return err
		}
		if err := t.Markdown(w); err != nil {
			return err
		}
	}
	return nil
}
