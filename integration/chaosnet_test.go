//go:build linux

package integration_test

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

var (
	chaosTime   = flag.Duration("chaos.time", 0, "for how long faults befall the hosts of the chaos test; 0: chaos.faults says how many times")
	chaosFaults = flag.Int("chaos.faults", 3, "how many times faults befall the hosts of the chaos test, if chaos.time is 0")
	chaosSeed   = flag.Uint64("chaos.seed", 7, "seed of the faults and of what clients do; 0 draws one")
)

const (
	chaosRestEvery = 8 // times that faults befell hosts, between two comparisons of all copies
	chaosShopPace  = 1500 * time.Millisecond
)

// chaosContainers are those of a shop with every kind of copy, and the ledger of registers, all with standbys.
var chaosContainers = strings.ReplaceAll(everyContainer+`---
apiVersion: millrace/v1
kind: Container
metadata: {name: ledger}
spec: {partitionKey: [/k], partitions: 2}
`, "spec: {", "spec: {standbys: 1, ")

// chaosRun is one run of the test: the fleet, what clients do to it, and what befell it.
type chaosRun struct {
	*chaosFleet
	seed      uint64
	plan      *chaosPlan
	shop      *everyModel
	shifts    uint64
	registers *registers
	happened  []chaosHappened
}

// chaosHappened is a step that is over.
type chaosHappened struct {
	kind    string
	faults  int
	longest time.Duration // that a write of a register waited for its acknowledgement
	well    time.Duration // from the end of the faults until nothing was missing
}

// TestChaos_FaultsOfANetworkLoseNothing lets faults befall the hosts of a cluster, while partitions are split, categories
// are renamed, and clients write with idempotency keys and read from owners and standbys. Each next fault waits until all
// is well again.
//
// At the end the history of each register is linearizable, every acknowledged write is in the change feed, once (I2), and
// standbys have answered no session with a state older than it had. Now and then, and at the end, every copy is what a
// recomputation makes of what was written (I6), and verify says the same.
func TestChaos_FaultsOfANetworkLoseNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster of eight hosts takes a minute")
	}
	t.Parallel()
	seed := cmp.Or(*chaosSeed, uint64(time.Now().UnixNano()))
	t.Logf("seed %d", seed)
	c := &chaosRun{chaosFleet: newChaosFleet(t), seed: seed}
	c.plan = newChaosPlan(seed, c.hosts)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d; what befell the hosts:\n%s", seed, c.plan)
		}
	})
	c.declare()
	stopRegisters := c.startRegisters()
	stopShop := c.startShop()
	for began := time.Now(); c.goesOn(began) && !t.Failed(); {
		c.step()
		if len(c.happened)%chaosRestEvery == 0 {
			stopShop()
			c.compare()
			stopShop = c.startShop()
		}
	}
	stopShop()
	stopRegisters()
	t.Log(c.figures())
	if t.Failed() {
		return
	}
	c.compare()
	c.readAll()
	c.registers.judge(c.feed()).tell(t)
}

// goesOn says whether another step is to come.
func (c *chaosRun) goesOn(began time.Time) bool {
	if *chaosTime > 0 {
		return time.Since(began) < *chaosTime
	}
	return len(c.happened) < *chaosFaults
}

// declare declares the containers and the pipelines, and waits until all is well.
func (c *chaosRun) declare() {
	c.t.Helper()
	c.shop = everyModelOf(c.town, c.files)
	c.shop.keyed = true
	file := filepath.Join(c.t.TempDir(), "all.yaml")
	writeText(c.t, file, chaosContainers+"---"+everyPipelineIn(c.files))
	cmd := c.command("apply", "-f", file, "--set", "sinks.roots="+c.files)
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("apply: %v\n%s", err, out)
	}
	c.shop.open(c.client)
	c.well()
}

// startRegisters lets clients at the registers, each with a connection of its own.
func (c *chaosRun) startRegisters() (stop func()) {
	c.t.Helper()
	c.registers = newRegisters(c.t, c.seed)
	ctx, cancel := context.WithCancel(c.t.Context())
	var running sync.WaitGroup
	for n := range registerClients {
		ledger := open(c.t, c.clientOn(c.dial()), "ledger")
		running.Go(func() { c.registers.run(ctx, n, ledger) })
	}
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	c.t.Cleanup(stop)
	return stop
}

