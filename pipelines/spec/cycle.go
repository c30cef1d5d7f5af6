package spec

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/feed/document"
)

// write is a node of the graph of fields: a field that a pipeline sets.
type write struct {
	pipeline *KnownPipeline
	shape    *Shape
	set      *setField
}

// cycles refuses cycles of fields. A field leads to another if the pipeline that
// sets the other reads it: as the value, or in a match, where, array or key, which
// decide what the value is taken from. Copies along a path come to rest when its
// beginning does. Around a cycle a value can chase another one for ever, each
// copy undoing the last, unless the wheres keep the items apart.
//
// A row of a projection into a container is also a node as a whole: it comes and
// goes, which every pipeline with that container as its source sees.
func (c *Checker) cycles() {
	nodes, next := c.graph()
	reported := make([]bool, len(nodes))
	for i := range nodes {
		if reported[i] || !nodes[i].pipeline.declared {
			continue
		}
		// One finding for each cycle: its other nodes would tell the same again.
		if cycle := shortestCycle(next, i); cycle != nil {
			c.cycle(nodes, append([]int{i}, cycle...), reported)
		}
	}
}

// graph returns the graph of fields: its nodes, and for each the nodes that it leads
// to.
func (c *Checker) graph() (nodes []write, next [][]int) {
	first := map[*Shape]int{} // its first node
	for _, p := range c.Pipelines {
		for _, s := range p.Shapes {
			first[s] = len(nodes)
			for i := range s.sets {
				nodes = append(nodes, write{p, s, &s.sets[i]})
			}
		}
	}
	next = make([][]int, len(nodes))
	sets := c.SetPaths()
	for _, p := range c.Pipelines {
		for _, from := range p.Shapes {
			for _, q := range c.Pipelines {
				for _, to := range q.Shapes {
					from.Lead(to, p == q, sets[from.Target], func(i, j int) {
						next[first[from]+i] = append(next[first[from]+i], first[to]+j)
					})
				}
			}
		}
	}
	return nodes, next
}

// Lead calls edge for each field of s and each field of to that it decides. set
// are the fields of the target of s that pipelines set.
func (s *Shape) Lead(to *Shape, own bool, set []document.Path, edge func(i, j int)) {
	//	categories:  meta.name    -> product.categoryName
	//	orders:      product.categoryName -> order.category
	//	back:        order.category -> meta.name
	//
	// The first leads to the second because the second reads, as a value, what
	// the first sets in its source; a where, match or key that is set counts for
	// all fields at once, since it decides which items there are.
	read := s.Target == to.source && !disjoint(s.targetIs, to.sourceIs, set)
	// A pipeline that sets what its own match reads is refused by itself.
	matched := !own && s.Target == to.Target && !disjoint(s.targetIs, to.targetIs, set)
	if !read && !matched {
		return
	}
	for i := range s.sets {
		field := &s.sets[i]
		// all: the field decides which copies there are, so it leads to every field.
		all := read && (field == s.whole || Touches(field.target, to.sourceReads)) || matched && Touches(field.target, to.targetReads)
		for j := range to.sets {
			if all || read && Touches(field.target, to.sets[j].values) {
				edge(i, j)
			}
		}
	}
}

// cycle draws a cycle and marks what is reported with it: its nodes, and where
// whole rows are among them, all columns of these rows.
func (c *Checker) cycle(nodes []write, cycle []int, reported []bool) {
	first := &nodes[cycle[0]]
	var drawn strings.Builder
	drawn.WriteString(first.String())
	for _, n := range cycle[1:] {
		reported[n] = true
		if s := nodes[n].shape; s.whole == nodes[n].set {
			for i := range nodes {
				reported[i] = reported[i] || nodes[i].shape == s
			}
		}
		drawn.WriteString(" -> " + nodes[n].String() + " (pipeline " + nodes[n].pipeline.Name + ")")
	}
	c.findings.Add(first.pipeline.places.key(first.set.yaml),
		"%s: a cycle of fields that need not come to rest: %s; leave one of these copies out, or keep their items apart by wheres",
		first.set.yaml, &drawn)
}

// String prints container.field, with the database unless it is the default one;
// container.* for whole items.
func (w *write) String() string {
	container := strings.TrimPrefix(w.shape.Target, DatabaseDefault+"/")
	if w.set == w.shape.whole {
		return container + ".*"
	}
	return container + "." + w.set.target.String()
}

// Touches tells whether a path is one of others, holds one or is held by one.
func Touches(path document.Path, any []document.Path) bool {
	return slices.ContainsFunc(any, func(p document.Path) bool { return overlap(path, p) })
}

// shortestCycle returns the nodes after start on a shortest way back to it, start
// last; nil if there is none.
func shortestCycle(next [][]int, start int) []int {
	from := map[int]int{}
	queue := []int{start}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for _, m := range next[n] {
			if _, seen := from[m]; seen {
				continue
			}
			from[m] = n
			if m != start {
				queue = append(queue, m)
				continue
			}
			cycle := []int{start}
			for at := n; at != start; at = from[at] {
				cycle = append(cycle, at)
			}
			slices.Reverse(cycle)
			return cycle
		}
	}
	return nil
}
