package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
)

// Style is how a Plan is printed.
type Style struct {
	// Color marks what is new, another one and gone by the colors of a terminal.
	Color bool
	// Width bounds the characters of a line, which is cut there. Default 0: no bound.
	Width int
}

// valueCharsMax bounds what is printed of one value.
const valueCharsMax = 160

// planPrinter writes a plan.
type planPrinter struct {
	style Style
	out   strings.Builder
}

// Print writes the plan for people: what becomes of each resource, samples before and
// after, indexes, the graph of fields and the cost.
func (p *Plan) Print(w io.Writer, style Style) error {
	o := &planPrinter{style: style}
	for i := range p.Resources {
		if r := &p.Resources[i]; r.Action != registry.Unchanged || len(r.Notes) > 0 {
			o.resource(r)
		}
	}
	o.unchanged(p.Resources)
	o.graph(&p.Graph)
	if p.Changes() {
		o.line(0, "")
		o.line(0, "%s", p.summary())
	}
	_, err := io.WriteString(w, o.out.String())
	return err
}

// PrintGraph writes the graph for people.
func PrintGraph(w io.Writer, g *spec.FieldGraph, style Style) error {
	o := &planPrinter{style: style}
	o.graph(g)
	_, err := io.WriteString(w, strings.TrimPrefix(o.out.String(), "\n"))
	return err
}

func (o *planPrinter) graph(g *spec.FieldGraph) {
	if len(g.Fields) == 0 {
		return
	}
	o.line(0, "")
	o.line(0, "%s", o.paint("1", "Fields, each under what decides it"))
	for _, line := range g.Draw() {
		o.line(1, "%s", line)
	}
	for _, line := range g.Conclusion() {
		o.line(0, "%s", line)
	}
}

// line writes a line so many levels in.
func (o *planPrinter) line(level int, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if text != "" {
		text = strings.Repeat("  ", level) + text
	}
	// A line with colors is not cut: the code that ends a color could be lost, and codes count
	// as characters here.
	if w := o.style.Width; w > 4 && !strings.Contains(text, "\x1b") && utf8.RuneCountInString(text) > w {
		text = string([]rune(text)[:w-3]) + "..."
	}
	o.out.WriteString(text)
	o.out.WriteByte('\n')
}