// startShop lets clients at the shop.
func (c *chaosRun) startShop() (stop func()) {
	c.shifts++
	ctx, cancel := context.WithCancel(c.t.Context())
	var running sync.WaitGroup
	for n := range everyWriters {
		rng := rand.New(rand.NewPCG(c.seed, c.shifts*1000+uint64(n)))
		running.Go(func() {
			tick := time.NewTicker(chaosShopPace)
			defer tick.Stop()
			for ctx.Err() == nil && !c.t.Failed() {
				c.shop.write(n, 1, rng)
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	c.t.Cleanup(stop)
	return stop
}

// step lets the next faults of the plan befall their hosts, and waits until all is well again.
func (c *chaosRun) step() {
	c.t.Helper()
	s := c.plan.next()
	c.registers.generation.Add(1)
	from := c.registers.now()
	c.t.Logf("%d, at %s (%s): %s", len(c.plan.drawn), from.Round(time.Millisecond), time.Now().UTC().Format("15:04:05.000"), s)
	var splitting sync.WaitGroup
	if s.split != "" {
		splitting.Go(func() {
			pause(c.t, s.after)
			c.t.Logf("%d: split of %s: %s", len(c.plan.drawn), s.split, c.split(c.t.Context(), s))
		})
	}
	var ends []func()
	for _, fault := range s.faults {
		ends = append(ends, c.inflict(fault.kind, c.find(fault.host)))
	}
	pause(c.t, s.lasts)
	for _, end := range ends {
		end()
	}
	ended := c.registers.now()
	splitting.Wait()
	c.well()
	poll.Until(c.t, func() error {
		n := c.registers.since(ended)
		return poll.Unless(n == registerClients, fmt.Sprintf("writes of %d of %d clients were acknowledged since", n, registerClients))
	})
	now := c.registers.now()
	h := chaosHappened{kind: s.kind(), faults: len(s.faults), longest: c.registers.longest(from, now), well: now - ended}
	c.happened = append(c.happened, h)
	c.t.Logf("%d: no acknowledgement for up to %s; all was well %s after the end", len(c.plan.drawn), h.longest.Round(time.Millisecond), h.well.Round(time.Millisecond))
}

// compare waits until the pipelines have nothing left to do, and compares every copy.
func (c *chaosRun) compare() {
	c.t.Helper()
	began := time.Now()
	c.shop.rest()
	rested := time.Now()
	c.shop.compare()
	c.shop.equal("at rest")
	c.alive()
	c.t.Logf("compared after %d operations of the shop: %s until it was at rest, %s to compare", c.shop.steps.Load(),
		rested.Sub(began).Round(time.Millisecond), time.Since(rested).Round(time.Millisecond))
}

// readAll reads every register there ever was, as a client that comes later.
func (c *chaosRun) readAll() {
	c.t.Helper()
	last := &registerClient{
		registers: c.registers, n: registerClients, ledger: open(c.t, c.client, "ledger"), seen: map[uint32]feed.LSN{}, last: map[string]registerOp{},
	}
	for generation := range c.registers.generation.Load() + 1 {
		for n := range registerKeys {
			last.read(fmt.Sprintf("g%d-%d", generation, n))
		}
	}
}

// feed reads all changes of the ledger.
func (c *chaosRun) feed() (all []registerChange) {
	c.t.Helper()
	ledger := open(c.t, c.client, "ledger")
	for from := ""; ; {
		page, err := ledger.Changes(c.t.Context(), store.ChangesRequest{Continuation: from, AllVersions: true})
		if err != nil {
			c.t.Fatal(err)
		}
		for _, change := range page.Changes {
			var doc struct{ Value string }
			if err := json.Unmarshal(change.Item.Body, &doc); err != nil {
				c.t.Fatal(err)
			}
			all = append(all, registerChange{change.Item.ID, doc.Value, change.Item.ETag})
		}
		if from = page.Continuation; page.End {
			return all
		}
	}
}

// figures is a table of what befell the hosts, by kind.
func (c *chaosRun) figures() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	faults := 0
	fmt.Fprintf(w, "\ttimes\tno acknowledgement, median\tmost\tuntil all was well, median\tmost\t\n")
	for _, kind := range append(slices.Clone(faultKinds), faultTwo) {
		var longest, well []time.Duration
		for i := range c.happened {
			if h := &c.happened[i]; h.kind == kind {
				longest, well, faults = append(longest, h.longest), append(well, h.well), faults+h.faults
			}
		}
		if len(well) == 0 {
			continue
		}
		slices.Sort(longest)
		slices.Sort(well)
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t\n", kind, len(well), middle(longest), lastOf(longest), middle(well), lastOf(well))
	}
	_ = w.Flush() // into memory
	return fmt.Sprintf("seed %d: %d faults, %d writes of registers acknowledged, %d operations of the shop\n%s", c.seed, faults, len(c.registers.waits), c.shop.steps.Load(), &text)
}

// middle is the median of durations in order.
func middle(all []time.Duration) time.Duration { return all[len(all)/2].Round(time.Millisecond) }
