package console

import (
	"fmt"
	"html/template"
	"strings"
)

// The size of a plot, in the units of its view box.
const (
	plotWidth  = 240
	plotHeight = 40
)

// plot draws the lag or the rate of the last hour as a line, the newest on the right. What it shows
// is told in words too, for those who do not see it.
func plot(points []point, what string) template.HTML {
	if len(points) < 2 {
		return ""
	}
	value, unit := func(p point) float64 { return p.lag }, "s"
	if what == "rate" {
		value, unit = func(p point) float64 { return p.rate }, "/s"
	}
	most := 0.0
	for _, p := range points {
		most = max(most, value(p))
	}
	var line strings.Builder
	for i, p := range points {
		y := float64(plotHeight - 1)
		if most > 0 {
			y -= value(p) / most * (plotHeight - 2)
		}
		fmt.Fprintf(&line, "%.1f,%.1f ", float64(plotWidth)*float64(historyPoints-len(points)+i)/(historyPoints-1), y)
	}
	said := fmt.Sprintf("%s of the last hour, at most %.1f %s, now %.1f %s", what, most, unit, value(points[len(points)-1]), unit)
	return template.HTML(fmt.Sprintf( //nolint:gosec // numbers and fixed words only
		`<svg class="plot" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s"><title>%s</title><polyline points="%s"/></svg>`,
		plotWidth, plotHeight, said, said, strings.TrimSpace(line.String())))
}
