package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
)

// TestDrainOf tells of nodes that are to drain beside others.
func TestDrainOf(t *testing.T) {
	t.Parallel()
	const one, two = "store/abcdefgh/0", "store/hgfedcba/0"
	containers := []store.ContainerInfo{
		{ID: "abcdefgh", Spec: store.ContainerSpec{Standbys: 1}, Partitions: []store.PartitionInfo{{Number: 0}}},
		{ID: "hgfedcba", Partitions: []store.PartitionInfo{{Number: 0}}},
	}
	process := func(group, node string, state leases.ProcessState, drains bool, warm ...string) leases.Process {
		p := leases.Process{Group: group, Node: node, State: state, Drains: drains, Warm: map[string]uint64{}}
		for _, resource := range warm {
			p.Warm[resource] = 1
		}
		return p
	}
	lease := func(resource string, bound bool) leases.Lease {
		group, _, _ := strings.Cut(resource, "/")
		return leases.Lease{Group: group, Resource: resource, Owner: "a/1", Bound: bound}
	}
	other := process("store", "b", leases.ProcessUp, false)
	tests := []struct {
		name      string
		processes []leases.Process
		held      []leases.Lease
		may       string // what keeps it from draining
		says      string
		done      bool
	}{
		{name: "nobody is there", may: "no store and no worker runs"},
		{name: "another name", processes: []leases.Process{other, process("worker", "c", leases.ProcessClosed, false), process("store", "d", leases.ProcessLeft, false)}, may: "there is no node a; there are b, c"},
		{name: "it does not run", processes: []leases.Process{process("store", "a", leases.ProcessLeft, false), other}, may: "does not run"},
		{name: "alone", processes: []leases.Process{process("store", "a", leases.ProcessUp, false), process("worker", "a", leases.ProcessUp, false)}, may: "is the only store and the only worker"},
		{name: "alone as a worker", processes: []leases.Process{process("store", "a", leases.ProcessUp, false), other, process("worker", "a", leases.ProcessUp, false)}, may: "is the only worker that"},
		{name: "the other drains", processes: []leases.Process{process("store", "a", leases.ProcessUp, false), process("store", "b", leases.ProcessClosed, true)}, may: "is the only store that takes anything: nobody would serve what it gives up; start another one first, or let one that drains take its share again: millrace drain b --undo"},
		{
			name: "each waits for the other", processes: []leases.Process{process("store", "a", leases.ProcessClosed, true), process("store", "b", leases.ProcessClosed, true), process("store", "c", leases.ProcessLeft, true)}, held: []leases.Lease{lease(one, false)},
			says: "node a has 1 lease left (1: no other node takes it); b drains too, and each waits for the other: start another node, or let one take its share again with millrace drain b --undo",
		},
		{
			name: "another drains, and a third does not", processes: []leases.Process{process("store", "a", leases.ProcessClosed, true), process("store", "b", leases.ProcessClosed, true), process("store", "c", leases.ProcessUp, false)}, held: []leases.Lease{lease(two, false)},
			says: "node a has 1 lease left (1: it is about to move)",
		},
		{
			name: "it has not heard", processes: []leases.Process{process("store", "a", leases.ProcessUp, true), other},
			says: "node a has not heard of it yet, and has 0 leases",
		},
		{
			name: "cold and about to move", processes: []leases.Process{process("store", "a", leases.ProcessClosed, true), other}, held: []leases.Lease{lease(one, false), lease(two, false)},
			says: "node a has 2 leases left (1: it is about to move; 1: no other store has a copy that is ready)",
		},
		{
			name: "warm", processes: []leases.Process{process("store", "a", leases.ProcessClosed, true), process("store", "b", leases.ProcessUp, false, one)}, held: []leases.Lease{lease(one, false)},
			says: "node a has 1 lease left (1: it is about to move)",
		},
		{
			name: "bound", processes: []leases.Process{process("store", "a", leases.ProcessClosed, true), other}, held: []leases.Lease{lease(one, true)},
			says: "node a has 1 lease left (1: no other node can do anything with it; see millrace describe container)",
		},
		{
			name: "the other has gone since", processes: []leases.Process{process("worker", "a", leases.ProcessClosed, true), process("worker", "b", leases.ProcessSilent, false)}, held: []leases.Lease{lease("worker/x", false)},
			says: "node a has 1 lease left (1: no other node takes it)",
		},
		{
			name: "done", processes: []leases.Process{process("store", "a", leases.ProcessClosed, true), other}, held: []leases.Lease{{Group: "store", Resource: one, Owner: "b/1", Last: "a/1"}},
			says: "node a has nothing", done: true,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := drainOf("a", test.processes, test.held, containers)
			switch err := d.May(); {
			case test.may == "" && err != nil, test.may != "" && (err == nil || !strings.Contains(err.Error(), test.may)):
				t.Errorf("may: %v, want %q", err, test.may)
			}
			if test.says != "" && d.String() != test.says {
				t.Errorf("says %q, want %q", d, test.says)
			}
			if d.Done() != test.done {
				t.Errorf("done: %v", d.Done())
			}
		})
	}
}

// TestDrainWait waits for a node through what may become of it.
func TestDrainWait(t *testing.T) {
	t.Parallel()
	const (
		runs  = iota // it is to drain, and has something
		heard        // it is to drain, and has nothing
		away         // it is to drain, and does not run
		taken        // it runs, and is not to drain
		gone         // it does not run, and is not to drain
	)
	looks := map[int]*Drain{
		runs:  {Drains: true, Heard: true, running: true, Left: []Left{{}}},
		heard: {Drains: true, Heard: true, running: true},
		away:  {Drains: true, Heard: true},
		taken: {running: true},
		gone:  {Heard: true},
	}
	type look struct {
		at   time.Duration
		what int
	}
	tests := []struct {
		name  string
		looks []look // all but the last are before the end
	}{
		{"it drains", []look{{0, runs}, {time.Hour, runs}, {2 * time.Hour, heard}}},
		{"the wish is not seen at once", []look{{0, taken}, {time.Second, runs}, {2 * time.Second, heard}}},
		{"somebody takes it back", []look{{0, runs}, {time.Second, taken}}},
		{"it starts again", []look{{0, runs}, {time.Second, away}, {DrainAway, away}, {DrainAway + time.Second/2, runs}, {2 * DrainAway, away}, {3*DrainAway - 1, heard}}},
		{"it does not come back", []look{{0, runs}, {time.Second, away}, {DrainAway + time.Second - 1, away}, {DrainAway + time.Second, away}}},
		{"it ends, and the wish with it", []look{{0, runs}, {time.Second, gone}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var w DrainWait
			begun := time.Now()
			for i, l := range test.looks {
				if over := w.Over(looks[l.what], begun.Add(l.at)); over != (i == len(test.looks)-1) {
					t.Errorf("look %d: over %t", i, over)
				}
			}
		})
	}
}
