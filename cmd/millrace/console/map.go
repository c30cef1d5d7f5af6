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
// read them. What a container is made of stands left of it, as far as there is no circle.
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
			via.Detail = fmt.Sprintf("%s, lag %s, %s/s", p.State, lagText(p.Lag), format.Count(int64(p.Rate)))
		}
		links = append(links, link{place("container", rec.Database, rec.Spec.Source.Container), via, to})
		page.Boxes = append(page.Boxes, via)
		page.Rows = append(page.Rows, mapRow{via, links[i].from.Name, to.Name})
	}
	rank(links, len(page.Boxes))
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
// that of its pipeline. A circle would push its boxes on for ever, so a box moves at most so often
// as there are boxes.
func rank(links []link, boxes int) {
	for range boxes {
		moved := false
		for _, l := range links {
			l.via.column = l.from.column + 1
			if l.to != l.from && l.to.column <= l.via.column && !leads(links, l.to, l.from) {
				l.to.column, moved = l.via.column+1, true
			}
		}
		if !moved {
			return
		}
	}
}

// leads tells whether one box is made into another.
func leads(links []link, from, to *mapBox) bool {
	seen := map[*mapBox]bool{from: true}
	next := []*mapBox{from}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		if at == to {
			return true
		}
		for _, l := range links {
			if l.from == at && !seen[l.to] {
				seen[l.to] = true
				next = append(next, l.to)
			}
		}
	}
	return false
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
