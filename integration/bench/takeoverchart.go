//go:build linux

package main

import (
	"fmt"
	"slices"
	"time"
)

const (
	pictureBefore = 2 * time.Second
	pictureAfter  = 14 * time.Second
)

// picture draws the acknowledgements around one event of each kind, the one whose gap is the median: those of the partitions
// of the store that goes away, and those of the others.
func (o *takeovers) picture() *chart {
	c := &chart{
		label:  "Acknowledged writes in each 100 ms around a kill, a SIGSTOP and a planned stop",
		legend: "seconds from the event; writes acknowledged in each 100 ms",
		before: pictureBefore, after: pictureAfter,
		colors: []colored{{colorHit, "the partitions of the store that goes away"}, {colorOther, "those of the others"}},
	}
	for _, event := range []string{eventKill, eventHang, eventStop} {
		var all []happened
		for i := range o.done {
			if o.done[i].event == event {
				all = append(all, o.done[i])
			}
		}
		if len(all) > 0 {
			slices.SortFunc(all, func(a, b happened) int { return byLength(a.gap, b.gap) })
			c.panels = append(c.panels, all[(len(all)-1)/2].panel())
		}
	}
	return c
}

func (h *happened) panel() panel {
	p := panel{
		title: fmt.Sprintf("%s: no write for %.2f s", h.event, h.gap.length().Seconds()),
		lines: []line{{colorOther, h.others}, {colorHit, h.of}},
		marks: []mark{{0, ""}},
	}
	if h.returnAfter < pictureAfter {
		back := mark{h.returnAfter, ""}
		if h.returnAfter > pictureBefore { // else it would stand in the title
			back.text = "it comes back"
		}
		p.marks = append(p.marks, back)
	}
	return p
}
