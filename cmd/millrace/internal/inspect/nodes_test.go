package inspect

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
)

// TestFleetOf has two stores that live, with a partition each, and one that is silent and has the third.
func TestFleetOf(t *testing.T) {
	t.Parallel()
	process := func(group, node string, state leases.ProcessState, warm map[string]uint64) leases.Process {
		return leases.Process{Group: group, Node: node, State: state, Warm: warm}
	}
	processes := []leases.Process{
		process("store", "a", leases.ProcessUp, map[string]uint64{"store/abcdefgh/1": 7}),
		process("store", "b", leases.ProcessClosed, nil),
		process("store", "c", leases.ProcessSilent, map[string]uint64{"store/abcdefgh/0": 7}),
		process("worker", "a", leases.ProcessUp, nil),
	}
	held := []leases.Lease{
		{Group: "store", Resource: "store/abcdefgh/0", Owner: "a/1"},
		{Group: "store", Resource: "store/abcdefgh/1", Owner: "b/1"},
		{Group: "store", Resource: "store/abcdefgh/2", Owner: "c/1"},
		{Group: "worker", Resource: "pipe/x", Owner: "a/2"},
		{Group: "worker", Resource: "pipe/gone", Last: "a/2"},
	}
	wished := store.ContainerInfo{ID: "abcdefgh", Spec: store.ContainerSpec{Standbys: 1}}
	other := store.ContainerInfo{ID: "hgfedcba", Partitions: []store.PartitionInfo{{Number: 0}}}
	for n := range uint32(3) {
		wished.Partitions = append(wished.Partitions, store.PartitionInfo{Number: n})
	}
	f := fleetOf(processes, held, []store.ContainerInfo{wished, other})
	var got []string
	loading := 0
	for _, n := range f.Nodes {
		got = append(got, fmt.Sprintf("%s %s: %d leases, %d warm", n.Group, n.Node, n.Leases, len(n.Warm)))
		loading += n.Loading
	}
	want := []string{"store a: 1 leases, 1 warm", "store b: 1 leases, 0 warm", "store c: 1 leases, 1 warm", "worker a: 1 leases, 0 warm"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// b is to follow partition 0, and a or b partition 2. Nobody follows partition 0 of the other container.
	if loading != 2 || f.Nodes[1].Loading == 0 {
		t.Errorf("loading are %d copies: %+v", loading, f.Nodes)
	}
	// Partition 2, and that of the other container.
	if f.Unowned != 2 {
		t.Errorf("%d partitions are nobody's", f.Unowned)
	}
}

// TestFleetOf_CountsWhatIsMadeBeyondTheRank has two stores beside the owner of a partition that wants one standby: one
// is to keep it by its rank, and both make it, as where it is to move to the other.
func TestFleetOf_CountsWhatIsMadeBeyondTheRank(t *testing.T) {
	t.Parallel()
	const resource = "store/abcdefgh/0"
	var processes []leases.Process
	for _, node := range []string{"b", "c"} {
		processes = append(processes, leases.Process{Group: "store", Node: node, State: leases.ProcessUp, Loading: []string{resource}})
	}
	processes = append(processes, leases.Process{Group: "store", Node: "a", State: leases.ProcessUp})
	wished := store.ContainerInfo{ID: "abcdefgh", Spec: store.ContainerSpec{Standbys: 1}, Partitions: []store.PartitionInfo{{Number: 0}}}
	f := fleetOf(processes, []leases.Lease{{Group: "store", Resource: resource, Owner: "a/1"}}, []store.ContainerInfo{wished})
	got := map[string]int{}
	for _, n := range f.Nodes {
		got[n.Node] = n.Loading
	}
	if diff := cmp.Diff(map[string]int{"a": 0, "b": 1, "c": 1}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
