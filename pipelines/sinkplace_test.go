package pipelines_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/internal/roots"
	"github.com/millrace/millrace/pipelines/plan"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/store"
)

// saleRows declares a projection of sales into Parquet files in a directory.
func saleRows(path string) string {
	return `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: sales}
spec:
  source: {container: sale}
  project:
    sink: {parquet: {path: ` + path + `, commitInterval: 100ms}}
    tables: {sales: {key: [id], columns: {id: id}}}
`
}

const saleContainer = `
apiVersion: millrace/v1
kind: Container
metadata: {name: sale}
spec: {partitionKey: [/customerId], partitions: 2}
`

// rooted is a node whose worker's sinks write below root, once it has said so.
func rooted(t testing.TB, root string) *node {
	t.Helper()
	n := newNodeOf(t, func(s *system) *store.Client { return s.client }, compile.SinkLimits{
		Roots: []string{root}, Own: []string{filepath.Join(root, "nats")},
	})
	n.apply(t, decode(t, saleContainer))
	n.announced(t, 1)
	n.put(t, "sale", `{"id":"s1","customerId":"k1"}`)
	return n
}

// announced waits until so many workers have said where their sinks write.
func (n *node) announced(t testing.TB, workers int) {
	t.Helper()
	kv, err := n.js.KeyValue(t.Context(), "millrace_pipelines")
	if err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		all, err := roots.Workers(t.Context(), n.js, kv)
		switch {
		case err != nil:
			return err
		case len(all) != workers:
			return errors.New("not all workers have announced themselves")
		}
		return nil
	})
}

// TestSinks_ADirectoryOutsideTheRootsIsRefused when it is declared, with its place.
func TestSinks_ADirectoryOutsideTheRootsIsRefused(t *testing.T) {
	root, other := t.TempDir(), t.TempDir()
	n := rooted(t, root)
	for _, path := range []string{other, "/etc/cron.d", root + "/../elsewhere", "file://" + other} {
		_, err := n.registry.Apply(t.Context(), decode(t, saleRows(path)))
		found, ok := errors.AsType[spec.Findings](err)
		if !ok || len(found) != 1 || found[0].Place.Line != 8 || !strings.Contains(err.Error(), "its sinks write below "+root+" only") {
			t.Errorf("apply of %s: %v", path, err)
		}
		_, err = plan.New(n.js, n.registry, n.client, plan.Config{}).Plan(t.Context(), decode(t, saleRows(path)))
		if found, ok = errors.AsType[spec.Findings](err); !ok || len(found) != 1 {
			t.Errorf("plan of %s: %v", path, err)
		}
	}
	// One that is not absolute lies below the root.
	n.apply(t, decode(t, saleRows("./analytics")))
	n.idle(t)
	n.keepsIn(t, filepath.Join(root, "analytics"))
}

// keepsIn fails unless the rows of sales are files in dir, which status names and
// verify reads.
func (n *node) keepsIn(t testing.TB, dir string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "sales", "_delta_log")); err != nil {
		t.Error(err)
	}
	s, err := n.monitor.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p := &s.Pipelines[0]; p.Target != dir || p.Sink.Where != dir {
		t.Errorf("status says that its rows are in %s, %s; want %s", p.Target, p.Sink.Where, dir)
	}
	if r, by := n.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual || by["sales"].Copies != 1 {
		t.Errorf("verify:\n%s", text(r))
	}
}

