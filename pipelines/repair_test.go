package pipelines_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors/project"
)

// repair returns the report on all pipelines, by name.
func (n *node) repair(t testing.TB, cfg verify.Config) (*verify.Report, map[string]verify.PipelineReport) {
	t.Helper()
	r, err := verify.NewRepairer(n.js, n.registry, n.client, cfg).Repair(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]verify.PipelineReport{}
	for _, p := range r.Pipelines {
		by[p.Name] = p
	}
	return r, by
}

// plants are faults of every kind, and how verify tells of each.
func (m *mart) plants(t testing.TB) map[string][]string {
	t.Helper()
	m.plantGroup(t, "totals", martOrder(2, 9, 100))                                  // a count off by one, with all that goes with it
	m.plantGroup(t, "days", strings.Replace(martOrder(90, 1, 0), `"d1"`, `"d9"`, 1)) // likewise in another container
	m.plantItem(t, "line", "o1-2", "0", "", "")                                      // a row that is missing
	m.plantItem(t, "line", "o1-3", "1", `"t"`, `"T"`)                                // a wrong column
	key, err := feed.NewPartitionKey("c1")
	if err != nil {
		t.Fatal(err)
	}
	text := project.TextOf
	// A row too many of an item that is there, one of an item that never was, a wrong
	// column, a row that is missing.
	m.plantRows(t, project.Batch{
		Put: []project.Row{
			{Table: 1, Key: []project.Value{text("bogus")}, Values: []project.Value{text("bogus"), text("c1"), project.FloatOf(1), {}}, Source: project.SourceOf("sale", key, "o1-1")},
			{Table: 0, Key: []project.Value{text("ghost")}, Values: []project.Value{text("ghost"), {}, {}}, Source: project.SourceOf("sale", key, "ghost")},
			{Table: 0, Key: []project.Value{text("spirit")}, Values: []project.Value{text("spirit"), {}, {}}, Source: "elsewhere"},
			{Table: 0, Key: []project.Value{text("c1")}, Values: []project.Value{text("c1"), text("Someone"), project.IntOf(6)}, Source: project.SourceOf("sale", key, "c1")},
		},
		Drop: []project.Row{{Table: 1, Key: []project.Value{text("o1-4")}, Source: project.SourceOf("sale", key, "o1-4")}},
	})
	return map[string][]string{
		"totals": {
			`drift group ["c2"]: last is 9100, of its members 5052, orders is 7, of its members 6, ` +
				`recent is [{"id":"o2-9","total":100.5},{"id":"o2-5","total":52.5}], of its members [{"id":"o2-5","total":52.5},{"id":"o2-4","total":42.5}], ` +
				`spent is 265.5, of its members 165`,
		},
		"days": {
			`drift ["d9"]/d9 group ["d9","d9"]: amount is 0.5, of its members 0, mean is 0.5, of its members absent, orders is 1, of its members 0, top is 0.5, of its members absent`,
		},
		"lines": {
			`drift table line row ["o1-2",0]: is missing (source sale/["c1"]/o1-2)`,
			`drift table line row ["o1-3",1]: sku is "T", of its source "t" (source sale/["c1"]/o1-3)`,
		},
		"files": {
			`drift table customers row ["c1"]: name is "Someone", of its source "Customer 1" (source sale/["c1"]/c1)`,
			`drift table customers row ["ghost"]: should not be there (source sale/["c1"]/ghost)`,
			`drift table customers row ["spirit"]: should not be there (source elsewhere)`,
			`drift table orders row ["bogus"]: should not be there (source sale/["c1"]/o1-1)`,
			`drift table orders row ["o1-4"]: is missing (source sale/["c1"]/o1-4)`,
		},
	}
}

// TestRepair_MendsWhatVerifyFinds plants a fault of every kind: verify finds each
// and no other, repair repairs exactly those, while others write.
func TestRepair_MendsWhatVerifyFinds(t *testing.T) {
	t.Parallel()
	m := newMart(t)
	m.fill(t, 7, 6)
	want := m.plants(t)
	stop := m.traffic(t, 20, 4)

	_, by := m.verify(t, verify.Config{PageItems: 20, PollInterval: 10 * time.Millisecond})
	for name, p := range by {
		if diff := cmp.Diff(want[name], lines(p)); diff != "" || p.Verdict != verify.VerdictDrift || int(p.Drift) != len(want[name]) {
			t.Errorf("%s: %s, %d drift\n%s", name, p.Verdict, p.Drift, diff)
		}
	}
	// What is read while others write is judged when the pipeline has passed it, for which a busy machine takes its time.
	_, by = m.repair(t, verify.Config{PageItems: 20, PollInterval: 10 * time.Millisecond, Timeout: 10 * time.Minute})
	for name, p := range by {
		var repaired []string
		for _, line := range want[name] {
			repaired = append(repaired, strings.Replace(line, "drift", "repaired", 1))
		}
		slices.Sort(repaired)
		if diff := cmp.Diff(repaired, lines(p)); diff != "" || p.Drift != 0 || int(p.Repaired) != len(want[name]) {
			t.Errorf("%s: %s, %d repaired, %d drift\n%s", name, p.Verdict, p.Repaired, p.Drift, diff)
		}
	}
	stop()
	m.idle(t)
	if r, _ := m.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual {
		t.Errorf("after the repair:\n%s", text(r))
	}
	if got := m.read(t, "sale", "c2", "c2", "orders"); got != "6" {
		t.Errorf("the planted order is still counted: %s", got)
	}
}

