// Package chart draws, in SVG, how many writes were acknowledged around some events.
package chart

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Step is the time that a count is of.
const Step = 100 * time.Millisecond

const (
	tick = 2 * time.Second // between the seconds that are told

	width       = 800
	panelHeight = 150
	panelLeft   = 50
	panelTop    = 30
	panelBottom = 24
)

// The colors of lines.
const (
	ColorHit   = "#c0392b" // of what an event befalls
	ColorOther = "#2c6fbb"
)

// Chart is a picture of the writes that were acknowledged in each Step around some events.
type Chart struct {
	Label         string        // for those who do not see it
	Legend        string        // what the numbers are
	Before, After time.Duration // of each event
	Colors        []Colored
	Panels        []Panel
}

// Colored says what has a color.
type Colored struct{ Color, What string }

// Panel is one event, at 0.
type Panel struct {
	Title string
	Lines []Line
	Marks []Mark
}

// Line is how many writes there were in each Step; the first begins at Chart.Before.
type Line struct {
	Color  string
	Counts []int
}

// Mark is a moment that is told beside the title, unless Text is "".
type Mark struct {
	At   time.Duration
	Text string
}

// Steps is how many counts a line has.
func (c *Chart) Steps() int { return int((c.Before + c.After) / Step) }

// SVG draws the chart.
func (c *Chart) SVG() []byte {
	var b bytes.Buffer
	height := len(c.Panels)*panelHeight + 20
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11" role="img" `+
		"aria-label=\"%s\">\n", width, height, c.Label)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", width, height)
	for i := range c.Panels {
		c.draw(&b, &c.Panels[i], i*panelHeight)
	}
	legend := c.Legend
	if len(c.Colors) > 0 {
		spans := make([]string, len(c.Colors))
		for i, of := range c.Colors {
			spans[i] = fmt.Sprintf(`<tspan fill="%s">%s</tspan>`, of.Color, of.What)
		}
		legend += ": " + strings.Join(spans, ", ")
	}
	fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" fill=\"#555\">%s</text>\n</svg>\n", panelLeft, height-6, legend)
	return b.Bytes()
}

// draw draws one event, below y.
func (c *Chart) draw(b *bytes.Buffer, p *Panel, y int) {
	const inner = width - panelLeft - 10
	const height = panelHeight - panelTop - panelBottom
	top := 1.0
	for _, l := range p.Lines {
		top = max(top, float64(slices.Max(l.Counts)))
	}
	at := func(moment time.Duration) float64 {
		return panelLeft + inner*float64(moment+c.Before)/float64(c.Before+c.After)
	}
	level := func(n float64) float64 { return float64(y+panelTop) + height*(1-n/top) }
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s</text>\n", panelLeft, y+panelTop-8, p.Title)
	for _, n := range []float64{0, top} {
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end" fill="#555">%.0f</text>`+"\n",
			panelLeft, panelLeft+inner, level(n), level(n), panelLeft-6, level(n)+4, n)
	}
	for moment := -c.Before; moment <= c.After; moment += tick {
		fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#555\">%.0f</text>\n", at(moment), y+panelHeight-panelBottom+14, moment.Seconds())
	}
	for _, m := range p.Marks {
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%.1f" stroke="#888" stroke-dasharray="3 3"/>`+"\n", at(m.At), at(m.At), y+panelTop-4, level(0))
		if m.Text != "" {
			fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%d\" fill=\"#555\">%s</text>\n", at(m.At)+3, y+panelTop-8, m.Text)
		}
	}
	for _, l := range p.Lines {
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, l.Color)
		for i, n := range l.Counts {
			// In the middle of its step.
			fmt.Fprintf(b, "%.1f,%.1f ", at(time.Duration(i)*Step+Step/2-c.Before), level(float64(n)))
		}
		b.WriteString("\"/>\n")
	}
}
