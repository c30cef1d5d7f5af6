package pipelines

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/store"
)

// Verdict is what a verification found.
type Verdict string

// The verdicts, from the best to the worst. Of several pipelines it is the worst
// of theirs.
const (
	VerdictEqual  Verdict = "equal"  // every copy equals its source
	VerdictBehind Verdict = "behind" // copies differ, and the pipeline has not passed what made them
	VerdictDrift  Verdict = "drift"  // copies differ, and nothing in flight explains it
)

func worseVerdict(a, b Verdict) Verdict {
	rank := map[Verdict]int{VerdictEqual: 0, VerdictBehind: 1, VerdictDrift: 2}
	if rank[b] > rank[a] {
		return b
	}
	return a
}

// Report is the outcome of a verification.
type Report struct {
	Verdict   Verdict          `json:"verdict"`
	Duration  time.Duration    `json:"-"`
	Seconds   float64          `json:"seconds"` // Duration in seconds
	Pipelines []PipelineReport `json:"pipelines"`
}

// PipelineReport is the outcome for one pipeline.
type PipelineReport struct {
	Database   string  `json:"database"`
	Name       string  `json:"name"`
	Generation uint32  `json:"generation"`
	Verdict    Verdict `json:"verdict"`
	// Reason tells why a verdict is behind, if it is not the single copies.
	Reason string `json:"reason,omitempty"`
	// Items is the number of target items read; Copies that of copies compared
	// with a source that is there.
	Items  int64 `json:"items"`
	Copies int64 `json:"copies"`
	// Drift and Behind are copies among those; Dangling are references besides,
	// whose source is not there. They alone make no bad verdict.
	Drift    int64 `json:"drift"`
	Behind   int64 `json:"behind"`
	Dangling int64 `json:"dangling"`
	// Differences are the first of each kind.
	Differences []Difference `json:"differences,omitempty"`
}

func (r *PipelineReport) verdict() Verdict {
	switch {
	case r.Drift > 0:
		return VerdictDrift
	case r.Behind > 0:
		return VerdictBehind
	}
	return VerdictEqual
}

// DifferenceKind is what is wrong with a copy.
type DifferenceKind string

// The kinds of differences.
const (
	DifferenceDrift    DifferenceKind = "drift"
	DifferenceBehind   DifferenceKind = "behind"
	DifferenceDangling DifferenceKind = "dangling"
)

// Difference is one copy that does not equal its source, or has none.
type Difference struct {
	Kind DifferenceKind `json:"kind"`
	// Item holds the copy, in its version ETag; Element is the index in the array
	// of each, -1 if the item itself is the copy.
	Item    string     `json:"item"`
	ETag    store.ETag `json:"etag"`
	Element int        `json:"element"`
	// Source is the item that it copies; "" if the match fields can name none.
	Source string `json:"source,omitempty"`
	// Fields are those that differ; none if the source is not there.
	Fields []FieldDifference `json:"fields,omitempty"`
	// Reason tells what the pipeline has not done; only of what is behind.
	Reason string `json:"reason,omitempty"`
}

// FieldDifference is one field of a copy. An absent field is empty.
type FieldDifference struct {
	Field string          `json:"field"`
	Has   json.RawMessage `json:"has,omitempty"`
	Want  json.RawMessage `json:"want,omitempty"`
}

// String returns a line that tells what is wrong.
func (d *Difference) String() string {
	item := d.Item
	if d.Element >= 0 {
		item += fmt.Sprintf(" element %d", d.Element)
	}
	source := d.Source
	if source == "" {
		source = "no possible item"
	}
	s := fmt.Sprintf("%s %s", d.Kind, item)
	if d.Kind == DifferenceDangling {
		return s + ": there is no source " + source
	}
	fields := make([]string, len(d.Fields))
	for i, f := range d.Fields {
		fields[i] = fmt.Sprintf("%s is %s, of its source %s", f.Field, orAbsent(f.Has), orAbsent(f.Want))
	}
	s += ": " + strings.Join(fields, ", ") + " (source " + source + ")"
	if d.Reason != "" {
		s += "; " + d.Reason
	}
	return s
}

func orAbsent(raw json.RawMessage) string {
	if raw == nil {
		return "absent"
	}
	return string(raw)
}

// Print writes the report as a table, and below it the differences.
func (r *Report) Print(w io.Writer) error {
	if len(r.Pipelines) == 0 {
		_, err := fmt.Fprintln(w, "No pipeline is registered, so there is no copy to verify.")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PIPELINE\tVERDICT\tCOPIES\tDRIFT\tBEHIND\tDANGLING") // t keeps the error for Flush
	for i := range r.Pipelines {
		p := &r.Pipelines[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", p.title(), p.Verdict, count(p.Copies), count(p.Drift), count(p.Behind), count(p.Dangling))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range r.Pipelines {
		if err := r.Pipelines[i].details(w); err != nil {
			return err
		}
	}
	return nil
}

func (r *PipelineReport) title() string {
	p := PipelineStatus{Database: r.Database, Name: r.Name}
	return p.title()
}

// details writes the differences of one pipeline.
func (r *PipelineReport) details(w io.Writer) error {
	if r.Reason != "" {
		if _, err := fmt.Fprintf(w, "\n%s: %s\n", r.title(), r.Reason); err != nil {
			return err
		}
	}
	if len(r.Differences) == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(w, "\nDifferences of %s\n", r.title()); err != nil {
		return err
	}
	for i := range r.Differences {
		if _, err := fmt.Fprintf(w, "  %s\n", &r.Differences[i]); err != nil {
			return err
		}
	}
	more := r.Drift + r.Behind + r.Dangling - int64(len(r.Differences))
	if more > 0 {
		if _, err := fmt.Fprintf(w, "  and %s more\n", count(more)); err != nil {
			return err
		}
	}
	return nil
}