func (o *planPrinter) paint(code, text string) string {
	if !o.style.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// The colors.
const (
	colorNew   = "32"
	colorOther = "33"
	colorGone  = "31"
	colorDim   = "2"
)

// resource writes what becomes of one resource.
func (o *planPrinter) resource(r *Resource) {
	sign, color, verb := "~", colorOther, "changes"
	switch r.Action {
	case registry.Created:
		sign, color, verb = "+", colorNew, "is created"
	case registry.Unchanged:
		sign, color, verb = "=", colorDim, "is unchanged"
	case registry.Changed:
	}
	if o.out.Len() > 0 && r.Kind == spec.KindPipeline {
		o.line(0, "")
	}
	head := fmt.Sprintf("%s %s %s %s", o.paint(color, sign), strings.ToLower(r.Kind), o.paint("1", r.title()), verb)
	if r.Generation > 1 && r.Action == registry.Changed {
		head += fmt.Sprintf(" (generation %d)", r.Generation)
	}
	o.line(0, "%s", head)
	for _, note := range r.Notes {
		// Apply prints a note by itself, so it begins with the generation, and a choice below with the
		// pipeline. Here both stand in the heading.
		if !r.tellsIndex(note) {
			o.line(2, "%s", strings.TrimPrefix(note, fmt.Sprintf("generation %d: ", r.Generation)))
		}
	}
	for _, e := range r.Definition {
		o.edit(2, &e)
	}
	if r.Choice != "" {
		choice := strings.TrimPrefix(r.Choice, fmt.Sprintf("pipeline %s/%s: ", r.Database, r.Name))
		o.line(2, "%s", o.paint(colorOther, choice))
	}
	for _, i := range r.Indexes {
		where := ""
		if i.Where != "" {
			where = " where " + i.Where
		}
		o.line(2, "index %s on %s%s: %s to be indexed", i.Path, i.Container, where, format.Plural(i.Items, "item", "items"))
	}
	if r.Effect != nil {
		o.effect(r.Effect)
	}
}

// tellsIndex says whether a note is of an index that is told of by itself.
func (r *Resource) tellsIndex(note string) bool {
	return slices.ContainsFunc(r.Indexes, func(i Index) bool { return strings.HasPrefix(note, "index "+i.Path+" is added ") })
}

func (r *Resource) title() string { return spec.Metadata{Name: r.Name, Database: r.Database}.Title() }

// effect writes what would change.
func (o *planPrinter) effect(e *Effect) {
	one, many := "item", "items"
	if e.Rows {
		one, many = "row", "rows"
	}
	o.line(2, "%s", o.paint("1", e.changes(one, many)))
	// A row that is rejected comes last, and Changes does not count it.
	changes := slices.IndexFunc(e.Samples, func(s Sample) bool { return s.Action == SampleRejected })
	if changes < 0 {
		changes = len(e.Samples)
	}
	for i := range e.Samples[:changes] {
		o.sample(&e.Samples[i])
	}
	// Without a sample there is nothing that the others could be more than.
	if more := e.Changes() - int64(changes); more > 0 && changes > 0 {
		o.line(3, "%s", o.paint(colorDim, "and "+format.Count(more)+" more"))
	}
	for i := range e.Samples[changes:] {
		o.sample(&e.Samples[changes+i])
	}
	for _, f := range []struct {
		n              int64
		one, many, say string
	}{
		{e.Dangling, "reference dangles", "references dangle", "what it names is not there, and nothing becomes of it"},
		{e.Rejected, one, many, "rejected, for a value that cannot be"},
		{e.Waiting, one, many, "to wait for a key that the row of another item holds"},
		{e.Left, one, many, "no item has any more, and it stays"},
	} {
		if f.n > 0 {
			o.line(2, "%s: %s", format.Plural(f.n, f.one, f.many), f.say)
		}
	}
	for _, note := range e.Notes {
		o.line(2, "%s", note)
	}
	if e.Cost.Reads+e.Cost.Writes > 0 {
		o.line(2, "%s", e.Cost.text())
	}
}

// changes counts what would change.
func (e *Effect) changes(one, many string) string {
	switch {
	case e.Compared == 0 && e.Changes() == 0:
		return fmt.Sprintf("no %s of %s would change", one, e.Into)
	case e.Changes() == 0:
		return fmt.Sprintf("no %s of %s would change: %s as it must be", one, e.Into, format.Count(e.Equal))
	}
	var parts []string
	for _, f := range []struct {
		n    int64
		verb string
	}{{e.Created, "created"}, {e.Changed, "changed"}, {e.Deleted, "deleted"}} {
		if f.n > 0 {
			parts = append(parts, format.Count(f.n)+" "+f.verb)
		}
	}
	s := fmt.Sprintf("%s of %s would change: %s, %s equal", format.Plural(e.Changes(), one, many), e.Into, strings.Join(parts, ", "), format.Count(e.Equal))
	if e.Copies > e.Changes() {
		s += fmt.Sprintf(" (%s copies)", format.Count(e.Copies))
	}
	return s
}

// sample writes one item or row before and after.
func (o *planPrinter) sample(s *Sample) {
	name := s.Item
	if s.Table != "" {
		name = s.Table + " " + Short(s.Row)
	}
	switch s.Action {
	case SampleDeleted:
		o.line(3, "%s %s", o.paint(colorGone, "-"), name)
		return
	case SampleRejected:
		o.line(3, "%s %s of %s: %s", o.paint(colorGone, "!"), s.Table, s.Source, s.Reason)
		return
	case SampleCreated:
		o.line(3, "%s %s", o.paint(colorNew, "+"), name)
		for _, e := range s.Edits {
			o.line(4, "%s: %s", e.Path, o.paint(colorNew, Short(e.New)))
		}
		o.more(s.More)
		return
	case SampleChanged:
		o.line(3, "%s %s", o.paint(colorOther, "~"), name)
	}
	for i := range s.Edits {
		o.edit(4, &s.Edits[i])
	}
	o.more(s.More)
}

func (o *planPrinter) more(n int) {
	if n > 0 {
		o.line(4, "%s", o.paint(colorDim, fmt.Sprintf("and %d more", n)))
	}
}

// edit writes one place before and after.
func (o *planPrinter) edit(level int, e *Edit) {
	o.line(level, "%s: %s -> %s", e.Path, o.paint(colorGone, Short(e.Old)), o.paint(colorNew, Short(e.New)))
}

// Short prints a value, of a long one the beginning.
func Short(raw json.RawMessage) string {
	if raw == nil {
		return "absent"
	}
	if r := []rune(string(raw)); len(r) > valueCharsMax {
		return string(r[:valueCharsMax-3]) + "..."
	}
	return string(raw)
}

// unchanged names what stays as it is.
func (o *planPrinter) unchanged(resources []Resource) {
	for _, kind := range []string{spec.KindContainer, spec.KindPipeline} {
		var names []string
		for i := range resources {
			if r := &resources[i]; r.Kind == kind && r.Action == registry.Unchanged && len(r.Notes) == 0 {
				names = append(names, r.title())
			}
		}
		if len(names) == 0 {
			continue
		}
		if o.out.Len() > 0 {
			o.line(0, "")
		}
		o.line(0, "%s %s unchanged: %s", o.paint(colorDim, "="), strings.ToLower(kind)+"s", strings.Join(names, ", "))
	}
}

// text tells what it takes.
func (c *Cost) text() string {
	s := fmt.Sprintf("about %s: to read %s at %s/s", seconds(c.Seconds), format.Plural(c.Reads, "change", "changes"), format.Count(int64(c.ReadsPerSecond)))
	if c.Writes > 0 {
		s += fmt.Sprintf(", to write %s at %s/s, %s", format.Count(c.Writes), format.Count(int64(c.WritesPerSecond)), bytesText(c.Bytes))
	}
	return s
}

// summary tells of all resources together.
func (p *Plan) summary() string {
	n := map[registry.Action]int{}
	var items, rows int64
	for i := range p.Resources {
		r := &p.Resources[i]
		n[r.Action]++
		switch {
		case r.Effect == nil:
		case r.Effect.Rows:
			rows += r.Effect.Changes()
		default:
			items += r.Effect.Changes()
		}
	}
	var parts []string
	add := func(n int64, text string) {
		if n > 0 {
			parts = append(parts, text)
		}
	}
	add(int64(n[registry.Created]), format.Plural(int64(n[registry.Created]), "resource", "resources")+" to create")
	add(int64(n[registry.Changed]), format.Plural(int64(n[registry.Changed]), "resource", "resources")+" to change")
	add(items, format.Plural(items, "item", "items")+" not as they would be")
	add(rows, format.Plural(rows, "row", "rows")+" not as they would be")
	add(p.Cost.Writes, bytesText(p.Cost.Bytes)+" to write")
	add(p.Cost.Reads+p.Cost.Writes, "about "+seconds(p.Cost.Seconds))
	return "In all: " + strings.Join(parts, ", ")
}

// seconds prints an estimate with two digits.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d >= time.Hour:
		return d.Round(time.Minute).String()
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0fs", s)
	}
	return fmt.Sprintf("%.1fs", s)
}

// bytesText prints a number of bytes with two or three digits.
func bytesText(n int64) string {
	const unit = 1000
	if n < unit {
		return format.Plural(n, "byte", "bytes")
	}
	value, names := float64(n)/unit, []string{"kB", "MB", "GB", "TB"}
	for value >= unit && len(names) > 1 {
		value, names = value/unit, names[1:]
	}
	if value < 10 {
		return fmt.Sprintf("%.1f %s", value, names[0])
	}
	return fmt.Sprintf("%.0f %s", value, names[0])
}
