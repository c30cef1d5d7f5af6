package spec

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// FieldGraph tells which field decides which: the fields that pipelines set, as far
// as declared pipelines have to do with them.
type FieldGraph struct {
	Fields []GraphField `json:"fields"`
	// Cycles are the paths that lead back: indexes of Fields, of which the last one
	// leads to the first. Where there is one, the copies need not come to rest, and
	// Apply refuses the declarations.
	Cycles [][]int `json:"cycles"`
	// Returns are the ways on which containers lead back, though no field does:
	// pipelines whose containers follow each other, the last one into the source of
	// the first. That is normal.
	Returns [][]ContainerStep `json:"returns"`
}

// GraphField is a field that a pipeline sets.
type GraphField struct {
	// Container is its name, with the database unless that is the default one; Field
	// is the path of the field, or * for items as a whole, which come and go.
	Container string `json:"container"`
	Field     string `json:"field"`
	Pipeline  string `json:"pipeline"`
	// Declared says that the pipeline is one of those that are planned.
	Declared bool `json:"declared"`
	// From are the fields of the source that its value is taken from; none if it is
	// only decided by which items there are.
	From []string `json:"from"`
	// Source is the container of the source.
	Source string `json:"source"`
	// Leads are the indexes of the fields that it decides.
	Leads []int `json:"leads"`
}

// String prints container.field.
func (f *GraphField) String() string { return f.Container + "." + f.Field }

// ContainerStep is a pipeline between two containers.
type ContainerStep struct {
	Pipeline string `json:"pipeline"`
	From     string `json:"from"`
	Into     string `json:"into"`
}

// NewShapes returns what pipelines read and write, those that are declared and those
// of what exists. What is wrong with them is found by Check.
func NewShapes(declared *Resources, w Existing) *Checker {
	c := newChecker(declared, w)
	for _, p := range c.Pipelines {
		if p.declared {
			c.pipeline(p)
		}
	}
	return c
}

// FieldGraph returns the graph of fields for people.
func (c *Checker) FieldGraph() FieldGraph {
	nodes, next := c.graph()
	kept := related(nodes, next)
	index := map[int]int{}
	g := FieldGraph{Fields: []GraphField{}, Cycles: [][]int{}, Returns: c.returns()}
	for i := range nodes {
		if kept[i] {
			index[i] = len(g.Fields)
			g.Fields = append(g.Fields, nodes[i].field())
		}
	}
	seen := make([]bool, len(nodes))
	for i := range nodes {
		if !kept[i] {
			continue
		}
		f := &g.Fields[index[i]]
		for _, to := range next[i] {
			if kept[to] && !slices.Contains(f.Leads, index[to]) {
				f.Leads = append(f.Leads, index[to])
			}
		}
		// A cycle is kept as a whole or not at all: each of its nodes leads to all others. So
		// index knows all of them.
		if cycle := shortestCycle(next, i); cycle != nil && !seen[i] {
			// shortestCycle ends with i, which the path begins with.
			path := []int{index[i]}
			for _, n := range cycle[:len(cycle)-1] {
				seen[n] = true
				path = append(path, index[n])
			}
			g.Cycles = append(g.Cycles, path)
		}
	}
	return g
}

// related tells which nodes lead to a declared one, or come from one.
func related(nodes []write, next [][]int) []bool {
	back := make([][]int, len(nodes))
	for i := range next {
		for _, to := range next[i] {
			back[to] = append(back[to], i)
		}
	}
	kept := make([]bool, len(nodes))
	// One walk for each direction. A walk that turned round would keep all that hangs together
	// in any way:
	//
	//	a -> b <- c      a is declared: b is kept, c has nothing to do with a
	for _, edges := range [][][]int{next, back} {
		seen := make([]bool, len(nodes))
		var visit func(i int)
		visit = func(i int) {
			if seen[i] {
				return
			}
			seen[i], kept[i] = true, true
			for _, to := range edges[i] {
				visit(to)
			}
		}
		for i := range nodes {
			if nodes[i].pipeline.declared {
				visit(i)
			}
		}
	}
	return kept
}

// field tells of a node.
func (w *write) field() GraphField {
	f := GraphField{
		Container: shortName(w.shape.Target), Field: "*", Pipeline: w.pipeline.Name, Declared: w.pipeline.declared,
		From: []string{}, Source: shortName(w.shape.source), Leads: []int{},
	}
	if w.set != w.shape.whole {
		f.Field = w.set.target.String()
	}
	// Scope.count ends in a step without a name. People read details[*] in its place.
	for _, value := range w.set.values {
		path := value
		for n := len(path); n > 0 && path[n-1].Name == "" && !path[n-1].All && !path[n-1].IsIndex; n = len(path) {
			path = path[:n-1] // it stands for which elements there are
		}
		if from := f.Source + "." + path.String(); !slices.Contains(f.From, from) {
			f.From = append(f.From, from)
		}
	}
	return f
}

// shortName is database/name without the default database.
func shortName(name string) string { return strings.TrimPrefix(name, DatabaseDefault+"/") }

