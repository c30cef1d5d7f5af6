package pipelines

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/store/document"
)

// write is a node of the graph of fields: a field that a pipeline sets.
type write struct {
	pipeline *knownPipeline
	set      setField
}

// cycles refuses cycles of fields. A field leads to another if the pipeline that
// sets the other reads it: as the value, or in a match or where, which decide
// what the value is taken from. Copies along a path come to rest when its
// beginning does. Around a cycle a value can chase another one for ever, each
// copy undoing the last, unless the wheres keep the items apart.
func (c *checker) cycles() {
	var nodes []write
	for _, p := range c.pipelines {
		if p.shape != nil {
			for _, s := range p.shape.sets {
				nodes = append(nodes, write{p, s})
			}
		}
	}
	sets := c.setPaths()
	next := make([][]int, len(nodes))
	for i := range nodes {
		for j := range nodes {
			if nodes[i].leadsTo(&nodes[j], sets) {
				next[i] = append(next[i], j)
			}
		}
	}
	reported := make([]bool, len(nodes))
	for i := range nodes {
		if reported[i] || !nodes[i].pipeline.declared {
			continue
		}
		cycle := shortestCycle(next, i)
		if cycle == nil {
			continue
		}
		var drawn strings.Builder
		drawn.WriteString(nodes[i].String())
		for _, n := range cycle {
			reported[n] = true
			drawn.WriteString(" -> " + nodes[n].String() + " (pipeline " + nodes[n].pipeline.Name + ")")
		}
		c.findings.add(nodes[i].pipeline.places.key(nodes[i].set.yaml),
			"%s: a cycle of fields that need not come to rest: %s; leave one of these copies out, or keep their items apart by wheres",
			nodes[i].set.yaml, &drawn)
	}
}

// String prints container.field, with the database unless it is the default one.
func (w *write) String() string {
	container := strings.TrimPrefix(w.pipeline.shape.target, DatabaseDefault+"/")
	return container + "." + w.set.target.String()
}

// leadsTo tells whether the field w decides what to is set to.
func (w *write) leadsTo(to *write, sets map[string][]document.Path) bool {
	mine, other := w.pipeline.shape, to.pipeline.shape
	if mine.target == other.source && !disjoint(mine.targetIs, other.sourceIs, sets[mine.target]) {
		if overlap(w.set.target, to.set.value) || touches(w.set.target, other.sourceReads) {
			return true
		}
	}
	// A pipeline that sets what its own match reads is refused by itself.
	return w.pipeline != to.pipeline && mine.target == other.target &&
		!disjoint(mine.targetIs, other.targetIs, sets[mine.target]) && touches(w.set.target, other.targetReads)
}

func touches(path document.Path, any []document.Path) bool {
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
