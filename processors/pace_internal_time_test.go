package processors

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/feed"
)

// A backfill works for its share of the time while others write, and all the time
// while nobody does and behind what was there.
func TestPace(t *testing.T) {
	for name, c := range map[string]struct {
		ends []feed.LSN // of the log, as it was looked at
		from feed.LSN
		took time.Duration
		want time.Duration
	}{
		"others write":              {[]feed.LSN{100, 101}, 50, 100 * time.Millisecond, 300 * time.Millisecond},
		"nobody writes":             {[]feed.LSN{100, 101, 101}, 50, 100 * time.Millisecond, 0},
		"nobody knows yet":          {[]feed.LSN{101}, 50, 100 * time.Millisecond, 0},
		"what came after it":        {[]feed.LSN{100, 101}, 91, 100 * time.Millisecond, 0},
		"the last that was there":   {[]feed.LSN{100, 101}, 90, 100 * time.Millisecond, 300 * time.Millisecond},
		"a batch that had to wait":  {[]feed.LSN{100, 101}, 50, time.Minute, restMax},
		"a batch that took no time": {[]feed.LSN{100, 101}, 50, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p pace
				p.share, p.backfillTo = 0.25, 90
				for _, end := range c.ends {
					p.noteLogEnd(end)
				}
				p.noteBatch(c.from, c.took)
				if got := p.pause(); got != c.want {
					t.Errorf("it rests for %s, not %s", got, c.want)
				}
				time.Sleep(c.want)
				if got := p.pause(); got != 0 {
					t.Errorf("and for %s again", got)
				}
			})
		})
	}
}
