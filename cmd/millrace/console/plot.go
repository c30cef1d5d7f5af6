package console

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"
)

const (
	// The plots show plotSpan, with a point in plotEvery. Between points that are further from each other than plotGap
	// nothing is known: samples that are slow come every 20 s.
	plotSpan  = time.Hour
	plotEvery = 10 * time.Second
	plotGap   = 3 * plotEvery
)

// point is one point of the plots of a pipeline.
type point struct {
	at      time.Time
	unknown bool    // not all of the pipeline could be read then
	lag     float64 // seconds
	rate    float64 // copies or rows a second
}

// history is what the plots are drawn from.
type history struct {
	points map[string][]point // by a pipeline's ID, the newest last
	at     time.Time          // of the last points
}

func newHistory() history { return history{points: map[string][]point{}} }

// add adds points of a sample, if it is time.
func (h *history) add(s *sample) {
	if !h.due(s.Time) {
		return
	}
	for id := range h.points {
		if s.pipeline(id) == nil {
			delete(h.points, id)
		}
	}
	for i := range s.Pipelines {
		p := &s.Pipelines[i]
		h.put(p.ID, point{s.Time, p.Lag.Unknown, p.Lag.Seconds, p.Rate})
	}
}

// miss adds what is known while nothing could be read, if it is time: nothing. Without it a plot would stand still as it was
// before.
func (h *history) miss(at time.Time) {
	if !h.due(at) {
		return
	}
	for id := range h.points {
		h.put(id, point{at: at, unknown: true})
	}
}

// due tells whether it is time for the next points.
func (h *history) due(at time.Time) bool {
	if at.Sub(h.at) < plotEvery {
		return false
	}
	h.at = at
	return true
}

func (h *history) put(id string, p point) {
	points := append(h.points[id], p)
	old := 0
	for p.at.Sub(points[old].at) > plotSpan {
		old++
	}
	h.points[id] = slices.Delete(points, 0, old)
}

// The size of a plot, in the units of its view box.
const (
	plotWidth  = 240
	plotHeight = 40
)

// plot draws the lag or the rate of the last hour, the newest on the right: a line for each time in which it is known
// throughout, and nothing between them. What it shows is told in words too, for those who do not see it.
func plot(points []point, what string) template.HTML {
	lines := known(points)
	if len(points) < 2 || len(lines) == 0 {
		return ""
	}
	value, unit := func(p point) float64 { return p.lag }, "s"
	if what == "rate" {
		value, unit = func(p point) float64 { return p.rate }, "/s"
	}
	most := 0.0
	for _, p := range slices.Concat(lines...) {
		most = max(most, value(p))
	}
	last := points[len(points)-1]
	said := fmt.Sprintf("%s of the last hour, at most %.1f %s, now %.1f %s", what, most, unit, value(last), unit)
	if last.unknown {
		said = fmt.Sprintf("%s of the last hour, at most %.1f %s, now not known", what, most, unit)
	}
	if gaps := len(lines) - 1; gaps > 0 {
		said += ", with gaps where it is not known"
	}
	var drawn strings.Builder
	for _, line := range lines {
		drawn.WriteString(`<polyline points="`)
		for i, p := range line {
			x := plotWidth * (1 - last.at.Sub(p.at).Seconds()/plotSpan.Seconds())
			y := float64(plotHeight - 1)
			if most > 0 {
				y -= value(p) / most * (plotHeight - 2)
			}
			if i > 0 {
				drawn.WriteByte(' ')
			}
			fmt.Fprintf(&drawn, "%.1f,%.1f", x, y)
			if len(line) == 1 {
				fmt.Fprintf(&drawn, " %.1f,%.1f", x+0.5, y) // a line to itself is not drawn
			}
		}
		drawn.WriteString(`"/>`)
	}
	return template.HTML(fmt.Sprintf( //nolint:gosec // numbers and fixed words only
		`<svg class="plot" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s"><title>%s</title>%s</svg>`,
		plotWidth, plotHeight, said, said, drawn.String()))
}

// known returns the points between gaps.
func known(points []point) (lines [][]point) {
	begun := false
	for i, p := range points {
		switch {
		case p.unknown:
			begun = false
			continue
		case !begun || p.at.Sub(points[i-1].at) > plotGap:
			lines = append(lines, nil)
			begun = true
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], p)
	}
	return lines
}
