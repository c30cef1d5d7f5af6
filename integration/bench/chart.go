//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	pictureStep = 100 * time.Millisecond
	pictureTick = 2 * time.Second

	pictureWidth = 800
	panelHeight  = 150
	panelLeft    = 50
	panelTop     = 30
	panelBottom  = 24

	colorHit   = "#c0392b" // of what an event befalls
	colorOther = "#2c6fbb"
)

// chart is a picture, in SVG, of the writes that were acknowledged in each pictureStep around some events.
type chart struct {
	label         string        // for those who do not see it
	legend        string        // what the numbers are
	before, after time.Duration // of each event
	colors        []colored
	panels        []panel
}

// colored says what has a color.
type colored struct{ color, what string }

// panel is one event, at 0.
type panel struct {
	title string
	lines []line
	marks []mark
}

// line is how many writes there were in each step; the first begins at chart.before.
type line struct {
	color  string
	counts []int
}

// mark is a moment that is told beside the title, unless text is "".
type mark struct {
	at   time.Duration
	text string
}

// steps is how many steps a line has.
func (c *chart) steps() int { return int((c.before + c.after) / pictureStep) }

// svg draws the chart.
func (c *chart) svg() []byte {
	var b bytes.Buffer
	height := len(c.panels)*panelHeight + 20
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11" role="img" `+
		"aria-label=\"%s\">\n", pictureWidth, height, c.label)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", pictureWidth, height)
	for i := range c.panels {
		c.draw(&b, &c.panels[i], i*panelHeight)
	}
	legend := c.legend
	if len(c.colors) > 0 {
		spans := make([]string, len(c.colors))
		for i, of := range c.colors {
			spans[i] = fmt.Sprintf(`<tspan fill="%s">%s</tspan>`, of.color, of.what)
		}
		legend += ": " + strings.Join(spans, ", ")
	}
	fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" fill=\"#555\">%s</text>\n</svg>\n", panelLeft, height-6, legend)
	return b.Bytes()
}

// draw draws one event, below y.
func (c *chart) draw(b *bytes.Buffer, p *panel, y int) {
	const width = pictureWidth - panelLeft - 10
	const height = panelHeight - panelTop - panelBottom
	top := 1.0
	for _, l := range p.lines {
		top = max(top, float64(slices.Max(l.counts)))
	}
	at := func(moment time.Duration) float64 {
		return panelLeft + width*float64(moment+c.before)/float64(c.before+c.after)
	}
	level := func(n float64) float64 { return float64(y+panelTop) + height*(1-n/top) }
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s</text>\n", panelLeft, y+panelTop-8, p.title)
	for _, n := range []float64{0, top} {
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end" fill="#555">%.0f</text>`+"\n",
			panelLeft, panelLeft+width, level(n), level(n), panelLeft-6, level(n)+4, n)
	}
	for moment := -c.before; moment <= c.after; moment += pictureTick {
		fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#555\">%.0f</text>\n", at(moment), y+panelHeight-panelBottom+14, moment.Seconds())
	}
	for _, m := range p.marks {
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%.1f" stroke="#888" stroke-dasharray="3 3"/>`+"\n", at(m.at), at(m.at), y+panelTop-4, level(0))
		if m.text != "" {
			fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%d\" fill=\"#555\">%s</text>\n", at(m.at)+3, y+panelTop-8, m.text)
		}
	}
	for _, l := range p.lines {
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, l.color)
		for i, n := range l.counts {
			// In the middle of its step.
			fmt.Fprintf(b, "%.1f,%.1f ", at(time.Duration(i)*pictureStep+pictureStep/2-c.before), level(float64(n)))
		}
		b.WriteString("\"/>\n")
	}
}

// draw writes a picture beside the page that the tables go into, if they go into one.
func (b *bench) draw(name string, c *chart) error {
	if b.cfg.docs == "" {
		return nil
	}
	path := filepath.Join(filepath.Dir(b.cfg.docs), "images", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	if err := os.WriteFile(path, c.svg(), 0o644); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}
