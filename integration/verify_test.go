package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// stall is a small WebStore in one process: two categories, two tags, 40
// products.
type stall struct {
	server        string
	js            jetstream.JetStream
	meta, product *store.Container
}

const stallProducts = 40

func newStall(t *testing.T, options ...string) *stall {
	t.Helper()
	port := strconv.Itoa(freePort(t))
	s := &stall{server: "nats://127.0.0.1:" + port}
	spawn(t, append([]string{"up", "--dir", t.TempDir(), "--port", port, "--listen", "off"}, options...)...)
	mustRun(t, s.server, "apply", "-f", "../configs/webstore")
	client := dial(t, s.server)
	nc, err := nats.Connect(s.server, asTester(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if s.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	s.meta, s.product = open(t, client, "productMeta"), open(t, client, "product")
	for _, item := range []metaItem{
		{"c0", "category", "Bikes"}, {"c1", "category", "Parts"}, {"t0", "tag", "red"}, {"t1", "tag", "blue"},
	} {
		if err := put(t.Context(), s.meta, item); err != nil {
			t.Fatal(err)
		}
	}
	for i := range stallProducts {
		item := productItem{ID: fmt.Sprint("p", i), CategoryID: fmt.Sprint("c", i%2), Tags: []tagItem{{ID: "t0"}, {ID: "t1", Name: "wrong"}}}
		if err := put(t.Context(), s.product, item); err != nil {
			t.Fatal(err)
		}
	}
	r := verifyCopies(t, s.server)
	r.equal(t, "filled", map[string]int64{"category-names": stallProducts, "tag-names": 2 * stallProducts})
	return s
}

// released waits until nobody holds a lease of a pipeline.
func (s *stall) released(t *testing.T, pipeline string) {
	t.Helper()
	awaitReleased(t, s.js, pipeline)
}

// awaitReleased waits until nobody works on a pipeline that was paused.
func awaitReleased(t *testing.T, js jetstream.JetStream, pipeline string) {
	t.Helper()
	poll.Until(t, func() error {
		for _, l := range leasesOf(t, js, pipeline) {
			if l.Owner != "" {
				return errors.New(l.Resource + " is held by " + l.Owner)
			}
		}
		return nil
	})
}

func (s *stall) leases(t *testing.T, pipeline string) []leases.Lease {
	t.Helper()
	return leasesOf(t, s.js, pipeline)
}

// leasesOf are those of a pipeline's roles.
func leasesOf(t *testing.T, js jetstream.JetStream, pipeline string) (found []leases.Lease) {
	t.Helper()
	all, err := leases.List(t.Context(), js, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		if strings.HasPrefix(l.Resource, "pipe/"+pipeline) {
			found = append(found, l)
		}
	}
	return found
}

// skip sets the checkpoint of the check of one partition past a commit, in the
// lease's record itself.
func (s *stall) skip(t *testing.T, pipeline string, p feed.Partition, to feed.Position) {
	t.Helper()
	resource := ""
	for _, l := range s.leases(t, pipeline) {
		if r, err := processors.ParseResource(l.Resource); err == nil && r.Role == processors.RoleTarget && r.Partition == p {
			resource = l.Resource
		}
	}
	kv, err := s.js.KeyValue(t.Context(), leases.DefaultBucket)
	if err != nil {
		t.Fatal(err)
	}
	entry, err := kv.Get(t.Context(), "lease.worker."+resource)
	if err != nil {
		t.Fatalf("the lease %q: %v", resource, err)
	}
	var record map[string]json.RawMessage
	var data []byte
	if err := json.Unmarshal(entry.Value(), &record); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(record["checkpoint"], &data); err != nil {
		t.Fatal(err)
	}
	cp, err := processors.DecodeCheckpoint(data)
	if err != nil {
		t.Fatal(err)
	}
	log, err := feed.OpenLog(t.Context(), s.js, p, feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	commit, err := log.Read(t.Context(), to.LSN)
	if err != nil {
		t.Fatal(err)
	}
	if !cp.Position.Before(to) {
		t.Fatalf("the checkpoint is at %s already, the change at %s", cp.Position, to)
	}
	cp.Position, cp.Time, cp.Sum = to, commit.Time, commit.Sum
	if record["checkpoint"], err = json.Marshal(cp.Encode()); err != nil {
		t.Fatal(err)
	}
	value, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Update(t.Context(), entry.Key(), value, entry.Revision()); err != nil {
		t.Fatal(err)
	}
}

// TestVerify_PausedIsBehindAndTamperedIsDrift changes a copy while its pipeline
// is paused, which is behind, and then hides the change from the pipeline, which
// is drift.
func TestVerify_PausedIsBehindAndTamperedIsDrift(t *testing.T) {
	t.Parallel()
	s := newStall(t)
	mustRun(t, s.server, "pause", "category-names")
	s.released(t, "category-names")
	item, err := s.product.Patch(t.Context(), keyOf(t, "c0"), "p4", []document.Op{{Kind: "set", Path: "/categoryName", Value: []byte(`"Byks"`)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), s.meta, metaItem{"c1", "category", "Spares"}); err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	r := verifyCopies(t, s.server, "--settle", "10m")
	p := r.by["category-names"]
	if r.exit != 1 || r.Verdict != verify.VerdictBehind || p.Behind != 1+stallProducts/2 || p.Drift != 0 ||
		r.by["tag-names"].Verdict != verify.VerdictEqual || !strings.Contains(p.Differences[0].Reason, "paused") {
		t.Errorf("paused:\n%s", &r)
	}
	if took := time.Since(began); took > 5*time.Minute {
		t.Errorf("verify waited %s for a paused pipeline", took)
	}
	if out, exit := run(t, s.server, "verify"); exit != 1 || !strings.Contains(out, "millrace resume") {
		t.Errorf("paused: exit %d, the output does not say what to do:\n%s", exit, out)
	}
	if r := verifyCopies(t, s.server, "tag-names"); r.exit != 0 || r.Verdict != verify.VerdictEqual || len(r.Pipelines) != 1 {
		t.Errorf("the other pipeline:\n%s", &r)
	}

	s.skip(t, "category-names", s.product.PartitionFor(item.Key), feed.Position(item.ETag))
	mustRun(t, s.server, "resume", "category-names")
	r = verifyCopies(t, s.server)
	p = r.by["category-names"]
	if r.exit != 1 || r.Verdict != verify.VerdictDrift || p.Drift != 1 || p.Behind != 0 || p.Copies != stallProducts {
		t.Fatalf("behind its back:\n%s", &r)
	}
	const want = `drift ["c0"]/p4: categoryName is "Byks", of its source "Bikes" (source ["category"]/c0)`
	if got := p.Differences[0].String(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	out, exit := run(t, s.server, "verify", "category-names")
	if exit != 1 || !strings.Contains(out, want) || !strings.Contains(out, "next: write the source again") {
		t.Errorf("drift: exit %d\n%s", exit, out)
	}

	// What it advises, helps.
	if _, err := s.product.Patch(t.Context(), keyOf(t, "c0"), "p4", []document.Op{{Kind: "set", Path: "/n", Value: []byte(`1`)}}); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), s.product, productItem{ID: "p4", CategoryID: "c0", Tags: []tagItem{{ID: "t0"}}}); err != nil {
		t.Fatal(err)
	}
	r = verifyCopies(t, s.server)
	r.equal(t, "written again", map[string]int64{"category-names": stallProducts, "tag-names": 2*stallProducts - 1})
}

// TestVerify_DeletedSourceIsJudgedAndAbsentOneDangles deletes sources, whose copies
// stay or go and are judged by what the sources were, and writes a product before its
// source.
func TestVerify_DeletedSourceIsJudgedAndAbsentOneDangles(t *testing.T) {
	t.Parallel()
	s := newStall(t)
	if err := s.meta.Delete(t.Context(), keyOf(t, "category"), "c1"); err != nil {
		t.Fatal(err)
	}
	if err := s.meta.Delete(t.Context(), keyOf(t, "tag"), "t1"); err != nil {
		t.Fatal(err)
	}
	r := verifyCopies(t, s.server, "--list", "3")
	kept, cleared := r.by["category-names"], r.by["tag-names"]
	if r.exit != 0 || r.Verdict != verify.VerdictEqual {
		t.Errorf("copies of deleted sources that are as declared are no bad news:\n%s", &r)
	}
	if kept.Dangling != 0 || kept.Copies != stallProducts || len(kept.Differences) != 0 {
		t.Errorf("a category that is gone, its copies kept:\n%s", &r)
	}
	if cleared.Dangling != 0 || cleared.Copies != stallProducts {
		t.Errorf("a tag that is gone, its copies cleared:\n%s", &r)
	}

	// A product may come before its source, and find it later.
	if err := put(t.Context(), s.product, productItem{ID: "early", CategoryID: "c9"}); err != nil {
		t.Fatal(err)
	}
	r = verifyCopies(t, s.server)
	if got := r.by["category-names"].Dangling; r.exit != 0 || got != 1 {
		t.Errorf("a product before its category:\n%s", &r)
	}
	if out, _ := run(t, s.server, "verify"); !strings.Contains(out, `there is no source ["category"]/c9`) {
		t.Errorf("the output does not tell of it:\n%s", out)
	}
	for _, id := range []string{"c1", "c9"} {
		if err := put(t.Context(), s.meta, metaItem{id, "category", "New " + id}); err != nil {
			t.Fatal(err)
		}
	}
	r = verifyCopies(t, s.server)
	r.equal(t, "sources made", map[string]int64{"category-names": 1 + stallProducts, "tag-names": stallProducts})
	if got := r.by["category-names"].Dangling; got != 0 {
		t.Errorf("%d dangling references are left:\n%s", got, &r)
	}
}

// TestVerify_ExitCodes tells bad news from a question that could not be asked.
func TestVerify_ExitCodes(t *testing.T) {
	t.Parallel()
	s := newStall(t)
	nobody := "nats://127.0.0.1:" + strconv.Itoa(freePort(t))
	for _, c := range []struct {
		name, server string
		args         []string
		exit         int
		says         string
	}{
		{"equal", s.server, []string{"verify"}, 0, "equal: 122 copies"},
		{"a pipeline that is not there", s.server, []string{"verify", "category-name"}, 1, "category-name"},
		{"a wrong flag", s.server, []string{"verify", "--settle", "soon"}, 2, "--settle"},
		{"the wait for NATS instead", s.server, []string{"verify", "--wait", "-1s"}, 2, "how long to wait for pipelines is --settle"},
		{"no server", nobody, []string{"verify", "--timeout", "1s", "--wait", "1s"}, 2, "millrace up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, exit := run(t, c.server, c.args...)
			if exit != c.exit || !strings.Contains(out, c.says) {
				t.Errorf("exit %d, want %d and %q in\n%s", exit, c.exit, c.says, out)
			}
		})
	}
}
