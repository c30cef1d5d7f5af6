package status

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func TestState(t *testing.T) {
	at := feed.Position{LSN: 10}
	holds := func(progress time.Duration) *leases.Lease {
		return &leases.Lease{Owner: "n/1", Progress: noon.Add(-progress)}
	}
	for _, c := range []struct {
		name   string
		w      watched
		state  State
		reason string
	}{
		{"registered a moment ago", watched{record: &registry.Record{Changed: noon}, checkpoint: &processors.Checkpoint{}, head: 5}, Uninitialised, ""},
		{"registered a minute ago, and nobody took it", watched{record: &registry.Record{Changed: noon.Add(-time.Minute)}, checkpoint: &processors.Checkpoint{}}, Stuck, "no worker has taken it"},
		{"all is done", watched{lease: holds(0), checkpoint: &processors.Checkpoint{Position: at}, head: 10}, Idle, ""},
		{"all is done, and no worker runs", watched{lease: &leases.Lease{}, checkpoint: &processors.Checkpoint{Position: at}, head: 10}, Idle, ""},
		{"commits to read", watched{lease: holds(0), checkpoint: &processors.Checkpoint{Position: at}, head: 12}, Behind, ""},
		{
			"an open fan-out", watched{lease: holds(0), head: 10, checkpoint: &processors.Checkpoint{
				Position: at, State: processors.State{Jobs: []processors.Job{{Source: "a"}}},
			}}, Behind, "",
		},
		{
			"a fan-out that fails", watched{lease: holds(0), head: 10, checkpoint: &processors.Checkpoint{
				Position: at, State: processors.State{Jobs: []processors.Job{{Source: "a", Attempts: 12, LastError: "no owner"}}},
			}}, Stuck, "the fan-out of a was tried 12 times: no owner",
		},
		{
			"an item given up", watched{lease: holds(0), head: 10, record: &registry.Record{Name: "names"}, checkpoint: &processors.Checkpoint{
				Position: at, Parked: []processors.Job{{Source: "a", Parked: true, LastError: "too large"}},
			}}, Behind, "1 given up, such as a: too large; see millrace dead-letters list names",
		},
		{
			"changes that fail",
			watched{lease: holds(0), head: 12, checkpoint: &processors.Checkpoint{Position: at, Attempts: 10, LastError: "no owner"}},
			Stuck, "what follows 10.0 failed 10 times, and is tried again by itself within 5s: no owner",
		},
		{
			"a sink that is away",
			watched{lease: holds(0), head: 12, checkpoint: &processors.Checkpoint{
				Position: at, Attempts: 1, LastError: "connection refused", Since: noon.Add(-3 * time.Second).UnixMilli(),
			}},
			Behind, "what follows 10.0 failed once in 3s, and is tried again by itself within 5s: connection refused",
		},
		{
			"registered a minute ago, and a worker has not come to it",
			watched{record: &registry.Record{Changed: noon.Add(-time.Minute)}, checkpoint: &processors.Checkpoint{}, reconciler: &leases.Lease{Owner: "n/1", Host: "a", Progress: noon.Add(-time.Second)}},
			Stuck, "no worker has taken it; worker n/1 on a runs and has not come to it",
		},
		{
			"registered a minute ago, and the worker is gone",
			watched{record: &registry.Record{Changed: noon.Add(-time.Minute)}, checkpoint: &processors.Checkpoint{}, reconciler: &leases.Lease{Owner: "n/1", Progress: noon.Add(-time.Minute)}},
			Stuck, "no worker has taken it; is a worker process running?",
		},
		{
			"a fan-out that failed a moment ago", watched{lease: holds(0), head: 10, checkpoint: &processors.Checkpoint{
				Position: at, State: processors.State{Jobs: []processors.Job{{Source: "a", Attempts: 1, LastError: "no owner"}}},
			}}, Behind, "the fan-out of a is tried again: no owner",
		},
		{"a holder that renews and does nothing", watched{lease: holds(0), still: time.Minute, checkpoint: &processors.Checkpoint{Position: at}, head: 12}, Stuck, "nothing has moved for 1m0s"},
		{"a dead holder", watched{lease: holds(time.Minute), checkpoint: &processors.Checkpoint{Position: at}, head: 12}, Stuck, "its holder has not moved for 1m0s"},
		{
			"work that ended",
			watched{lease: &leases.Lease{Attempts: 1, LastError: "a gap in the log", Progress: noon}, checkpoint: &processors.Checkpoint{Position: at}, head: 12},
			Stuck, "stopped once: a gap in the log",
		},
		{
			"what was there is being read",
			watched{record: &registry.Record{Heads: []registry.Start{{Partition: 0, After: feed.Position{LSN: 11}}}}, lease: holds(0), checkpoint: &processors.Checkpoint{Position: at}, head: 12},
			Backfilling, "",
		},
		{
			"what was there is read",
			watched{record: &registry.Record{Heads: []registry.Start{{Partition: 0, After: feed.Position{LSN: 10}}}}, lease: holds(0), checkpoint: &processors.Checkpoint{Position: at}, head: 12},
			Behind, "",
		},
		{
			"a change at which it halts, while nobody holds it",
			watched{
				lease: &leases.Lease{Attempts: 1, LastError: "halted"}, head: 12,
				checkpoint: &processors.Checkpoint{Position: at, Halted: true, Attempts: 10, LastError: "halted at the change 11.0 of a"},
			},
			Halted, "halted at the change 11.0 of a; it is tried again by itself",
		},
		{"paused", watched{record: &registry.Record{Paused: true}, lease: holds(time.Minute), checkpoint: &processors.Checkpoint{Position: at}, head: 12}, Paused, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.w.now, c.w.stuckAfter = noon, 30*time.Second
			c.w.resource.Role = processors.RoleSource
			if c.w.record == nil {
				c.w.record = &registry.Record{}
			}
			s := c.w.status()
			if s.State != c.state || !strings.HasPrefix(s.Reason, c.reason) || (c.reason == "") != (s.Reason == "") {
				t.Errorf("%s %q, want %s %q", s.State, s.Reason, c.state, c.reason)
			}
		})
	}
}