// returns finds the shortest way back to its source from the target of each declared
// pipeline, of several through the same containers the first.
func (c *Checker) returns() [][]ContainerStep {
	var steps []ContainerStep
	var declared []bool
	for _, p := range c.Pipelines {
		for _, s := range p.Shapes {
			step := ContainerStep{p.Name, shortName(s.source), shortName(s.Target)}
			if !slices.Contains(steps, step) {
				steps, declared = append(steps, step), append(declared, p.declared)
			}
		}
	}
	next := make([][]int, len(steps))
	for i := range steps {
		for j := range steps {
			if steps[i].Into == steps[j].From {
				next[i] = append(next[i], j)
			}
		}
	}
	found, told := [][]ContainerStep{}, map[string]bool{}
	for i := range steps {
		cycle := shortestCycle(next, i)
		if cycle == nil || !declared[i] {
			continue
		}
		way := []ContainerStep{steps[i]}
		for _, n := range cycle[:len(cycle)-1] {
			way = append(way, steps[n])
		}
		// Each declared pipeline of a circle finds it, and begins elsewhere. The names in order
		// tell that it is the same:
		//
		//	meta -> product -> order -> meta      product -> order -> meta -> product
		var through []string
		for _, step := range way {
			through = append(through, step.From)
		}
		slices.Sort(through)
		if key := strings.Join(through, " "); !told[key] {
			told[key] = true
			found = append(found, way)
		}
	}
	return found
}

// drawLine is a line of a drawing, with what stands at its right.
type drawLine struct{ text, right string }

// drawing draws a graph as trees: each field under one that decides it.
type drawing struct {
	g     *FieldGraph
	drawn []bool
	lines []drawLine
}

// Draw returns the graph as lines of text.
func (g *FieldGraph) Draw() []string {
	d := &drawing{g: g, drawn: make([]bool, len(g.Fields))}
	led := make([]bool, len(g.Fields))
	for i := range g.Fields {
		for _, to := range g.Fields[i].Leads {
			// A field that nothing but itself leads to begins a tree too.
			led[to] = led[to] || to != i
		}
	}
	var order []string // of what the first fields come from
	first := map[string][]int{}
	add := func(i int) {
		label := g.Fields[i].from()
		if first[label] == nil {
			order = append(order, label)
		}
		first[label] = append(first[label], i)
	}
	reached := make([]bool, len(g.Fields))
	var reach func(i int)
	reach = func(i int) {
		if !reached[i] {
			reached[i] = true
			for _, to := range g.Fields[i].Leads {
				reach(to)
			}
		}
	}
	for i := range g.Fields {
		if !led[i] {
			add(i)
			// What a tree draws begins no other. So a circle below begins one tree, not one for
			// each field on it.
			reach(i)
		}
	}
	for i := range g.Fields { // what is left goes round in circles
		if !reached[i] {
			add(i)
			reach(i)
		}
	}
	for _, label := range order {
		d.lines = append(d.lines, drawLine{text: label})
		d.children("", first[label])
	}
	return aligned(d.lines)
}

// from names what a field is taken from.
func (f *GraphField) from() string {
	const namesMax = 4
	switch n := len(f.From); {
	case n == 0:
		return f.Source + ".*"
	case n > namesMax:
		return fmt.Sprintf("%s and %d more", strings.Join(f.From[:namesMax], ", "), n-namesMax)
	}
	return strings.Join(f.From, ", ")
}

// children draws fields under what decides them.
func (d *drawing) children(indent string, fields []int) {
	for n, i := range fields {
		f := &d.g.Fields[i]
		branch, deeper := "├▶ ", "│  "
		if n == len(fields)-1 {
			branch, deeper = "└▶ ", "   "
		}
		text := indent + branch + f.String()
		// It came before, with all that it leads to; … stands for that here. A circle ends so.
		if d.drawn[i] && len(f.Leads) > 0 {
			text += " …"
		}
		d.lines = append(d.lines, drawLine{text, f.Pipeline})
		if !d.drawn[i] {
			d.drawn[i] = true
			d.children(indent+deeper, f.Leads)
		}
	}
}

// aligned puts what stands at the right of lines into a column.
func aligned(lines []drawLine) []string {
	width := 0
	for _, l := range lines {
		// A line with nothing at its right may be longer: it does not move the column.
		if l.right != "" {
			width = max(width, utf8.RuneCountInString(l.text))
		}
	}
	all := make([]string, len(lines))
	for i, l := range lines {
		all[i] = l.text
		if l.right != "" {
			all[i] += strings.Repeat(" ", width-utf8.RuneCountInString(l.text)+3) + l.right
		}
	}
	return all
}

// Conclusion says in lines of text what the graph means for the copies.
func (g *FieldGraph) Conclusion() []string {
	if len(g.Cycles) > 0 {
		lines := []drawLine{{text: "These paths lead back, so the copies on them need not come to rest:"}}
		for _, cycle := range g.Cycles {
			lines = append(lines, drawLine{text: "  " + g.Fields[cycle[0]].String()})
			for n := range cycle {
				f := &g.Fields[cycle[(n+1)%len(cycle)]]
				lines = append(lines, drawLine{"  " + strings.Repeat("   ", n) + "└▶ " + f.String(), f.Pipeline})
			}
		}
		return aligned(lines)
	}
	if len(g.Fields) == 0 {
		return nil
	}
	lines := []string{"No path leads back to a field that it comes from."}
	for _, way := range g.Returns {
		var text strings.Builder
		text.WriteString("Containers lead back, and their fields do not: " + way[0].From)
		for _, step := range way {
			text.WriteString(" -> " + step.Into + " (" + step.Pipeline + ")")
		}
		lines = append(lines, text.String())
	}
	return lines
}
