package console

import (
	"strings"
	"testing"
	"time"
)

func TestPlot(t *testing.T) {
	began := time.Now()
	at := func(n int, lag float64) point { return point{at: began.Add(time.Duration(n) * plotEvery), lag: lag} }
	away := func(n int) point { return point{at: began.Add(time.Duration(n) * plotEvery), unknown: true} }
	for name, c := range map[string]struct {
		points []point
		says   string
		lines  []string // nil: nothing is drawn
	}{
		"one point":             {[]point{at(0, 1)}, "", nil},
		"never known":           {[]point{away(0), away(1)}, "", nil},
		"a line":                {[]point{at(0, 0), at(1, 4), at(2, 2)}, "at most 4.0 s, now 2.0 s<", []string{"238.7,39.0 239.3,1.0 240.0,20.0"}},
		"nothing could be read": {[]point{at(0, 4), at(1, 4), away(2), at(3, 4), at(4, 4)}, "now 4.0 s, with gaps where it is not known<", []string{"237.3,1.0 238.0,1.0", "239.3,1.0 240.0,1.0"}},
		"nobody looked":         {[]point{at(0, 4), at(1, 4), at(359, 4), at(360, 4)}, "with gaps", []string{"0.0,1.0 0.7,1.0", "239.3,1.0 240.0,1.0"}},
		"slow samples":          {[]point{at(0, 4), at(2, 4), at(4, 4)}, "now 4.0 s<", []string{"237.3,1.0 238.7,1.0 240.0,1.0"}},
		"away now":              {[]point{at(0, 4), at(1, 2), away(2)}, "at most 4.0 s, now not known<", []string{"238.7,1.0 239.3,20.0"}},
		"known for a moment":    {[]point{away(0), at(1, 4), away(2)}, "now not known<", []string{"239.3,1.0 239.8,1.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := string(plot(c.points, "lag"))
			if c.lines == nil {
				if got != "" {
					t.Errorf("it is %s", got)
				}
				return
			}
			drawn := ""
			for _, line := range c.lines {
				drawn += `<polyline points="` + line + `"/>`
			}
			if !strings.Contains(got, drawn+"</svg>") || !strings.Contains(got, c.says) {
				t.Errorf("%s lacks %s or %s", got, c.says, drawn)
			}
		})
	}
}
