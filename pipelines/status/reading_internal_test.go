package status

import (
	"testing"
	"time"
)

// TestWaited: what a reading waited is the time in which no log that answered was read.
func TestWaited(t *testing.T) {
	t.Parallel()
	whole := span{time.UnixMilli(0), time.UnixMilli(2000)}
	for name, c := range map[string]struct {
		answered [][2]int64 // from when to when, in milliseconds
		want     time.Duration
	}{
		"none answered":                  {nil, 2 * time.Second},
		"one answered at once":           {[][2]int64{{0, 0}}, 2 * time.Second},
		"one took its time":              {[][2]int64{{0, 300}}, 1700 * time.Millisecond},
		"two at the same time":           {[][2]int64{{100, 300}, {0, 200}}, 1700 * time.Millisecond},
		"one within another":             {[][2]int64{{0, 500}, {100, 200}}, 1500 * time.Millisecond},
		"one had to wait for a place":    {[][2]int64{{0, 100}, {1900, 2000}}, 1800 * time.Millisecond},
		"all the time something is read": {[][2]int64{{0, 1000}, {1000, 2000}}, 0},
	} {
		var parts []span
		for _, a := range c.answered {
			parts = append(parts, span{time.UnixMilli(a[0]), time.UnixMilli(a[1])})
		}
		if got := whole.idle(parts); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if got := waited(time.Now().Add(-time.Hour), []*question{{}, {}}); got != 0 {
		t.Errorf("nobody is silent: %s", got)
	}
	if got := waited(time.Now().Add(-time.Hour), []*question{{err: &silence{}}}); got < time.Hour {
		t.Errorf("all are silent for an hour: %s", got)
	}
}
