package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/millrace/millrace/pipelines/format"
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
	lines int
}

func newProgress(w io.Writer, what, unit string) *progress {
	p := &progress{w: w, what: what, unit: unit, began: time.Now(), told: time.Now()}
	if width, ok := terminal(w); ok {
		p.bar = newBar(w, what, unit, width)
	}
	return p
}

// unitBytes is the unit of what is shown as 1.5 MB of 20 MB.
const unitBytes = "bytes"

// newBar returns a bar on a terminal of so many columns. One of bytes stays when it is
// done; others are followed by what they counted.
func newBar(w io.Writer, what, unit string, width int) *progressbar.ProgressBar {
	options := []progressbar.Option{
		progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
		progressbar.OptionSetWidth(min(30, width/4)), progressbar.OptionThrottle(100 * time.Millisecond),
		progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true),
		// Otherwise a goroutine of its own draws it, after the end too, over what is said then.
		progressbar.OptionSetSpinnerChangeInterval(0),
	}
	if unit == unitBytes {
		options = append(options, progressbar.OptionShowBytes(true), progressbar.OptionOnCompletion(func() { fmt.Fprintln(w) }))
	} else {
		options = append(options, progressbar.OptionClearOnFinish(), progressbar.OptionSetItsString(unit), progressbar.OptionShowIts())
	}
	return progressbar.NewOptions64(-1, options...)
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
	p.line(share, done, note)
}

// line writes how far it is; p.mu is held.
func (p *progress) line(share string, done int64, note string) {
	p.lines++
	amount := format.Count(done) + " " + p.unit
	if p.unit == unitBytes {
		amount = megabytes(done)
	}
	fmt.Fprintf(p.w, "%s: %s%s, %s\n", p.what, share, amount, note)
}

// megabytes writes a number of bytes as people do.
func megabytes(n int64) string {
	if n < 1e6 {
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// end says that all of total is done, or that it ended before if all is false.
func (p *progress) end(all bool, total int64, note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.bar != nil && all:
		if total > 0 && p.bar.GetMax64() != total {
			p.bar.ChangeMax64(total)
		}
		p.bar.Describe(p.what + ": " + note)
		_ = p.bar.Finish() // as in set
	case p.bar != nil:
		_ = p.bar.Exit() // which leaves it where it is
	case all && p.lines > 0 && total > 0:
		p.line("100% ", total, note)
	}
}

// done takes the bar away.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Finish() // likewise
	}
}