// TestRepair_MendsCopies plants a stale copy in an array.
func TestRepair_MendsCopies(t *testing.T) {
	t.Parallel()
	m := newMart(t)
	m.apply(t, load(t, "testdata/shop"))
	m.put(t, "productMeta", bikes, parts, red, blue)
	m.put(t, "product", `{"id":"p1","categoryId":"c1","tags":[{"id":"t1"},{"id":"t2","name":"old"}]}`, `{"id":"p2","categoryId":"c2","tags":[]}`)
	m.idle(t)
	m.plantItem(t, "product", "c1", "p1", `"name":"blue"`, `"name":"azure"`)
	want := `drift ["c1"]/p1 element 1: name is "azure", of its source "blue" (source ["tag"]/t2)`
	_, by := m.verify(t, verify.Config{})
	if diff := cmp.Diff([]string{want}, lines(by["tag-names"])); diff != "" || by["category-names"].Verdict != verify.VerdictEqual {
		t.Errorf("found: %s", diff)
	}
	r, by := m.repair(t, verify.Config{})
	if diff := cmp.Diff([]string{strings.Replace(want, "drift", "repaired", 1)}, lines(by["tag-names"])); diff != "" || r.Verdict != verify.VerdictEqual {
		t.Errorf("repaired: %s", diff)
	}
	if r, _ := m.repair(t, verify.Config{}); r.Verdict != verify.VerdictEqual || r.Pipelines[0].Repaired != 0 {
		t.Errorf("again:\n%s", text(r))
	}
}

// TestRepair_MendsFields plants a field that is not what its accumulator says, and
// nothing else is touched.
func TestRepair_MendsFields(t *testing.T) {
	t.Parallel()
	m := newMart(t)
	m.fill(t, 5, 6)
	m.plantItem(t, "sale", "c3", "c3", `"orders":6`, `"orders":5`)
	want := `drift ["c3"]/c3 group ["c3"]: orders is 5, of its group 6`
	_, by := m.verify(t, verify.Config{})
	if diff := cmp.Diff([]string{want}, lines(by["totals"])); diff != "" {
		t.Errorf("found: %s", diff)
	}
	before := m.head(t, "sale")
	if _, by = m.repair(t, verify.Config{}); by["totals"].Repaired != 1 || by["totals"].Verdict != verify.VerdictEqual {
		t.Errorf("repaired: %+v", by["totals"])
	}
	m.idle(t)
	if after := m.head(t, "sale"); after != before+1 {
		t.Errorf("%d commits for one field", after-before)
	}
	if r, _ := m.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual {
		t.Errorf("after the repair:\n%s", text(r))
	}
}

// head returns how many commits the logs of a container have.
func (m *mart) head(t testing.TB, container string) (commits feed.LSN) {
	t.Helper()
	c := m.container(t, container)
	for _, p := range c.Partitions() {
		status, err := c.Status(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		commits += status.Applied
	}
	return commits
}

// TestRepair_RepairsAHotGroup repairs the count of a customer whose orders many write at
// the time, in the owner's commits and in a processor's.
func TestRepair_RepairsAHotGroup(t *testing.T) {
	t.Parallel()
	m := newMart(t)
	m.fill(t, 3, 5)
	stop := m.traffic(t, 0, 1)
	for range 3 {
		m.plantGroup(t, "totals", martOrder(0, 9, 100))
		m.plantGroup(t, "days", martOrder(0, 1, 7))
		_, by := m.repair(t, verify.Config{PollInterval: 5 * time.Millisecond})
		for _, name := range []string{"totals", "days"} {
			// An item that changes faster than it can be looked at is behind.
			if p := by[name]; p.Repaired != 1 || p.Drift != 0 {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
	stop()
	m.idle(t)
	if r, _ := m.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual {
		t.Errorf("at rest:\n%s", text(r))
	}
}
