package registry

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// split is a container of one partition, 0, which was split into 1 and 2, of which 2 was split into 3 and 4.
func split() *store.ContainerInfo {
	part := func(n uint32) store.PartitionInfo { return store.PartitionInfo{Number: n} }
	return &store.ContainerInfo{
		ID: "c7k2x4ab", State: store.ContainerReady, Partitions: []store.PartitionInfo{part(1), part(3), part(4)},
		Former: []store.FormerPartition{
			{PartitionInfo: part(0), Last: 50, Children: []uint32{1, 2}, First: 1000},
			{PartitionInfo: part(2), Last: 1080, Children: []uint32{3, 4}, First: 2000},
		},
	}
}

// begun are checkpoints of source readers of generation 1: of a partition at an LSN, and the ended ones.
func begun(at map[uint32]feed.LSN, ended ...uint32) Checkpoints {
	all := Checkpoints{}
	name := func(n uint32) string {
		return processors.Resource{Pipeline: "p", Generation: 1, Role: processors.RoleSource, Partition: feed.Partition{Container: "c7k2x4ab", Number: n}}.String()
	}
	for n, lsn := range at {
		all[name(n)] = &processors.Checkpoint{Position: feed.Position{LSN: lsn}}
	}
	for _, n := range ended {
		all[name(n)] = &processors.Checkpoint{Position: feed.Position{LSN: 50}, Split: &processors.Split{First: 1000, Children: []uint32{1, 2}}}
	}
	return all
}

// Which partitions a generation reads follows from the catalog and its checkpoints: a parent until it has ended, and a child
// from when it has begun on. No child begins because it has no checkpoint.
func TestReaders_OfPartitionsThatWereSplit(t *testing.T) {
	t.Parallel()
	first := []Start{{Partition: 0}}
	parked := begun(nil, 0)
	for _, cp := range parked {
		cp.Parked = []processors.Job{{Source: "x", Parked: true}}
	}
	for _, c := range []struct {
		name  string
		heads []Start
		at    Checkpoints
		read  []uint32
		waits []uint32
	}{
		{"nobody has begun: not the children, whose parent is unread", first, nil, []uint32{0}, []uint32{1, 3, 4, 2}},
		{"the parent is read", first, begun(map[uint32]feed.LSN{0: 20}), []uint32{0}, []uint32{1, 3, 4, 2}},
		{"one child was made, and its maker died", first, begun(map[uint32]feed.LSN{0: 50, 1: 999}), []uint32{1, 0}, []uint32{3, 4, 2}},
		{"the children have begun, and the parent not ended", first, begun(map[uint32]feed.LSN{0: 50, 1: 999, 2: 999}), []uint32{1, 0, 2}, []uint32{3, 4}},
		{"the parent has ended", first, begun(map[uint32]feed.LSN{1: 1010, 2: 1020}, 0), []uint32{1, 2}, []uint32{3, 4}},
		{"a reader sleeps through two generations", first, begun(map[uint32]feed.LSN{0: 7}), []uint32{0}, []uint32{1, 3, 4, 2}},
		{"both parents have ended", first, begun(map[uint32]feed.LSN{1: 1010, 3: 1999, 4: 1999}, 0, 2), []uint32{1, 3, 4}, nil},
		{"the records of the parents are gone: they are not read again", first, begun(map[uint32]feed.LSN{1: 1010, 3: 1999, 4: 1999}), []uint32{1, 3, 4}, nil},
		{"the record of the first parent alone is gone", first, begun(map[uint32]feed.LSN{1: 1010, 2: 1020}), []uint32{1, 2}, []uint32{3, 4}},
		{"what the parent has given up keeps it", first, func() Checkpoints {
			at := begun(map[uint32]feed.LSN{1: 1010, 2: 1020})
			maps.Copy(at, parked)
			return at
		}(), []uint32{1, 0, 2}, []uint32{3, 4}},
		{"a generation that began behind the first split", []Start{{Partition: 1}, {Partition: 2}}, nil, []uint32{1, 2}, []uint32{3, 4}},
		{"a generation that began behind both", []Start{{Partition: 1}, {Partition: 3}, {Partition: 4}}, nil, []uint32{1, 3, 4}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rec := &Record{ID: "p", Generation: 1, Heads: c.heads, Spec: spec.PipelineSpec{Project: &spec.Project{}}}
			b := &Bound{Source: split()}
			var read, waits []uint32
			for _, r := range rec.Readers(b, c.at) {
				read = append(read, r.Partition.Number)
			}
			for _, w := range rec.waitsFor(b, c.at) {
				waits = append(waits, w.Partition.Number)
			}
			if diff := cmp.Diff(c.read, read); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.waits, waits); diff != "" {
				t.Errorf("waiting (-want +got):\n%s", diff)
			}
			if got, want := rec.readsFormer(b, c.at), slices.ContainsFunc(slices.Concat(c.read, c.waits), func(n uint32) bool { return n == 0 || n == 2 }); got != want {
				t.Errorf("it reads partitions that were split: %t, want %t", got, want)
			}
		})
	}
}

