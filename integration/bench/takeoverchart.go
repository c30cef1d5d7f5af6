//go:build linux

package main

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

const (
	pictureBefore = 2 * time.Second
	pictureAfter  = 14 * time.Second
	pictureStep   = 100 * time.Millisecond

	pictureWidth = 800
	panelHeight  = 150
	panelLeft    = 50
	panelTop     = 30
	panelBottom  = 24
)

// picture draws the acknowledgements around one event of each kind, the one whose gap is the median: those of the partitions
// of the store that goes away, and those of the others.
func (o *takeovers) picture() []byte {
	var panels []happened
	for _, event := range []string{eventKill, eventHang, eventStop} {
		var all []happened
		for i := range o.done {
			if o.done[i].event == event {
				all = append(all, o.done[i])
			}
		}
		if len(all) == 0 {
			continue
		}
		slices.SortFunc(all, func(a, b happened) int { return byLength(a.gap, b.gap) })
		panels = append(panels, all[(len(all)-1)/2])
	}
	var b bytes.Buffer
	height := len(panels)*panelHeight + 20
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11" role="img" `+
		"aria-label=\"Acknowledged writes in each 100 ms around a kill, a SIGSTOP and a planned stop\">\n", pictureWidth, height)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", pictureWidth, height)
	for i := range panels {
		drawPanel(&b, &panels[i], i*panelHeight)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#555">seconds from the event; writes acknowledged in each 100 ms: `+
		`<tspan fill="#c0392b">the partitions of the store that goes away</tspan>, <tspan fill="#2c6fbb">those of the others</tspan></text>`+"\n</svg>\n",
		panelLeft, height-6)
	return b.Bytes()
}

// drawPanel draws one event, below y.
func drawPanel(b *bytes.Buffer, h *happened, y int) {
	const width = pictureWidth - panelLeft - 10
	const height = panelHeight - panelTop - panelBottom
	top := float64(max(slices.Max(h.of), slices.Max(h.others), 1))
	x := func(at time.Duration) float64 {
		return panelLeft + width*float64(at+pictureBefore)/float64(pictureBefore+pictureAfter)
	}
	line := func(n float64) float64 { return float64(y+panelTop) + height*(1-n/top) }
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s: no write for %.2f s</text>\n", panelLeft, y+panelTop-8, h.event, h.gap.length().Seconds())
	for _, n := range []float64{0, top} {
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end" fill="#555">%.0f</text>`+"\n",
			panelLeft, panelLeft+width, line(n), line(n), panelLeft-6, line(n)+4, n)
	}
	for at := -pictureBefore; at <= pictureAfter; at += 2 * time.Second {
		fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#555\">%.0f</text>\n", x(at), y+panelHeight-panelBottom+14, at.Seconds())
	}
	mark := func(at time.Duration) {
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%.1f" stroke="#888" stroke-dasharray="3 3"/>`+"\n", x(at), x(at), y+panelTop-4, line(0))
	}
	if mark(0); h.returnAfter < pictureAfter {
		mark(h.returnAfter)
	}
	if h.returnAfter > pictureBefore && h.returnAfter < pictureAfter { // else it would stand in the title
		fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%d\" fill=\"#555\">it comes back</text>\n", x(h.returnAfter)+3, y+panelTop-8)
	}
	for _, of := range []struct {
		counts []int
		color  string
	}{{h.others, "#2c6fbb"}, {h.of, "#c0392b"}} {
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, of.color)
		for i, n := range of.counts {
			// In the middle of its step.
			fmt.Fprintf(b, "%.1f,%.1f ", x(time.Duration(i)*pictureStep+pictureStep/2-pictureBefore), line(float64(n)))
		}
		b.WriteString("\"/>\n")
	}
}