// TestSinks_ADirectoryIsFoundWhereItIsUsed by a worker that starts after apply, whose
// root is not where apply ran.
func TestSinks_ADirectoryIsFoundWhereItIsUsed(t *testing.T) {
	t.Parallel()
	n := newIdleNode(t)
	n.apply(t, decode(t, saleContainer))
	n.put(t, "sale", `{"id":"s1","customerId":"k1"}`)
	n.apply(t, decode(t, saleRows("./analytics")))
	if path := n.record(t, "sales").Spec.Project.Sink.Parquet.Path; path != "analytics" {
		t.Errorf("the record has the directory %s", path)
	}
	root := t.TempDir()
	stop := n.work(t, n.client, compile.SinkLimits{Roots: []string{root}})
	n.announced(t, 1)
	n.idle(t)
	n.keepsIn(t, filepath.Join(root, "analytics"))

	// The same directory, however it is named, is no other one.
	for _, path := range []string{"analytics", filepath.Join(root, "analytics"), "file://" + root + "/analytics"} {
		done, err := n.registry.Apply(t.Context(), decode(t, saleRows(path)))
		if err != nil || done[0].Action != registry.Unchanged {
			t.Errorf("apply of %s: %v, %v", path, done, err)
		}
	}
	// Another pipeline may not have it, whichever of them names it in full.
	for _, path := range []string{"./analytics/deeper", filepath.Join(root, "analytics")} {
		_, err := n.registry.Apply(t.Context(), decode(t, strings.Replace(saleRows(path), "name: sales", "name: others", 1)))
		if found, ok := errors.AsType[spec.Findings](err); !ok || len(found) != 1 || !strings.Contains(err.Error(), "where pipeline default/sales has its own") {
			t.Errorf("apply of another pipeline into %s: %v", path, err)
		}
	}
	// Workers that follow each other on other machines see one disk at other places.
	stop()
	moved := t.TempDir()
	if err := os.Rename(filepath.Join(root, "analytics"), filepath.Join(moved, "analytics")); err != nil {
		t.Fatal(err)
	}
	n.work(t, n.client, compile.SinkLimits{Roots: []string{moved}})
	n.put(t, "sale", `{"id":"s1","customerId":"k1","n":2}`)
	n.announced(t, 1)
	n.idle(t)
	n.keepsIn(t, filepath.Join(moved, "analytics"))
}

// TestSinks_AbsoluteRecordsOfEarlierReleasesGoOn when the same declaration, which names
// its directory below the root, is applied again.
func TestSinks_AbsoluteRecordsOfEarlierReleasesGoOn(t *testing.T) {
	root := t.TempDir()
	n := rooted(t, root)
	dir := filepath.Join(root, "analytics")
	n.apply(t, decode(t, saleRows(dir)))
	n.idle(t)
	done, err := n.registry.Apply(t.Context(), decode(t, saleRows("./analytics")))
	if err != nil || done[0].Action != registry.Unchanged || n.record(t, "sales").Spec.Project.Sink.Parquet.Path != dir {
		t.Errorf("apply: %v, %v; the directory is %s", done, err, n.record(t, "sales").Spec.Project.Sink.Parquet.Path)
	}
	// One that the worker refuses gets its place.
	n.forge(t, filepath.Join(t.TempDir(), "analytics"))
	n.refused(t, "is not below "+root)
	if _, err := n.registry.Apply(t.Context(), decode(t, saleRows("./analytics")), registry.ApplyOptions{Backfill: true}); err != nil {
		t.Fatal(err)
	}
	n.idle(t)
	n.keepsIn(t, dir)
}

