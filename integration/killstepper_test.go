package integration_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/steps"
)

var (
	stepRounds = flag.Int("steps.rounds", 3, "rounds of the tests that kill processes at their steps; each has one or two kills")
	stepSeed   = flag.Uint64("steps.seed", 0, "seed of the tests that kill processes at their steps; 0 is a new one")
)

// newStepSeed is the seed that was given, or a new one, which it logs.
func newStepSeed(t *testing.T) uint64 {
	t.Helper()
	seed := *stepSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-steps.seed=%d", seed)
	return seed
}

// stepper counts the steps of a process, by what they do to a file of which role, and
// chooses at which it is killed.
type stepper struct {
	folders map[string]string // what is watched, and the name that begins its steps
	dice    *rand.Rand        // of who begins phases

	mu    sync.Mutex
	phase string                       // what the process is doing; "" is not of interest
	known map[string]map[string]*tally // by phase and step
	since time.Time                    // when it began to
	at    string                       // the step to kill at; "" is none
	nth   int                          // how many of it are still to come, this one too
	after bool
}

// tally is what is known of one step.
type tally struct {
	seen  int // in this phase of this process
	most  int // of all
	tries int
	kills int
}

var stepNames = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`MILLRACE_[a-z0-9]{8}_\d+`), "LOG"},
	{regexp.MustCompile(`^nats/jetstream/\$G/streams/`), ""},
	{regexp.MustCompile(`snapshots/[a-z0-9]{8}/\d+`), "snapshots"},
	{regexp.MustCompile(`^log/[a-z0-9]{8}/\d+`), "log"},
	{regexp.MustCompile(`\d{20}-[0-9a-f]{16}`), "ID"},
	{regexp.MustCompile(`_test_.*|\d{20}-[a-zA-Z0-9]+(-\d+)?|[0-9A-Z]{20,}|[0-9a-f]{16,}`), "NAME"},
	{regexp.MustCompile(`\d+`), "N"},
}

// name names a step; it is empty if the file lies in none of the folders.
func (k *stepper) name(c steps.Call) string {
	for folder, name := range k.folders {
		if path, ok := strings.CutPrefix(c.Path, folder+"/"); ok {
			return c.Name + " " + name + roleOf(path)
		}
	}
	return ""
}

// roleOf is a path without what is different from file to file of one role.
func roleOf(path string) string {
	for _, r := range stepNames {
		path = r.pattern.ReplaceAllString(path, r.name)
	}
	return path
}

// see counts a step, and kills at the one that was chosen.
func (k *stepper) see(c steps.Call) steps.Verdict {
	name := k.name(c)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.phase == "" || name == "" {
		return steps.Go
	}
	step := k.known[k.phase][name]
	if step == nil {
		step = &tally{}
		k.known[k.phase][name] = step
	}
	step.seen++
	step.most = max(step.most, step.seen)
	switch {
	case name == k.at:
		if k.nth--; k.nth > 0 {
			return steps.Go
		}
	case step.kills > 0 || time.Since(k.since) < stepPatience:
		return steps.Go
	}
	step.kills++
	k.at, k.phase = "", ""
	if k.after {
		return steps.KillAfter
	}
	return steps.Kill
}

// stepPatience is for how long a step is waited for. Many come once in a while, so the
// process is killed then at the first step at which it never was.
const stepPatience = 2 * time.Second

// stepNthMax is the most often that a step comes before the process is killed at it.
const stepNthMax = 100

// begin begins a phase and chooses the step at which the process is killed in it: one of
// those at which it was killed least, none as long as no step of the phase is known.
func (k *stepper) begin(phase string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known[phase] == nil {
		k.known[phase] = map[string]*tally{}
	}
	k.phase, k.at, k.since = phase, "", time.Now()
	var least *tally
	for _, name := range slices.Sorted(maps.Keys(k.known[phase])) {
		step := k.known[phase][name]
		step.seen = 0
		rank := step.kills + step.tries
		if least == nil || rank < least.kills+least.tries || rank == least.kills+least.tries && k.dice.IntN(3) == 0 {
			k.at, least = name, step
		}
	}
	k.after = k.dice.IntN(2) == 0
	if least != nil {
		least.tries++
		k.nth = 1 + k.dice.IntN(min(least.most, stepNthMax))
	}
}

// end ends a phase, and tells of the step at which it has not ended; "" if it has, or had none.
func (k *stepper) end() (missed string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	missed, k.at, k.phase = k.at, "", ""
	return missed
}

// table tells at which steps the process was killed.
func (k *stepper) table() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var b strings.Builder
	all, at, named := 0, 0, 0
	for _, phase := range slices.Sorted(maps.Keys(k.known)) {
		for _, name := range slices.Sorted(maps.Keys(k.known[phase])) {
			step := k.known[phase][name]
			fmt.Fprintf(&b, "%-9s %-60s most %5d, %d kills of %d tries\n", phase, name, step.most, step.kills, step.tries)
			named++
			if all += step.kills; step.kills > 0 {
				at++
			}
		}
	}
	return fmt.Sprintf("%d kills at %d of %d steps\n%s", all, at, named, &b)
}
