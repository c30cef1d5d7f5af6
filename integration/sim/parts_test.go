package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Many seeds are run in parts, each in a process of its own. That uses all processors, a part
// that panics or hangs costs no other, and a process with one processor for itself takes two thirds of
// the CPU: nobody looks for work elsewhere each time that everything in the bubble waits. Every
// fourth part has all processors, because there what is woken at one moment runs at one moment.

// partSeeds is how many seeds are one part.
const partSeeds = 20

// linePrefix begins the line that a process prints of each seed.
const linePrefix = "sim: "

// parts hands out seeds.
type parts struct {
	mu    sync.Mutex
	next  uint64
	end   uint64
	ends  time.Time // nothing is handed out after it, unless it is zero
	count int
	again []part // the rest of those that a panic ended
}

type part struct {
	first  uint64
	count  int
	number int
}

func (q *parts) take() (p part, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ends.IsZero() && time.Now().After(q.ends) {
		return p, false
	}
	if len(q.again) > 0 {
		p, q.again = q.again[0], q.again[1:]
		return p, true
	}
	if q.next == q.end {
		return p, false
	}
	p = part{q.next, int(min(partSeeds, q.end-q.next)), q.count}
	q.next += uint64(p.count)
	q.count++
	return p, true
}

// putBack hands out the seeds of a part again, but for the first so many.
func (q *parts) putBack(p part, without int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.first, p.count = p.first+uint64(without), p.count-without; p.count > 0 {
		q.again = append(q.again, p)
	}
}

// runElsewhere runs seeds in other processes.
func runElsewhere(t *testing.T, count int) (sum counts) {
	t.Helper()
	q := &parts{next: *firstFlag, end: *firstFlag + uint64(count)}
	if *forFlag > 0 {
		q.ends = time.Now().Add(*forFlag)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range max(1, *processesFlag) {
		wg.Go(func() {
			for p, ok := q.take(); ok; p, ok = q.take() {
				out, err := p.run(t)
				done, text := readLines(out)
				mu.Lock()
				for i := range done {
					sum.add(&done[i])
				}
				if (sum.Seeds-len(done))/500 < sum.Seeds/500 {
					t.Log("so far ", sum.String())
				}
				mu.Unlock()
				switch {
				case len(done) < p.count:
					t.Errorf("seed %d ended its process: %v\n%s", p.first+uint64(len(done)), err, text)
					q.putBack(p, len(done)+1)
				case err != nil:
					t.Error(text)
				}
			}
		})
	}
	wg.Wait()
	return sum
}

// run runs a part in a process of its own.
func (p part) run(t *testing.T) ([]byte, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Error(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.timeout="+partTimeout.String(), "-sim.child",
		fmt.Sprintf("-sim.first=%d", p.first), fmt.Sprintf("-sim.seeds=%d", p.count),
		fmt.Sprintf("-sim.smaller=%t", *smallerFlag),
		fmt.Sprintf("-sim.pipelines=%d", p.count), fmt.Sprintf("-sim.silences=%d", p.count),
		fmt.Sprintf("-sim.standbys=%d", p.count))
	// What an engine takes in memory is made anew at each start of one, so that by itself the
	// collector would run at each.
	cmd.Env = append(os.Environ(), "GOGC=400")
	if p.number%4 != 3 {
		cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
	}
	return cmd.CombinedOutput()
}

// readLines reads what a process has printed: of each seed a line, and what it said beside.
func readLines(out []byte) (done []counts, text string) {
	var rest strings.Builder
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var c counts
		line, ok := strings.CutPrefix(lines.Text(), linePrefix)
		if ok && json.Unmarshal([]byte(line), &c) == nil {
			done = append(done, c)
			continue
		}
		rest.WriteString(lines.Text() + "\n")
	}
	return done, rest.String()
}
