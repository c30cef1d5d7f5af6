package verify

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/spec"

	"github.com/millrace/millrace/store"
)

// Verdict is what a verification found.
type Verdict string

// The verdicts, from the best to the worst. Of several pipelines it is the worst
// of theirs.
const (
	VerdictEqual    Verdict = "equal"    // every copy equals its source
	VerdictUnjudged Verdict = "unjudged" // some of what was to be compared could not be read here, or not told apart
	VerdictBehind   Verdict = "behind"   // copies differ, and the pipeline has not passed what made them
	VerdictDrift    Verdict = "drift"    // copies differ, and nothing in flight explains it
)

func worseVerdict(a, b Verdict) Verdict {
	rank := map[Verdict]int{VerdictEqual: 0, VerdictUnjudged: 1, VerdictBehind: 2, VerdictDrift: 3}
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
// While a verification runs, its mu guards the report; see Verified.
type PipelineReport struct {
	Database   string            `json:"database"`
	Name       string            `json:"name"`
	Kind       spec.PipelineKind `json:"kind"`
	Generation uint32            `json:"generation"`
	Verdict    Verdict           `json:"verdict"`
	// Reason tells why a verdict is behind, if it is not the single copies, or why
	// there is none.
	Reason   string `json:"reason,omitempty"`
	unjudged bool
	// Items is the number of items read, of the target, and of the source where
	// its items were read one by one.
	Items int64 `json:"items"`
	// Copies is the number of copies compared: of a cascade those whose source is
	// there, of an aggregate the items that carry its fields, of a projection rows
	// and rejects. Groups are the accumulators of an aggregate that were compared
	// with their members besides.
	Copies int64 `json:"copies"`
	Groups int64 `json:"groups,omitempty"`
	// Kept are rows, among the copies, whose item has expired.
	Kept int64 `json:"kept,omitempty"`
	// Drift and Behind are copies, or groups, among those; Dangling are references
	// besides whose source, or groups whose target, is not there. They alone make no
	// bad verdict.
	Drift    int64 `json:"drift"`
	Behind   int64 `json:"behind"`
	Dangling int64 `json:"dangling"`
	// Unjudged are rows besides of which nobody can tell whether they are right. Where there
	// are any, the verdict is unjudged, or behind or drift if others are that.
	Unjudged int64 `json:"unjudged,omitempty"`
	// Repaired are those that a repair has repaired. They are no drift any more.
	Repaired int64 `json:"mended,omitempty"`
	// Splits is how often a partition of its source or target was split meanwhile, and the
	// verification of the pipeline began anew: the numbers above are the last one's, but for Repaired.
	Splits int `json:"splits,omitempty"`
	// Differences are the first of each kind.
	Differences []Difference `json:"differences,omitempty"`
}

func (r *PipelineReport) verdict() Verdict {
	switch {
	case r.Drift > 0:
		return VerdictDrift
	case r.Behind > 0, r.Reason != "" && !r.unjudged:
		return VerdictBehind
	case r.unjudged, r.Unjudged > 0:
		return VerdictUnjudged
	}
	return VerdictEqual
}

// add counts a difference, and lists it if there are fewer of its kind than
// listMax.
func (r *PipelineReport) add(d Difference, listMax int) {
	switch d.Kind {
	case DifferenceDrift:
		r.Drift++
	case DifferenceBehind:
		r.Behind++
	case DifferenceDangling:
		r.Dangling++
	case DifferenceUnjudged:
		r.Unjudged++
	case DifferenceRepaired:
		r.Repaired++
	}
	// Copies that equal their source are counted page by page (countEqual); one that does not is
	// counted here, by its difference.
	switch {
	case d.Kind == DifferenceDangling, d.Kind == DifferenceUnjudged: // nothing was compared
	case d.onlyGroup() && d.Kind == DifferenceRepaired: // and counted as equal then
	case d.onlyGroup():
		r.Groups++
	default:
		r.Copies++
	}
	// Bounded for each kind by itself: a thousand dangling references must not keep the one copy
	// that drifts out of the list.
	listed := 0
	for i := range r.Differences {
		if r.Differences[i].Kind == d.Kind {
			listed++
		}
	}
	if listed < listMax {
		r.Differences = append(r.Differences, d)
	}
}

// DifferenceKind is what is wrong with a copy.
type DifferenceKind string

// The kinds of differences.
const (
	DifferenceDrift    DifferenceKind = "drift"
	DifferenceBehind   DifferenceKind = "behind"
	DifferenceDangling DifferenceKind = "dangling"
	DifferenceUnjudged DifferenceKind = "unjudged" // it may be right, or not: what would tell is gone
	DifferenceRepaired DifferenceKind = "mended"   // it was drift
)

// word is the kind as people read it. Programs go on to read mended.
func (k DifferenceKind) word() string {
	if k == DifferenceRepaired {
		return "repaired"
	}
	return string(k)
}

// Difference is one copy, row or group that does not equal its source, or has none.
type Difference struct {
	Kind DifferenceKind `json:"kind"`
	// Item holds the copy, in its version ETag; Element is the index in the array
	// of each, -1 if the item itself is the copy. Of a group it is the target, where
	// that is known by its name; without an ETag, the accumulator itself differs.
	Item    string     `json:"item,omitempty"`
	ETag    store.ETag `json:"etag,omitzero"`
	Element int        `json:"element"`
	// Group is the group of an aggregate: the values of match.
	Group string `json:"group,omitempty"`
	// Table and Row are the table and the key of a row; a reject has none. Missing and
	// Surplus say that it is not there, and that it should not be.
	Table   string          `json:"table,omitempty"`
	Row     json.RawMessage `json:"row,omitempty"`
	Missing bool            `json:"missing,omitempty"`
	Surplus bool            `json:"surplus,omitempty"`
	// Source is the item that it copies; "" if the match fields can name none.
	Source string `json:"source,omitempty"`
	// Fields are those that differ, of a row its columns; none if the source is not
	// there.
	Fields []FieldDifference `json:"fields,omitempty"`
	// Note tells what the rest does not.
	Note string `json:"note,omitempty"`
	// Reason tells what the pipeline has not done; only of what is behind.
	Reason string `json:"reason,omitempty"`
}

// onlyGroup says that it is an accumulator which differs.
func (d *Difference) onlyGroup() bool { return d.Group != "" && d.ETag == (store.ETag{}) }

// FieldDifference is one field of a copy. An absent field is empty.
type FieldDifference struct {
	Field string          `json:"field"`
	Has   json.RawMessage `json:"has,omitempty"`
	Want  json.RawMessage `json:"want,omitempty"`
}

// String returns a line that tells what is wrong.
func (d *Difference) String() string {
	s := d.Kind.word() + " " + d.what()
	switch {
	case d.Kind == DifferenceDangling && d.Group != "":
		return s + ": it has members and no target"
	case d.Kind == DifferenceDangling:
		return s + ": there is no source " + d.source()
	}
	s += ": " + d.how()
	switch {
	case d.Group != "":
	case d.Source != "" || d.Table == "":
		s += " (source " + d.source() + ")"
	}
	if d.Reason != "" {
		s += "; " + d.Reason
	}
	return s
}

// what names the copy.
func (d *Difference) what() string {
	switch {
	case d.Table != "" && d.Row == nil:
		return "table " + d.Table + " reject"
	case d.Table != "":
		return fmt.Sprintf("table %s row %s", d.Table, d.Row)
	case d.Group != "" && d.Item == "":
		return "group " + d.Group
	case d.Group != "":
		return fmt.Sprintf("%s group %s", d.Item, d.Group)
	case d.Element >= 0:
		return fmt.Sprintf("%s element %d", d.Item, d.Element)
	}
	return d.Item
}

// how tells what is wrong with it.
func (d *Difference) how() string {
	of := "of its source"
	switch {
	case d.onlyGroup():
		of = "of its members"
	case d.Group != "":
		of = "of its group"
	}
	var all []string
	for _, f := range d.Fields {
		all = append(all, fmt.Sprintf("%s is %s, %s %s", f.Field, orAbsent(f.Has), of, orAbsent(f.Want)))
	}
	switch {
	case d.Missing:
		all = append(all, "is missing")
	case d.Surplus:
		all = append(all, "should not be there")
	}
	if d.Note != "" {
		all = append(all, d.Note)
	}
	return strings.Join(all, ", ")
}

func (d *Difference) source() string {
	if d.Source == "" {
		return "no possible item"
	}
	return d.Source
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
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", p.title(), p.Verdict, format.Count(p.Copies), format.Count(p.Drift), format.Count(p.Behind), format.Count(p.Dangling))
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
	return spec.Metadata{Name: r.Name, Database: r.Database}.Title()
}

// details writes the differences of one pipeline.
func (r *PipelineReport) details(w io.Writer) error {
	if r.Reason != "" {
		if _, err := fmt.Fprintf(w, "\n%s: %s\n", r.title(), r.Reason); err != nil {
			return err
		}
	}
	if r.Splits > 0 {
		if _, err := fmt.Fprintf(w, "\n%s: a partition was split meanwhile, and the verification began anew\n", r.title()); err != nil {
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
	more := r.Drift + r.Behind + r.Dangling + r.Unjudged + r.Repaired - int64(len(r.Differences))
	if more > 0 {
		if _, err := fmt.Fprintf(w, "  and %s more\n", format.Count(more)); err != nil {
			return err
		}
	}
	return nil
}