// A lease without a checkpoint is no permission to begin a child, whoever has taken it by an older catalog.
func TestMayBegin_IsNotAChildOfWhatIsRead(t *testing.T) {
	t.Parallel()
	rec := &Record{ID: "p", Generation: 1, Heads: []Start{{Partition: 0}}}
	containers := []store.ContainerInfo{*split()}
	for n, want := range map[uint32]bool{0: true, 1: false, 2: false, 3: false} {
		r := processors.Resource{Pipeline: "p", Generation: 1, Role: processors.RoleSource, Partition: feed.Partition{Container: "c7k2x4ab", Number: n}}
		if got := rec.MayBegin(r, containers); got != want {
			t.Errorf("partition %d may begin: %t", n, got)
		}
	}
	if rec.MayBegin(processors.Resource{Role: processors.RoleTarget, Partition: feed.Partition{Container: "c7k2x4ab", Number: 1}}, containers) {
		t.Error("a check of a child begins by itself")
	}
}

// A log is kept for readers that have yet to begin with it, and the last commit of a parent until its children have begun.
func TestHolds_OfPartitionsThatWereSplit(t *testing.T) {
	t.Parallel()
	b := &Bound{Source: split()}
	owing := func(parked, jobs []processors.Job) Checkpoints {
		at := begun(nil, 0)
		for _, cp := range at {
			cp.Parked, cp.Jobs = parked, jobs
		}
		maps.Copy(at, begun(map[uint32]feed.LSN{1: 1010, 2: 1020}))
		return at
	}
	left := []processors.Job{{Source: "x", Position: feed.Position{LSN: 30}, Parked: true}}
	for name, c := range map[string]struct {
		at   Checkpoints
		want map[uint32]feed.LSN
	}{
		"the parent has given something up":    {owing(left, nil), map[uint32]feed.LSN{0: 49, 1: 1010, 2: 1020, 3: 1999, 4: 1999}},
		"the parent tries something again":     {owing(nil, left), map[uint32]feed.LSN{0: 30, 1: 1010, 2: 1020, 3: 1999, 4: 1999}},
		"the parent is read":                   {begun(map[uint32]feed.LSN{0: 20}), map[uint32]feed.LSN{0: 20, 1: 999, 2: 999, 3: 1999, 4: 1999}},
		"the parent is at its end":             {begun(map[uint32]feed.LSN{0: 50}), map[uint32]feed.LSN{0: 49, 1: 999, 2: 999, 3: 1999, 4: 1999}},
		"the parent has ended":                 {begun(map[uint32]feed.LSN{1: 1010, 2: 1020}, 0), map[uint32]feed.LSN{1: 1010, 2: 1020, 3: 1999, 4: 1999}},
		"both have ended, and one is read yet": {begun(map[uint32]feed.LSN{1: 1010, 3: 2005, 4: 1999}, 0, 2), map[uint32]feed.LSN{1: 1010, 3: 2005, 4: 1999}},
	} {
		rec := &Record{ID: "p", Generation: 1, Heads: []Start{{Partition: 0}}, Spec: spec.PipelineSpec{Project: &spec.Project{}}}
		got := map[uint32]feed.LSN{}
		for p, h := range rec.holds(b, c.at) {
			got[p.Number] = h.After
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	rec := &Record{ID: "p", Generation: 1, Heads: []Start{{Partition: 0}}, Walks: []Walk{{Partition: 0, LSN: 30, Items: 5}}, Spec: spec.PipelineSpec{Project: &spec.Project{}}}
	for at, walks := range map[feed.Position]bool{{}: true, feed.WalkPosition(30, 2): true, feed.WalkEnd(30): false, {LSN: 31}: false} {
		cp := Checkpoints{}
		for name := range begun(map[uint32]feed.LSN{0: 0}) {
			cp[name] = &processors.Checkpoint{Position: at}
		}
		for p, h := range rec.holds(b, cp) {
			if p.Number == 0 && h.Walks != walks {
				t.Errorf("at %s it walks: %t", at, h.Walks)
			}
		}
	}
}

// What a pipeline has come to, it has come to though it did so in partitions that are no more.
func TestPassed_GoalsOfAPartitionThatWasSplit(t *testing.T) {
	t.Parallel()
	b := &Bound{Source: split()}
	rec := &Record{ID: "p", Generation: 1, Heads: []Start{{Partition: 0, After: feed.Position{LSN: 40}}}}
	for _, c := range []struct {
		at   Checkpoints
		want bool
	}{
		{nil, false},
		{begun(map[uint32]feed.LSN{0: 39}), false},
		{begun(map[uint32]feed.LSN{0: 40}), true},
		{begun(map[uint32]feed.LSN{1: 999, 2: 999}, 0), true},
		{begun(map[uint32]feed.LSN{1: 999, 2: 999}), true}, // its record is gone
	} {
		if got := rec.Passed(b, c.at, rec.Heads); got != c.want {
			t.Errorf("with %v: %t", c.at, got)
		}
	}
	if !rec.beganWhole() || (&Record{From: []Start{{Partition: 0, After: feed.Position{LSN: 3}}}}).beganWhole() {
		t.Error("whether a generation is about everything does not depend on partitions that came later")
	}
}

// A child whose checkpoint a later release has written has begun, for those who decide by that.
func TestBegunOf_WhatCannotBeReadHasBegun(t *testing.T) {
	t.Parallel()
	name := processors.Resource{Pipeline: "p", Generation: 1, Role: processors.RoleSource, Partition: feed.Partition{Container: "c7k2x4ab", Number: 1}}.String()
	at := BegunOf([]leases.Lease{{Resource: name, Checkpoint: []byte(`{"version":200}`)}, {Resource: ReconcilerResource, Checkpoint: []byte("x")}})
	if len(at) != 1 || at[name] == nil {
		t.Errorf("begun: %v", at)
	}
}

// A place in the logs is one of those that are there. What a reader of a partition that was split has not finished would be
// left out by a generation that begins with them.
func TestRewound_WaitsForPartitionsThatWereSplit(t *testing.T) {
	t.Parallel()
	rec := &Record{ID: "p", Generation: 1, Heads: []Start{{Partition: 0}}, Spec: spec.PipelineSpec{Aggregate: &spec.Aggregate{}}}
	to := RewindTo{Kind: RewindTime}
	if _, err := (&Registry{}).rewound(t.Context(), rec, &Bound{Source: split()}, to, begun(map[uint32]feed.LSN{0: 20})); !errors.Is(err, errSplitting) {
		t.Errorf("it is set back: %v", err)
	}
}