// TestSinks_AWorkerRefusesADirectoryOutsideItsRoots, whatever stands in the record.
func TestSinks_AWorkerRefusesADirectoryOutsideItsRoots(t *testing.T) {
	root, other := t.TempDir(), t.TempDir()
	n := rooted(t, root)
	if err := os.Symlink(other, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	// By its name it is below the root, which is all that apply can see.
	n.apply(t, decode(t, saleRows(filepath.Join(root, "link", "sales"))))
	n.refused(t, "which leads to "+filepath.Join(other, "sales")+", is not below "+root)

	for path, want := range map[string]string{
		filepath.Join(other, "direct"): "is not below " + root,
		filepath.Join(root, "nats"):    "keeps its own files",
	} {
		n.forge(t, path)
		n.refused(t, want)
	}
	if err := filepath.WalkDir(other, func(path string, _ fs.DirEntry, err error) error {
		if path != other {
			t.Errorf("%s was made", path)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// TestSinks_FilesOfAnEarlierReleaseGoOn in the directory that it took.
func TestSinks_FilesOfAnEarlierReleaseGoOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := newNode(t) // without roots, as it was
	n.apply(t, decode(t, saleContainer))
	n.put(t, "sale", `{"id":"s1","customerId":"k1"}`)
	n.apply(t, decode(t, saleRows(dir)))
	n.idle(t)
	rec := n.record(t, "sales")

	limits := compile.SinkLimits{Roots: []string{t.TempDir()}}
	if err := limits.Admit(t.Context(), &rec); err != nil {
		t.Errorf("in the directory with its files: %v", err)
	}
	rec.Spec.Project.Sink.Parquet.Path = t.TempDir()
	if err := limits.Admit(t.Context(), &rec); err == nil {
		t.Error("a directory without its files is taken")
	}
	rec.Spec.Project.Sink.Parquet.Path, rec.ID = dir, "another"
	if err := limits.Admit(t.Context(), &rec); err == nil {
		t.Error("a directory with the files of another is taken")
	}
}

// TestPlan_WarnsOfADirectoryThatSeveralWorkersWrite.
func TestPlan_WarnsOfADirectoryThatSeveralWorkersWrite(t *testing.T) {
	root := t.TempDir()
	n := rooted(t, root)
	note := func() string {
		t.Helper()
		plan, err := plan.New(n.js, n.registry, n.client, plan.Config{}).Plan(t.Context(), decode(t, saleRows("./analytics")))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(plan.Resources[0].Notes, "\n")
	}
	if got := note(); strings.Contains(got, "workers") {
		t.Errorf("with one worker: %s", got)
	}
	n.work(t, n.client, compile.SinkLimits{Roots: []string{root}})
	n.announced(t, 2)
	if got := note(); !strings.Contains(got, "2 workers write them") || !strings.Contains(got, "on a disk that they share") {
		t.Errorf("with two workers: %s", got)
	}
	// One whose root is another one writes below that, and cannot write here.
	elsewhere := t.TempDir()
	n.work(t, n.client, compile.SinkLimits{Roots: []string{elsewhere}})
	n.announced(t, 3)
	if got := note(); !strings.Contains(got, "which is not the same for all: ") || !strings.Contains(got, elsewhere) {
		t.Errorf("with a worker whose root is elsewhere: %s", got)
	}
	if _, err := n.registry.Apply(t.Context(), decode(t, saleRows(filepath.Join(root, "analytics")))); err == nil || !strings.Contains(err.Error(), "refuses") {
		t.Errorf("with a worker whose root is elsewhere: %v", err)
	}
}

// forge puts a directory into the record of the pipeline, past apply.
func (n *node) forge(t testing.TB, path string) {
	t.Helper()
	kv, err := n.js.KeyValue(t.Context(), "millrace_pipelines")
	if err != nil {
		t.Fatal(err)
	}
	e, err := kv.Get(t.Context(), "pipeline.default.sales")
	if err != nil {
		t.Fatal(err)
	}
	var rec map[string]any
	if err := json.Unmarshal(e.Value(), &rec); err != nil {
		t.Fatal(err)
	}
	rec["spec"].(map[string]any)["project"].(map[string]any)["sink"].(map[string]any)["parquet"].(map[string]any)["path"] = path
	rec["generation"] = rec["generation"].(float64) + 1
	data, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Update(context.WithoutCancel(t.Context()), e.Key(), data, e.Revision()); err != nil {
		t.Fatal(err)
	}
}

// refused waits until status says why the pipeline does not run.
func (n *node) refused(t testing.TB, why string) {
	t.Helper()
	poll.Until(t, func() error {
		s, err := n.monitor.Read(t.Context())
		if err != nil {
			return err
		}
		if p := s.Pipelines[0]; p.State != status.Stuck || !strings.Contains(p.Reason, why) {
			return errors.New("it is " + string(p.State) + ": " + p.Reason)
		}
		return nil
	})
}
