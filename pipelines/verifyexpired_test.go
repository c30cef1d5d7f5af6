package pipelines_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/store"
)

const expiringContainers = `
apiVersion: millrace/v1
kind: Container
metadata: {name: event}
spec: {partitionKey: [/k], ttl: on, changeFeed: {retention: 0s}}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: kept}
spec: {partitionKey: [/name]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: live}
spec: {partitionKey: [/name]}
`

const keepingPipeline = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: archive}
spec:
  source: {container: event}
  project:
    sink: SINK
    onExpire: keep
    tables: {kept: {key: [name], columns: {name: name, n: {expr: n, type: int64}}}}
`

const droppingPipeline = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: current}
spec:
  source: {container: event}
  project:
    sink: {container: {}}
    onExpire: delete
    tables: {live: {key: [name], columns: {name: name, n: {expr: n, type: int64}}}}
`

// event is an item of which a row is made; ttl 0 is for ever.
func event(id, name string, n, ttl int) string {
	s := fmt.Sprintf(`{"id":%q,"k":"k","name":%q,"n":%d`, id, name, n)
	if ttl > 0 {
		s += fmt.Sprintf(`,"ttl":%d`, ttl)
	}
	return s + "}"
}

// awaitExpiries waits until the log of a container says, behind an LSN, of as many items that
// they expired.
func (n *node) awaitExpiries(t testing.TB, container string, after feed.LSN, want int) {
	t.Helper()
	log, err := feed.OpenLog(t.Context(), n.js, n.container(t, container).Partitions()[0], feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	tail, err := log.Tail(t.Context(), after+1, feed.TailOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	for want > 0 {
		c, err := tail.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.Transactions {
			for j := range c.Transactions[i].Changes {
				if c.Transactions[i].Changes[j].Op == feed.OpExpire {
					want--
				}
			}
		}
	}
}

// eventRow is a row of one of the pipelines above, of an item of a name.
func eventRow(id, name string, n int64) project.Row {
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		panic(err)
	}
	text := project.TextOf(name)
	return project.Row{Key: []project.Value{text}, Values: []project.Value{text, project.IntOf(n)}, Source: project.SourceOf("event", key, id)}
}

// plantEvents writes rows into a sink of one of the pipelines above, and removes others.
func (n *node) plantEvents(t testing.TB, pipeline, table, dir string, put, drop []project.Row) {
	t.Helper()
	var sink project.Sink = project.NewContainerSink(map[string]*store.Container{table: n.container(t, table)}, nil)
	var err error
	if dir != "" {
		if sink, err = parquetsink.New(parquetsink.NewDir(dir), parquetsink.Config{}); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { _ = sink.Close() }()
	number, err := project.ParseType("int64")
	if err != nil {
		t.Fatal(err)
	}
	rec := n.record(t, pipeline)
	p, err := project.Compile(project.Config{
		Pipeline: rec.ID, Generation: rec.Generation, Source: n.container(t, "event"), Sink: sink,
		Tables: []project.Table{{Name: table, Key: []string{"name"}, Columns: []project.Column{{Name: "name", Expr: "name"}, {Name: "n", Expr: "n", Type: number}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w, at, err := sink.Open(t.Context(), p.Schema(), project.Term{Producer: feed.Producer{Pipeline: rec.ID, Generation: rec.Generation, Source: "plant"}, Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	if _, err := w.Write(t.Context(), &project.Batch{After: at, UpTo: feed.Position{LSN: at.LSN + 1}, Put: put, Drop: drop}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestVerifyJudgesRowsOfItemsThatAreGone plants faults in rows of items that have expired, or
// were deleted, where a container has times to live: only its log tells of them.
func TestVerifyJudgesRowsOfItemsThatAreGone(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"container", "parquet"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			dir, sink := "", "{container: {}}"
			if kind == "parquet" {
				dir = t.TempDir()
				sink = "{parquet: {path: " + dir + ", commitInterval: 100ms}}"
			}
			n.apply(t, decode(t, expiringContainers))
			n.apply(t, decode(t, strings.Replace(keepingPipeline, "SINK", sink, 1)))
			n.apply(t, decode(t, droppingPipeline))
			n.put(t, "event", event("stays", "stays", 1, 0), event("gone", "gone", 2, 0), event("right", "right", 3, 1),
				event("lost", "lost", 4, 1), event("wrong", "wrong", 5, 1), event("again", "first", 6, 1))
			n.delete(t, "event", "k", "gone")
			n.awaitExpiries(t, "event", 0, 4)
			n.put(t, "event", event("again", "second", 7, 0)) // the row of its first life stays
			n.idle(t)
			check := func(when string, copies int64, kept, live []string) {
				t.Helper()
				r, by := n.verify(t, verify.Config{})
				if diff := cmp.Diff(kept, lines(by["archive"])); diff != "" || by["archive"].Copies != copies || by["archive"].Unjudged != 0 {
					t.Errorf("%s: %s\n%s", when, diff, text(r))
				}
				if diff := cmp.Diff(live, lines(by["current"])); diff != "" {
					t.Errorf("%s: %s\n%s", when, diff, text(r))
				}
				if wrong := len(kept)+len(live) > 0; wrong != (r.Verdict == verify.VerdictDrift) || !wrong && r.Verdict != verify.VerdictEqual {
					t.Errorf("%s: %s", when, r.Verdict)
				}
			}
			check("at rest", 6, nil, nil)

			n.plantEvents(t, "archive", "kept", dir,
				[]project.Row{eventRow("gone", "gone", 2), eventRow("wrong", "wrong", 55)}, []project.Row{eventRow("lost", "lost", 4), eventRow("again", "first", 6)})
			n.plantEvents(t, "current", "live", "", []project.Row{eventRow("gone", "gone", 2), eventRow("right", "right", 3)}, nil)
			kept := []string{
				`drift table kept row ["first"]: is missing (source event/["k"]/again)`,
				`drift table kept row ["gone"]: should not be there (source event/["k"]/gone)`,
				`drift table kept row ["lost"]: is missing (source event/["k"]/lost)`,
				`drift table kept row ["wrong"]: n is 55, of its source 5 (source event/["k"]/wrong)`,
			}
			live := []string{
				`drift table live row ["gone"]: should not be there (source event/["k"]/gone)`,
				`drift table live row ["right"]: should not be there (source event/["k"]/right)`,
			}
			check("planted", 7, kept, live)
			r, by := n.repair(t, verify.Config{})
			if by["archive"].Repaired != 4 || by["current"].Repaired != 2 || r.Verdict != verify.VerdictEqual {
				t.Errorf("repaired:\n%s", text(r))
			}
			check("after the repair", 6, nil, nil)
		})
	}
}

// TestI6_ARowThatIsKeptStaysBesideARefusal: an item has expired, its row stays, and the item is made again with a value that its
// column does not take.
func TestI6_ARowThatIsKeptStaysBesideARefusal(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.apply(t, decode(t, expiringContainers))
	n.apply(t, decode(t, strings.Replace(keepingPipeline, "SINK", "{container: {}}", 1)))
	n.put(t, "event", event("old", "old", 2, 1))
	n.awaitExpiries(t, "event", 0, 1)
	refused := strings.Replace(event("old", "old", 2, 0), `"n":2`, `"n":"two"`, 1)
	n.put(t, "event", refused)
	n.idle(t)
	for _, when := range []string{"made again", "deleted"} {
		r, by := n.verify(t, verify.Config{})
		if p := by["archive"]; p.Verdict != verify.VerdictEqual || p.Copies == 0 {
			t.Errorf("%s: %+v\n%s", when, p, text(r))
		}
		if got := n.read(t, "kept", "old", "old", "n"); got != "2" {
			t.Errorf("%s: the row has %s", when, got)
		}
		if when == "made again" {
			n.delete(t, "event", "k", "old")
			n.idle(t)
		}
	}
}

// TestVerifySaysWhatItCannotJudge: where a log has lost its beginning, nobody can tell whether
// the row of an item that is gone has to be there. What is there is judged all the same.
func TestVerifySaysWhatItCannotJudge(t *testing.T) {
	t.Parallel()
	n := newTrimmedNode(t)
	n.apply(t, decode(t, expiringContainers))
	n.apply(t, decode(t, strings.Replace(keepingPipeline, "SINK", "{container: {}}", 1)))
	n.apply(t, decode(t, droppingPipeline))
	n.work(t, n.client, compile.SinkLimits{})
	n.put(t, "event", event("stays", "stays", 1, 0), event("gone", "gone", 2, 0), event("old", "old", 3, 1))
	n.delete(t, "event", "k", "gone")
	n.awaitExpiries(t, "event", 0, 1)
	for i := range 20 {
		n.put(t, "event", event("stays", "stays", i, 0))
	}
	n.idle(t)
	n.trim(t, "event")
	n.allowed.Store(false) // what follows stays in the log
	log, err := feed.OpenLog(t.Context(), n.js, n.container(t, "event").Partitions()[0], feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	_, end, err := log.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n.put(t, "event", event("late", "late", 4, 1))
	n.awaitExpiries(t, "event", end, 1)
	n.idle(t)

	r, by := n.verify(t, verify.Config{})
	if p := by["archive"]; p.Verdict != verify.VerdictUnjudged || p.Unjudged != 1 || p.Copies != 2 ||
		!strings.Contains(p.Reason, "1 row") || !strings.Contains(text(r), "unjudged event/[\"k\"]/old") {
		t.Errorf("at rest: %+v\n%s", p, text(r))
	}
	if p := by["current"]; p.Verdict != verify.VerdictEqual || p.Copies != 1 {
		t.Errorf("rows go when items expire: %+v\n%s", p, text(r))
	}

	n.plantEvents(t, "archive", "kept", "", []project.Row{eventRow("gone", "gone", 2), eventRow("stays", "stays", 99)}, []project.Row{eventRow("late", "late", 4)})
	for _, cfg := range []verify.Config{{}, {BytesMax: 100}} { // some are counted alone then
		r, by = n.verify(t, cfg)
		if p := by["archive"]; p.Verdict != verify.VerdictDrift || p.Unjudged != 2 || p.Drift != 2 {
			t.Errorf("planted: %+v\n%s", p, text(r))
		}
	}
	r, by = n.repair(t, verify.Config{})
	if p := by["archive"]; p.Verdict != verify.VerdictUnjudged || p.Unjudged != 2 || p.Repaired != 2 {
		t.Errorf("repaired: %+v\n%s", p, text(r))
	}
}

// TestVerifyJudgesWhatBeganWithItems: a generation that began with the items of a snapshot has no
// rows of what was before them, so a log that was trimmed before that takes nothing from what can
// be judged.
func TestVerifyJudgesWhatBeganWithItems(t *testing.T) {
	t.Parallel()
	n := newTrimmedNode(t)
	n.apply(t, decode(t, expiringContainers))
	n.put(t, "event", event("stays", "stays", 1, 0), event("old", "old", 2, 1), event("walked", "walked", 3, 3600))
	n.awaitExpiries(t, "event", 0, 1)
	for i := range 20 {
		n.put(t, "event", event("stays", "stays", i, 0))
	}
	n.trim(t, "event")
	n.allowed.Store(false) // what follows stays in the log
	n.apply(t, decode(t, strings.Replace(keepingPipeline, "SINK", "{container: {}}", 1)), registry.ApplyOptions{DiscardExpired: true})
	rec := n.record(t, "archive")
	if len(rec.Walks) != 1 {
		t.Fatalf("it does not begin with items: %+v", rec)
	}
	n.work(t, n.client, compile.SinkLimits{})
	n.put(t, "event", event("late", "late", 4, 1), event("walked", "walked", 5, 1))
	n.awaitExpiries(t, "event", rec.Walks[0].LSN, 2)
	n.idle(t)
	r, by := n.verify(t, verify.Config{})
	if p := by["archive"]; p.Verdict != verify.VerdictEqual || p.Copies != 3 || p.Unjudged != 0 {
		t.Errorf("at rest: %+v\n%s", p, text(r))
	}
	n.plantEvents(t, "archive", "kept", "", nil, []project.Row{eventRow("walked", "walked", 5)})
	r, by = n.verify(t, verify.Config{})
	if p := by["archive"]; p.Verdict != verify.VerdictDrift || p.Drift != 1 {
		t.Errorf("a row that stays is missing: %+v\n%s", p, text(r))
	}
}

// TestVerifyOverATrimmedLogWhileItemsExpire: rows that are right are never taken for wrong.
func TestVerifyOverATrimmedLogWhileItemsExpire(t *testing.T) {
	t.Parallel()
	n := newTrimmedNode(t)
	n.apply(t, decode(t, expiringContainers))
	n.apply(t, decode(t, strings.Replace(keepingPipeline, "SINK", "{container: {}}", 1)))
	n.apply(t, decode(t, droppingPipeline))
	n.work(t, n.client, compile.SinkLimits{})
	const items = 30
	for i := range items {
		n.put(t, "event", event(fmt.Sprint("e", i), fmt.Sprint("e", i), i, 1+i%5))
	}
	n.put(t, "event", event("stays", "stays", 1, 0))
	n.idle(t)
	n.trim(t, "event") // on and on
	poll.Until(t, func() error {
		r, by := n.verify(t, verify.Config{PageItems: 7, PollInterval: 10 * time.Millisecond})
		for _, p := range r.Pipelines {
			if p.Drift+p.Behind+p.Dangling > 0 {
				t.Errorf("while items expire:\n%s", text(r))
				return nil
			}
		}
		if left := by["current"].Copies; left != 1 || by["current"].Verdict != verify.VerdictEqual {
			return fmt.Errorf("%d rows are left:\n%s", left, text(r))
		}
		return nil
	})
	r, by := n.verify(t, verify.Config{})
	if p := by["archive"]; p.Verdict != verify.VerdictUnjudged || p.Copies+p.Unjudged != items+1 {
		t.Errorf("when all have expired:\n%s", text(r))
	}
}

// TestVerifySaysOfWhichColumnsItCannotJudge: rows of expired items do not get columns that are
// added, and nothing tells of a row without one whether its item had expired by then.
func TestVerifySaysOfWhichColumnsItCannotJudge(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.apply(t, decode(t, expiringContainers))
	archive := strings.Replace(keepingPipeline, "SINK", "{container: {}}", 1)
	n.apply(t, decode(t, archive))
	n.put(t, "event", event("old", "old", 1, 1), event("stays", "stays", 2, 0))
	n.awaitExpiries(t, "event", 0, 1)
	n.awaitInForce(t, "archive", 1)
	n.apply(t, decode(t, strings.Replace(archive, "{name: name,", "{name: name, twice: {expr: n * 2, type: int64},", 1)))
	poll.Until(t, func() error {
		if !n.record(t, "archive").InForce {
			return errors.New("the column is not filled in yet")
		}
		return nil
	})
	n.idle(t)
	r, by := n.verify(t, verify.Config{})
	want := []string{`unjudged table kept row ["old"]: twice is absent, of its source 2, its item has expired, perhaps before this was added (source event/["k"]/old)`}
	if p := by["archive"]; p.Verdict != verify.VerdictUnjudged || p.Unjudged != 1 || p.Copies != 1 || cmp.Diff(want, lines(p)) != "" {
		t.Errorf("%s\n%s", cmp.Diff(want, lines(p)), text(r))
	}
}

// lateScan does something when the first page of items was read.
type lateScan struct {
	gate
	once sync.Once
	then func()
}

func (s *lateScan) Handle(ctx context.Context, r *store.Request) *store.Response {
	answer := s.gate.Handle(ctx, r)
	if answer.Scan != nil && len(answer.Scan.Items) > 0 {
		s.once.Do(s.then)
	}
	return answer
}

// TestVerifyJudgesRowsOfItemsThatGoMeanwhile deletes an item when it was read, and plants a row
// of it when the pipeline has come to that.
func TestVerifyJudgesRowsOfItemsThatGoMeanwhile(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.apply(t, decode(t, strings.Replace(expiringContainers, "ttl: on, ", "", 1)))
	n.apply(t, decode(t, droppingPipeline))
	n.put(t, "event", event("stays", "stays", 1, 0), event("gone", "gone", 2, 0))
	n.idle(t)
	local, late := &store.Local{}, &lateScan{}
	late.inner = n.client
	late.then = func() {
		n.delete(t, "event", "k", "gone")
		n.idle(t)
		n.plantEvents(t, "current", "live", "", []project.Row{eventRow("gone", "gone", 2)}, nil)
	}
	client := store.NewClient(n.nc, n.client.Catalog(), store.ClientConfig{Local: local})
	for _, p := range n.container(t, "event").Partitions() {
		local.Add(p, late)
	}
	r, err := verify.New(n.js, n.registry, client, verify.Config{}).Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`drift table live row ["gone"]: should not be there (source event/["k"]/gone)`}
	if diff := cmp.Diff(want, lines(r.Pipelines[0])); diff != "" || r.Verdict != verify.VerdictDrift {
		t.Errorf("%s\n%s", diff, text(r))
	}
}
