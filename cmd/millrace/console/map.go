package console

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/status"
)

// The sizes of the map, in pixels.
const (
	boxWidth  = 190
	boxHeight = 48
	gapWidth  = 60
	gapHeight = 22
)

// mapBox is a container, a pipeline or a sink on the map.
type mapBox struct {
	Name, Detail string
	Href         string // "" for a sink
	Kind         string // container, pipeline or sink
	State        status.State
	X, Y         int
	column       int
}

// Width and Height are those of all boxes, Middle is half the width, and Round the radius of corners.
func (*mapBox) Width() int  { return boxWidth }
func (*mapBox) Height() int { return boxHeight }
func (*mapBox) Middle() int { return boxWidth / 2 }
func (b *mapBox) Round() int {
	if b.Kind == "pipeline" {
		return boxHeight / 2
	}
	return 4
}

// mapArrow leads from a source to a pipeline, or from a pipeline to a target.
type mapArrow struct{ Path string }

// mapPage is the graph of containers, pipelines and sinks, and the same in words.
type mapPage struct {
	Boxes         []*mapBox
	Arrows        []mapArrow
	Width, Height int
	Rows          []mapRow
}

// mapRow is a pipeline of the map in words.
type mapRow struct {
	*mapBox
	Source, Target string
}

func (c *Console) graph(x *exchange) error {
	s, err := c.sampler.newest(x.r.Context())
	if err != nil {
		return err
	}
	records, err := c.cfg.Inspect.Registry.List(x.r.Context())
	if err != nil {
		return err
	}
	page := draw(records, s.pipeline)
	return c.show(x, "map", "Map", page, page.Rows)
}

// link is what a pipeline reads and writes, as places of the map.
type link struct{ from, via, to *mapBox }

// draw lays the map out: columns of containers, and between them columns of the pipelines that
// read them. The sources of a container stand left of it, unless there is a circle.
func draw(records []registry.Record, statusOf func(id string) *status.Pipeline) *mapPage {
	page := &mapPage{}
	places := map[string]*mapBox{}
	place := func(kind, database, name string) *mapBox {
		id := kind + " " + database + "/" + name
		if places[id] == nil {
			places[id] = &mapBox{Name: name, Detail: database, Kind: kind}
			if kind == "container" {
				places[id].Href = "/containers/" + joinEscaped([]string{database, name})
			}
			page.Boxes = append(page.Boxes, places[id])
		}
		return places[id]
	}
	var links []link
	for i := range records {
		rec := &records[i]
		via := &mapBox{Name: rec.Name, Kind: "pipeline", Href: "/pipelines/" + joinEscaped([]string{rec.Database, rec.Name})}
		to := targetOf(rec, statusOf(rec.ID), place)
		if p := statusOf(rec.ID); p != nil {
			via.State = p.State
			via.Detail = fmt.Sprintf("%s, lag %s, %s/s", p.State, p.Lag.Text(), format.Count(int64(p.Rate)))
		}
		links = append(links, link{place("container", rec.Database, rec.Spec.Source.Container), via, to})
		page.Boxes = append(page.Boxes, via)
		page.Rows = append(page.Rows, mapRow{via, links[i].from.Name, to.Name})
	}
	rank(slices.Clone(links))
	page.lay()
	for _, l := range links {
		page.Arrows = append(page.Arrows, arrow(l.from, l.via), arrow(l.via, l.to))
	}
	return page
}

// targetOf returns the place that a pipeline writes to.
func targetOf(rec *registry.Record, now *status.Pipeline, place func(kind, database, name string) *mapBox) *mapBox {
	switch rec.Spec.Kind() {
	case spec.CascadeKind:
		return place("container", rec.Database, rec.Spec.Cascade.Into)
	case spec.AggregateKind:
		return place("container", rec.Database, rec.Spec.Aggregate.Into)
	case spec.ProjectKind: // below
	}
	if now != nil && now.Sink != nil {
		return place("sink", now.Sink.Kind, now.Sink.Where)
	}
	return place("sink", "sink", rec.Name)
}

// rank gives each box its column: a pipeline's is behind that of its source, and a target's behind
// that of all pipelines that write it. In a circle nothing is first, so its boxes do not push each
// other. It takes as long as there are links, not as there are ways.
func rank(links []link) {
	circle := circles(links)
	// A circle has a smaller number than all that lead into it, so what is pushed comes after what
	// pushes it.
	slices.SortStableFunc(links, func(a, b link) int { return cmp.Compare(circle[b.from], circle[a.from]) })
	for _, l := range links {
		l.via.column = l.from.column + 1
		if circle[l.from] != circle[l.to] {
			l.to.column = max(l.to.column, l.via.column+1)
		}
	}
}

// circles numbers the boxes at the ends of links, those of a circle alike, and each before those that
// lead to it: Tarjan's strongly connected components.
func circles(links []link) map[*mapBox]int {
	next := map[*mapBox][]*mapBox{}
	for _, l := range links {
		next[l.from] = append(next[l.from], l.to)
	}
	circle, seen, low := map[*mapBox]int{}, map[*mapBox]int{}, map[*mapBox]int{}
	var open []*mapBox
	number := 0
	var visit func(at *mapBox)
	visit = func(at *mapBox) {
		seen[at] = len(seen) + 1
		low[at] = seen[at]
		open = append(open, at)
		for _, to := range next[at] {
			switch _, done := circle[to]; {
			case seen[to] == 0:
				visit(to)
				low[at] = min(low[at], low[to])
			case !done:
				low[at] = min(low[at], seen[to])
			}
		}
		for low[at] == seen[at] { // it is the first of its circle
			last := open[len(open)-1]
			open, circle[last] = open[:len(open)-1], number
			if last == at {
				number++
				return
			}
		}
	}
	for _, l := range links {
		if seen[l.from] == 0 {
			visit(l.from)
		}
	}
	return circle
}

// lay gives each box its place in its column, in the order of the names.
func (p *mapPage) lay() {
	slices.SortStableFunc(p.Boxes, func(a, b *mapBox) int {
		return cmp.Or(cmp.Compare(a.column, b.column), cmp.Compare(a.Name, b.Name))
	})
	used := map[int]int{}
	for _, b := range p.Boxes {
		b.X, b.Y = 10+b.column*(boxWidth+gapWidth), 10+used[b.column]*(boxHeight+gapHeight)
		used[b.column]++
		p.Width, p.Height = max(p.Width, b.X+boxWidth+gapWidth), max(p.Height, b.Y+boxHeight+10)
	}
}

// arrow draws a curve from the right of a box to the left of another; back, where the other does
// not stand further right, to its right.
func arrow(from, to *mapBox) mapArrow {
	x1, y1, y2 := from.X+boxWidth, from.Y+boxHeight/2, to.Y+boxHeight/2
	x2, bend := to.X, gapWidth/2
	if to.X <= from.X {
		x2, y2 = to.X+boxWidth, y2+boxHeight/4
		return mapArrow{fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, x1+bend, y1, x1+bend, y2, x2, y2)}
	}
	return mapArrow{fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, x1+bend, y1, x2-bend, y2, x2, y2)}
}
