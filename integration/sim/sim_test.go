package sim

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

var (
	seedFlag          = flag.Uint64("sim.seed", 0, "run this seed alone, and print all that happens in it")
	seedsFlag         = flag.Int("sim.seeds", 12, "how many seeds to run")
	pipelineSeedsFlag = flag.Int("sim.pipelines", 1, "how many seeds to run in which pipelines are declared")
	pipelinesFlag     = flag.Bool("sim.declare", false, "with sim.seed: declare pipelines")
	liveFlag          = flag.Bool("sim.live", false, "print what happens while it does")
	firstFlag         = flag.Uint64("sim.first", 1, "the first of them")
)

// TestSimulation runs seeds. One that fails is made smaller and printed.
func TestSimulation(t *testing.T) {
	if *seedFlag != 0 {
		p := planOf(*seedFlag)
		if *pipelinesFlag {
			p = pipelinesOf(*seedFlag)
		}
		r := run(t, p)
		t.Logf("%s%s", p.String(), r.trace)
		for _, f := range r.failures {
			t.Error(f)
		}
		return
	}
	runSeeds(t, *seedsFlag, planOf)
}

// TestPipelines runs seeds in which pipelines are declared.
func TestPipelines(t *testing.T) {
	runSeeds(t, *pipelineSeedsFlag, pipelinesOf)
}

func runSeeds(t *testing.T, count int, draw func(uint64) plan) {
	t.Helper()
	var sum result
	for i := range count {
		p := draw(*firstFlag + uint64(i))
		r := run(t, p)
		sum.commits, sum.trimmed, sum.acks = sum.commits+r.commits, sum.trimmed+r.trimmed, sum.acks+r.acks
		sum.unknown, sum.epochs = sum.unknown+r.unknown, sum.epochs+r.epochs
		if len(r.failures) == 0 {
			continue
		}
		if small, again, ok := shrink(t, p); ok {
			p, r = small, again
		}
		t.Errorf("%s%s\nagain: go test ./integration/sim -run TestSimulation -args -sim.seed=%d\n%s", p.String(), list(r.failures), p.Seed, keep(t, r.trace))
	}
	t.Logf("%d seeds: %d commits, %d of them trimmed, %d calls acknowledged, %d unknown, %d terms of owners",
		count, sum.commits, sum.trimmed, sum.acks, sum.unknown, sum.epochs)
}

// triesMax is how often a plan is run before it is believed that it does not fail.
const triesMax = 4

// fails runs a plan until it fails.
func fails(t *testing.T, p plan) (r result, failed bool) {
	t.Helper()
	for range triesMax {
		if r = run(t, p); len(r.failures) > 0 {
			return r, true
		}
	}
	return r, false
}

// shrink takes from a plan that fails whatever it still fails without. It is not ok if the
// plan does not fail again.
func shrink(t *testing.T, p plan) (small plan, r result, ok bool) {
	t.Helper()
	if r, ok = fails(t, p); !ok {
		return p, r, false
	}
	for smaller := true; smaller; {
		smaller = false
		for _, q := range p.smaller() {
			if again, failed := fails(t, q); failed {
				p, r, smaller = q, again, true
				break
			}
		}
	}
	return p, r, true
}

func list(failures []string) (text string) {
	for _, f := range failures {
		text += "\n" + f
	}
	return text
}

// keep writes a trace into a file that stays.
func keep(t *testing.T, tr *trace) string {
	t.Helper()
	f, err := os.CreateTemp("", "sim-trace-") //nolint:usetesting // it is to be read afterwards
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	_, _ = fmt.Fprint(f, tr)
	return "what happened: " + f.Name()
}
