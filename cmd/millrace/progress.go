package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progressEvery is the time between two lines where there is no terminal.
const progressEvery = 5 * time.Second

// progress shows how far long work is: a bar on a terminal, a line now and then
// elsewhere. Safe for concurrent use.
type progress struct {
	w          io.Writer
	what, unit string

	mu    sync.Mutex
	bar   *progressbar.ProgressBar // nil without a terminal
	began time.Time
	told  time.Time
}

func newProgress(w io.Writer, what, unit string) *progress {
	p := &progress{w: w, what: what, unit: unit, began: time.Now(), told: time.Now()}
	if width, ok := terminal(w); ok {
		p.bar = progressbar.NewOptions64(-1, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
			progressbar.OptionSetWidth(min(30, width/4)), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true),
			progressbar.OptionSetItsString(unit), progressbar.OptionShowIts())
	}
	return p
}

// set says that done of total is done; a total of 0 is not known. note is added.
func (p *progress) set(done, total int64, note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		if total > 0 && p.bar.GetMax64() != total {
			p.bar.ChangeMax64(total)
		}
		p.bar.Describe(p.what + ": " + note)
		_ = p.bar.Set64(min(done, max(total, done))) // a bar that cannot be drawn is no reason to stop
		return
	}
	if time.Since(p.told) < progressEvery {
		return
	}
	p.told = time.Now()
	share := ""
	if total > 0 {
		share = fmt.Sprintf("%d%% ", 100*done/total)
	}
	fmt.Fprintf(p.w, "%s: %s%s %s, %s\n", p.what, share, count(done), p.unit, note)
}

// done takes the bar away.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Finish() // likewise
	}
}