func TestLag(t *testing.T) {
	w := watched{
		now: noon, head: 14, oldest: noon.Add(-3 * time.Second), record: &registry.Record{},
		checkpoint: &processors.Checkpoint{
			Position: feed.Position{LSN: 10},
			Parked:   []processors.Job{{Began: noon.Add(-9 * time.Second).UnixMilli()}},
			State:    processors.State{Jobs: []processors.Job{{Began: noon.Add(-5 * time.Second).UnixMilli()}}},
		},
	}
	w.changes, w.estimated = 40, true
	if diff := cmp.Diff(Lag{Commits: 4, Changes: 40, Estimated: true, Jobs: 2, Seconds: 9}, w.lag()); diff != "" {
		t.Error(diff)
	}
}

// TestWhatIsLeft shows what must be passed before a copy that differs is drift.
func TestWhatIsLeft(t *testing.T) {
	rec := registry.Record{ID: "names-k2x4c7ab", Generation: 2, Starts: []registry.Start{{Partition: 0, After: feed.Position{LSN: 5}}}}
	info := store.ContainerInfo{ID: "c7k2x4ab", Spec: store.ContainerSpec{PartitionKey: []string{"/id"}}, Partitions: []store.PartitionInfo{{Number: 0}}}
	source, err := (&store.Client{}).Open(info)
	if err != nil {
		t.Fatal(err)
	}
	key, err := feed.NewPartitionKey("a")
	if err != nil {
		t.Fatal(err)
	}
	target := feed.Partition{Container: "d7k2x4ab", Number: 0}
	ref := store.ItemRef{Key: key, ID: "a"}
	one := &verify.Suspect{
		Pipeline: &verify.Verified{Record: rec, Source: source}, Ref: store.ItemRef{Key: key, ID: "t"}, ETag: store.ETag{LSN: 7, Index: 3},
		Sources: []verify.Origin{{Ref: ref, Passed: feed.Position{LSN: 9, Index: 1}}},
	}
	const check, fanOut = "pipe/names-k2x4c7ab/2/target/d7k2x4ab/0", "pipe/names-k2x4c7ab/2/source/c7k2x4ab/0"
	passed := func(lsn feed.LSN, index uint32, jobs ...processors.Job) *processors.Checkpoint {
		return &processors.Checkpoint{Position: feed.Position{LSN: lsn, Index: index}, State: processors.State{Jobs: jobs}}
	}
	for _, c := range []struct {
		name string
		p    registry.Checkpoints
		want string
	}{
		{"nothing was done yet", registry.Checkpoints{}, "the check of d7k2x4ab/0 stands at 5.0, before 7.3"},
		{"the commit is read, but not to the item", registry.Checkpoints{check: passed(7, 2)}, "the check of d7k2x4ab/0 stands at 7.2, before 7.3"},
		{"the check is done, no fan-out has begun", registry.Checkpoints{check: passed(7, 3)}, "the fan-outs of c7k2x4ab/0 stand at 0.0, before 9.1"},
		{"the fan-out is open", registry.Checkpoints{check: passed(8, 0), fanOut: passed(12, 0, processors.Job{Source: ref.String()})}, "the fan-out of its source is open"},
		{"the fan-out was given up", registry.Checkpoints{check: passed(8, 0), fanOut: passed(12, 0, processors.Job{Source: ref.String(), Parked: true, LastError: "x"})}, "the fan-out of its source was given up: x"},
		{"another item's fan-out is open", registry.Checkpoints{check: passed(8, 0), fanOut: passed(12, 0, processors.Job{Source: `["b"]/b`})}, ""},
		{"an older generation has done it", registry.Checkpoints{"pipe/names-k2x4c7ab/1/target/d7k2x4ab/0": passed(9, 0)}, "the check of d7k2x4ab/0 stands at 5.0, before 7.3"},
		{"the check was given up", registry.Checkpoints{check: {Position: feed.Position{LSN: 8}, Parked: []processors.Job{{Source: one.Ref.String(), LastError: "too large"}}}}, "its check was given up: too large"},
		{"all is done", registry.Checkpoints{check: passed(7, 3), fanOut: passed(9, 1)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := one.WaitsFor(c.p, target); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestResourceNames(t *testing.T) {
	containers := []store.ContainerInfo{
		{ID: "c7k2x4ab", State: store.ContainerReady, Partitions: []store.PartitionInfo{{Number: 0}}},
		{ID: "d7k2x4ab", State: store.ContainerReady, Partitions: []store.PartitionInfo{{Number: 0}, {Number: 1}}},
		{ID: "e7k2x4ab", State: store.ContainerDeleting, Partitions: []store.PartitionInfo{{Number: 0}}},
	}
	cascade := spec.PipelineSpec{Source: spec.Source{Container: "c"}, Cascade: &spec.Cascade{Into: "d"}}
	aggregate := spec.PipelineSpec{Source: spec.Source{Container: "d"}, Aggregate: &spec.Aggregate{Into: "c"}}
	files := spec.PipelineSpec{Source: spec.Source{Container: "c"}, Project: &spec.Project{Sink: spec.Sink{Parquet: &spec.ParquetSink{Path: "a"}}}}
	items := spec.PipelineSpec{Source: spec.Source{Container: "c"}, Project: &spec.Project{Sink: spec.Sink{Container: &spec.ContainerSink{}}, Tables: spec.Tables{{Name: "d"}, {Name: "e"}}}}
	records := []registry.Record{
		{ID: "a-1", Generation: 3, Spec: cascade, Source: "c7k2x4ab", Target: "d7k2x4ab"},
		{ID: "b-1", Generation: 1, Spec: cascade, Source: "c7k2x4ab", Target: "d7k2x4ab", Paused: true},
		{ID: "c-1", Generation: 1, Spec: cascade, Source: "e7k2x4ab", Target: "d7k2x4ab"},
		{ID: "d-1", Generation: 1, Spec: cascade, Source: "c7k2x4ab", Target: "f7k2x4ab"},
		{ID: "e-1", Generation: 1, Spec: aggregate, Source: "d7k2x4ab", Target: "c7k2x4ab"},
		{ID: "f-1", Generation: 2, Spec: files, Source: "c7k2x4ab", Shadow: true, Former: &registry.Former{Generation: 1, Spec: files}},
		{ID: "g-1", Generation: 1, Spec: items, Source: "c7k2x4ab", Tables: []feed.ResourceID{"d7k2x4ab", "e7k2x4ab"}},
	}
	want := []string{
		"pipe/a-1/3/source/c7k2x4ab/0", "pipe/a-1/3/target/d7k2x4ab/0", "pipe/a-1/3/target/d7k2x4ab/1",
		"pipe/e-1/1/source/d7k2x4ab/0", "pipe/e-1/1/source/d7k2x4ab/1",
		"pipe/f-1/1/source/c7k2x4ab/0", "pipe/f-1/2/source/c7k2x4ab/0",
	}
	if diff := cmp.Diff(want, registry.ResourceNames(records, containers, nil)); diff != "" {
		t.Error(diff)
	}
}

// TestStill counts from the first reading at which something was to be done and
// had not moved since.
func TestStill(t *testing.T) {
	m := NewMonitor(nil, nil, MonitorConfig{})
	w := &watched{record: &registry.Record{}, checkpoint: &processors.Checkpoint{}, now: noon}
	at := func(seconds int, head feed.LSN, position feed.LSN) time.Duration {
		w.now, w.head = noon.Add(time.Duration(seconds)*time.Second), head
		w.checkpoint.Position.LSN = position
		m.beginReading(w.now)
		return m.still(w)
	}
	var got []time.Duration
	for _, c := range [][3]int{{0, 5, 5}, {10, 6, 5}, {20, 7, 5}, {30, 7, 6}, {40, 9, 6}, {50, 9, 9}, {60, 10, 9}} {
		got = append(got, at(c[0], feed.LSN(c[1]), feed.LSN(c[2]))/time.Second)
	}
	if diff := cmp.Diff([]time.Duration{0, 10, 20, 0, 10, 0, 10}, got); diff != "" {
		t.Error(diff)
	}
}

// TestMark changes while fan-outs change nothing and one takes another's place.
func TestMark(t *testing.T) {
	w := &watched{checkpoint: &processors.Checkpoint{}}
	mark := func(jobs ...processors.Job) string {
		w.checkpoint.Jobs = jobs
		return w.mark()
	}
	one := mark(processors.Job{Source: "a", Position: feed.Position{LSN: 7}}, processors.Job{Source: "b", Position: feed.Position{LSN: 8}})
	if mark(processors.Job{Source: "b", Position: feed.Position{LSN: 8}}, processors.Job{Source: "c", Position: feed.Position{LSN: 9}}) == one {
		t.Error("a fan-out that is done and one that is begun are no progress")
	}
	if w.checkpoint.Jobs = w.checkpoint.Jobs[:1]; w.mark() == one {
		t.Error("a fan-out that is done is no progress")
	}
}

// TestUnfinished lets the next generation read what the one before has not done.
func TestUnfinished(t *testing.T) {
	c := &store.ContainerInfo{ID: "c7k2x4ab", Partitions: []store.PartitionInfo{{Number: 0}}}
	rec := &registry.Record{ID: "a-1", Generation: 2}
	const reader = "pipe/a-1/2/source/c7k2x4ab/0"
	job := func(lsn feed.LSN) []processors.Job {
		return []processors.Job{{Position: feed.Position{LSN: lsn, Index: 3}}}
	}
	for name, one := range map[string]struct {
		at   *processors.Checkpoint
		to   registry.RewindKind
		want feed.LSN
	}{
		"nothing is done":            {nil, registry.RewindTime, 0},
		"it has not come so far":     {&processors.Checkpoint{Position: feed.Position{LSN: 5}}, registry.RewindTime, 5},
		"all is done":                {&processors.Checkpoint{Position: feed.Position{LSN: 50}}, registry.RewindTime, 20},
		"a fan-out is open":          {&processors.Checkpoint{Position: feed.Position{LSN: 50}, State: processors.State{Jobs: job(8)}}, registry.RewindTime, 7},
		"a change was given up":      {&processors.Checkpoint{Position: feed.Position{LSN: 50}, Parked: job(9)}, registry.RewindTime, 8},
		"one that is read again":     {&processors.Checkpoint{Position: feed.Position{LSN: 50}, Parked: job(30)}, registry.RewindTime, 20},
		"what is left is to be left": {&processors.Checkpoint{Position: feed.Position{LSN: 5}, Parked: job(3)}, registry.RewindNow, 20},
	} {
		at := registry.Checkpoints{}
		if one.at != nil {
			at[reader] = one.at
		}
		starts := []registry.Start{{Partition: 0, After: feed.Position{LSN: 20}}}
		if got := rec.Unfinished(processors.RoleSource, c, starts, registry.RewindTo{Kind: one.to}, at)[0].After; got != (feed.Position{LSN: one.want}) {
			t.Errorf("%s: it begins behind %s, want %d", name, got, one.want)
		}
	}
}
