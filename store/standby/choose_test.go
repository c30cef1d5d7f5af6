package standby_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/standby"
)

func partition(n int) feed.Partition {
	return feed.Partition{Container: "abcdefgh", Number: uint32(n)}
}

func TestChoose(t *testing.T) {
	wish := func(n, standbys int, owner string) standby.Wish {
		return standby.Wish{Partition: partition(n), Standbys: standbys, Owner: owner}
	}
	next := func(n int, node string) standby.Wish {
		return standby.Wish{Partition: partition(n), Standbys: 1, Owner: "a", Next: node}
	}
	tests := []struct {
		name   string
		self   string
		nodes  []string
		wishes []standby.Wish
		want   []feed.Partition
	}{
		{name: "the other of two", self: "b", nodes: []string{"a", "b"}, wishes: []standby.Wish{wish(0, 1, "a")}, want: []feed.Partition{partition(0)}},
		{name: "not the owner", self: "a", nodes: []string{"a", "b"}, wishes: []standby.Wish{wish(0, 1, "a")}},
		{name: "nobody where none is wished", self: "b", nodes: []string{"a", "b"}, wishes: []standby.Wish{wish(0, 0, "a")}},
		{name: "an owner that is gone", self: "b", nodes: []string{"b"}, wishes: []standby.Wish{wish(0, 1, "a")}, want: []feed.Partition{partition(0)}},
		{name: "one that is alone", self: "a", nodes: []string{"a"}, wishes: []standby.Wish{wish(0, 1, "a")}},
		{name: "who is to own it next, too", self: "c", nodes: []string{"a", "b", "c"}, wishes: []standby.Wish{next(0, "c"), next(1, "c"), next(2, "c")}, want: []feed.Partition{partition(0), partition(1), partition(2)}},
		{name: "but not if it does not live", self: "c", nodes: []string{"a", "b"}, wishes: []standby.Wish{next(0, "c")}},
		{name: "nor where no copies are wished", self: "c", nodes: []string{"a", "b", "c"}, wishes: []standby.Wish{{Partition: partition(0), Owner: "a", Next: "c"}}},
		{name: "one that does not live", self: "c", nodes: []string{"a", "b"}, wishes: []standby.Wish{wish(0, 1, "a")}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, standby.Choose(test.self, test.nodes, test.wishes), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestChoose_SpreadsAndStays counts what each of five nodes follows, and what changes for the others when one goes.
func TestChoose_SpreadsAndStays(t *testing.T) {
	nodes := []string{"n0", "n1", "n2", "n3", "n4"}
	var wishes []standby.Wish
	for n := range 500 {
		wishes = append(wishes, standby.Wish{Partition: partition(n), Standbys: 1, Owner: nodes[n%5]})
	}
	follower := func(nodes []string) map[feed.Partition]string {
		by := map[feed.Partition]string{}
		for _, node := range nodes {
			for _, p := range standby.Choose(node, nodes, wishes) {
				if other, twice := by[p]; twice {
					t.Fatalf("%s and %s both follow %s", other, node, p)
				}
				by[p] = node
			}
		}
		return by
	}
	before := follower(nodes)
	counts := map[string]int{}
	for _, node := range before {
		counts[node]++
	}
	for _, node := range nodes {
		if counts[node] < 60 || counts[node] > 140 {
			t.Errorf("%s follows %d of 500: %v", node, counts[node], fmt.Sprint(counts))
		}
	}
	after := follower(nodes[:4])
	if len(before) != 500 || len(after) != 500 {
		t.Fatalf("%d partitions are followed, and %d when a node is gone", len(before), len(after))
	}
	for p, node := range before {
		if node != "n4" && after[p] != node {
			t.Errorf("%s went from %s to %s because n4 is gone", p, node, after[p])
		}
	}
}
