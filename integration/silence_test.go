package integration_test

import (
	"flag"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

var silenceRounds = flag.Int("silences", 1, "rounds of the tests that silence NATS servers")

// TestSilence_ACutServerStopsNobodyForLong cuts each NATS server off in turn, without
// a word to anybody. Two of three are left, which is a quorum: while the cut lasts,
// writes are acknowledged again, workers bring copies up to date, and commands
// answer. The figures are logged; what is asserted is that it goes on at all before
// the cut ends.
func TestSilence_ACutServerStopsNobodyForLong(t *testing.T) {
	t.Parallel()
	silence(t, func(n *natsProcess) (end func()) {
		n.Cut()
		return n.Heal
	})
}

// TestSilence_AStoppedServerStopsNobodyForLong does the same with servers whose
// process stands still: their connections stay open, and nobody is at the other end.
func TestSilence_AStoppedServerStopsNobodyForLong(t *testing.T) {
	t.Parallel()
	silence(t, func(n *natsProcess) (end func()) {
		n.signal(syscall.SIGSTOP)
		return func() { n.signal(syscall.SIGCONT) }
	})
}

func (n *natsProcess) signal(s syscall.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatal(err)
	}
}

func silence(t *testing.T, begin func(n *natsProcess) (end func())) {
	t.Helper()
	c := newNetCluster(t)
	c.start()
	c.replicated()
	w := c.witness()
	gaps := map[string][]time.Duration{}
	for round := range *silenceRounds {
		for i, n := range c.nats {
			// One failure at a time: what was silent before must have caught up. A server that
			// lacks a part of a stream and has lost its leader is no member of a quorum.
			c.whole()
			w.flows(t, eventWrite, time.Now())
			w.flows(t, eventCopy, time.Now())
			began := time.Now()
			end := begin(n)
			asked := time.Now()
			out, err := c.command("query", "-c", "productMeta", "-o", "ndjson", "--wait", "2m", "--timeout", "1m", "SELECT c.name FROM c").CombinedOutput()
			if err != nil || !strings.Contains(string(out), `"v`) {
				t.Errorf("a command answered: %v\n%s", err, out)
			}
			gaps["command"] = append(gaps["command"], time.Since(asked))
			// What the server took before it fell silent may be told a moment later.
			settled := began.Add(time.Second)
			w.flows(t, eventWrite, settled)
			w.flows(t, eventCopy, settled)
			// A short cut and a long one are the same but for the end.
			if (round+i)%2 == 1 {
				w.flows(t, eventWrite, began.Add(20*time.Second))
			}
			end()
			healed := time.Now()
			w.flows(t, eventWrite, healed)
			w.flows(t, eventCopy, healed)
			for _, event := range []string{eventWrite, eventCopy} {
				gaps[event] = append(gaps[event], w.gap(event, began))
			}
			t.Logf("server %s silent for %s: without a write for %s, a copy for %s; a command took %s", n.Name, healed.Sub(began).Round(time.Millisecond),
				lastOf(gaps[eventWrite]), lastOf(gaps[eventCopy]), lastOf(gaps["command"]))
		}
	}
	for what, all := range gaps {
		slices.Sort(all)
		t.Logf("%s: median %s, most %s of %d", what, all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond), len(all))
	}
}

// lastOf is the last of durations.
func lastOf(all []time.Duration) time.Duration { return all[len(all)-1].Round(time.Millisecond) }
