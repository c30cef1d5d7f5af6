package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/raced"
)

var (
	seedFlag          = flag.Uint64("sim.seed", 0, "run this seed alone, and print all that happens in it")
	seedsFlag         = flag.Int("sim.seeds", raced.Rounds(12, 100), "how many seeds to run")
	pipelineSeedsFlag = flag.Int("sim.pipelines", raced.Rounds(2, 15), "how many seeds to run in which pipelines are declared")
	silenceSeedsFlag  = flag.Int("sim.silences", raced.Rounds(2, 15), "how many seeds to run in which nodes fall silent while their leases last")
	standbySeedsFlag  = flag.Int("sim.standbys", raced.Rounds(2, 15), "how many seeds to run in which standbys lag behind owners that die")
	pipelinesFlag     = flag.Bool("sim.declare", false, "with sim.seed: declare pipelines")
	liveFlag          = flag.Bool("sim.live", false, "print what happens while it does")
	firstFlag         = flag.Uint64("sim.first", 1, "the first of them")
	processesFlag     = flag.Int("sim.processes", runtime.NumCPU(), "how many processes run seeds at once")
	forFlag           = flag.Duration("sim.for", 0, "begin no seeds after this time, 0 for all that are to be run")
	smallerFlag       = flag.Bool("sim.smaller", true, "make a plan that fails smaller")
	childFlag         = flag.Bool("sim.child", false, "run seeds for another process, which reads what became of each")
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

// TestSilences runs seeds in which nodes fall silent while their leases last.
func TestSilences(t *testing.T) {
	runSeeds(t, *silenceSeedsFlag, silencesOf)
}

// TestStandbys runs seeds in which standbys lag behind owners that die.
func TestStandbys(t *testing.T) {
	runSeeds(t, *standbySeedsFlag, standbysOf)
}

// counts are what runs were about, so that one sees that it happens.
type counts struct {
	Seeds    int    `json:"seeds"`
	Commits  int    `json:"commits"`
	Trimmed  uint64 `json:"trimmed"`
	Acks     int    `json:"acks"`
	Unknown  int    `json:"unknown"`
	Epochs   uint64 `json:"epochs"`
	Declared int    `json:"declared"` // generations of pipelines
	Walks    int    `json:"walks"`    // of their partitions, that began with items
	Walked   uint64 `json:"walked"`   // items
	Splits   int    `json:"splits"`
	Again    int    `json:"again"`    // of these, of partitions that came by a split
	Told     int    `json:"told"`     // digests
	Compared int    `json:"compared"` // by standbys, which found them equal
	Old      int    `json:"old"`      // reads of what was not the newest, rightly
}

func (c *counts) add(o *counts) {
	c.Seeds, c.Commits, c.Trimmed = c.Seeds+o.Seeds, c.Commits+o.Commits, c.Trimmed+o.Trimmed
	c.Acks, c.Unknown, c.Epochs = c.Acks+o.Acks, c.Unknown+o.Unknown, c.Epochs+o.Epochs
	c.Splits, c.Again = c.Splits+o.Splits, c.Again+o.Again
	c.Told, c.Compared, c.Old = c.Told+o.Told, c.Compared+o.Compared, c.Old+o.Old
	c.Declared, c.Walks, c.Walked = c.Declared+o.Declared, c.Walks+o.Walks, c.Walked+o.Walked
}

func (c *counts) String() string {
	text := fmt.Sprintf("%d seeds: %d commits, %d of them trimmed, %d calls acknowledged, %d unknown, %d terms of owners",
		c.Seeds, c.Commits, c.Trimmed, c.Acks, c.Unknown, c.Epochs)
	if c.Splits > 0 {
		text += fmt.Sprintf(", %d splits, %d of them of what came by one", c.Splits, c.Again)
	}
	if c.Declared > 0 {
		text += fmt.Sprintf(", %d pipelines, %d walks over %d items", c.Declared, c.Walks, c.Walked)
	}
	return text + c.standbys()
}

// runSeeds runs a number of seeds, in other processes if they are many.
func runSeeds(t *testing.T, count int, draw func(uint64) plan) {
	t.Helper()
	var sum counts
	if *childFlag || count <= partSeeds && *forFlag == 0 {
		sum = runHere(t, count, draw)
	} else {
		sum = runElsewhere(t, count)
	}
	t.Log(sum.String())
}

// runHere runs seeds in this process, one after the other: what one bubble has made must not be
// met in another, and the client of NATS keeps timers for all.
func runHere(t *testing.T, count int, draw func(uint64) plan) (sum counts) {
	t.Helper()
	for i := range count {
		p := draw(*firstFlag + uint64(i))
		r := run(t, p)
		sum.add(&r.counts)
		if *childFlag {
			line, err := json.Marshal(r.counts)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = fmt.Fprintf(os.Stdout, "%s%s\n", linePrefix, line)
		}
		if len(r.failures) == 0 {
			continue
		}
		fails := func(p plan) (result, bool) { return failsAtOnce(t, p) }
		if *smallerFlag {
			if small, again, ok := shrink(p, fails); ok {
				p, r = small, again
			}
		}
		t.Errorf("%s%s\nagain: go test ./integration/sim -run TestSimulation -args -sim.seed=%d -sim.declare=%t\n%s",
			p.String(), list(r.failures), p.Seed, p.Pipelines > 0, keep(t, r.trace))
	}
	return sum
}

// triesMax is how often a plan is run before it is believed that it does not fail.
const triesMax = 4

// failsAtOnce runs a plan until it fails.
func failsAtOnce(t *testing.T, p plan) (r result, failed bool) {
	t.Helper()
	for range triesMax {
		if r = run(t, p); len(r.failures) > 0 {
			return r, true
		}
	}
	return r, false
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

// partTimeout is how long a part of the seeds may take. A bubble in which somebody waits for a
// lock for ever would never end: the process prints all stacks then.
const partTimeout = 15 * time.Minute
