package pipelines_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/postgres"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/processors/project/pgsink"
	"github.com/millrace/millrace/store"
)

const peoplePipeline = `
apiVersion: millrace/v1
kind: Container
metadata: {name: people}
spec: {partitionKey: [/name]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: refused}
spec: {partitionKey: [/id]}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: flat}
spec:
  source: {container: sale, where: type = "person"}
  project:
    sink: SINK
    tables:
      people: {key: [name], columns: {name: name, n: {expr: n, type: int64}, more: {expr: more, type: json}}}
`

// TestVerifyEverySink plants faults in every kind of sink: rows, one that waits for
// its key because another item has it, and one that cannot be. To be set back takes no row out
// of what is verified: those of the generation before are in the same tables.
func TestVerifyEverySink(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind    string
		setBack bool
	}{{"container", false}, {"parquet", false}, {"parquet", true}, {"postgres", false}, {"postgres", true}} {
		kind := test.kind
		t.Run(kind+map[bool]string{true: " set back"}[test.setBack], func(t *testing.T) {
			m := newMart(t)
			dir, env := t.TempDir(), ""
			if kind == "postgres" {
				env = postgres.Env(t, postgres.Start(t).Database(t))
			}
			sink := map[string]string{
				"container": "{container: {rejects: refused}}", "parquet": "{parquet: {path: " + dir + ", commitInterval: 100ms}}",
				"postgres": "{postgres: {dsnEnv: " + env + "}}",
			}[kind]
			m.apply(t, decode(t, strings.ReplaceAll(peoplePipeline, "SINK", sink)))
			for i := range 6 {
				m.put(t, "sale", fmt.Sprintf(`{"id":"p%d","customerId":"k%d","type":"person","name":"Name %d","n":%d,"more":{"b":[1.0],"a":"x"}}`, i, i%2, i, i))
			}
			m.idle(t)
			m.put(t, "sale", `{"id":"twin","customerId":"k9","type":"person","name":"Name 3","n":33}`,
				`{"id":"bad","customerId":"k9","type":"person","name":"Bad","n":"many"}`)
			m.idle(t)
			check := func(when string, repair bool, want ...string) {
				t.Helper()
				r, by := m.verify(t, verify.Config{})
				if repair {
					r, by = m.repair(t, verify.Config{})
				}
				if diff := cmp.Diff(want, lines(by["flat"])); diff != "" || by["flat"].Copies < 7 {
					t.Errorf("%s: %s\n%s", when, diff, text(r))
				}
			}
			check("at rest", false)
			if test.setBack {
				to, err := registry.ParseRewindTo(time.Now().UTC().Format(time.RFC3339Nano), time.Now())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := m.registry.Rewind(t.Context(), "default", "flat", to, leases.DefaultBucket); err != nil {
					t.Fatal(err)
				}
				m.idle(t)
				check("set back", false)
			}

			m.plantPeople(t, kind, dir, env)
			claim := `drift table people row ["Name 3"]: is missing, its key is held by sale/["k1"]/p3, and it does not wait for it (source sale/["k9"]/twin)`
			want := []string{
				`drift table people reject: is missing, n is a string, "many", and the column takes numbers (int64) (source sale/["k9"]/bad)`,
				`drift table people reject: should not be there, n of before (source sale/["k1"]/p5)`,
				`drift table people row ["Extra"]: should not be there (source sale/["k1"]/p5)`,
				`drift table people row ["Ghost"]: should not be there (source sale/["k1"]/ghost)`,
				`drift table people row ["Name 2"]: is missing (source sale/["k0"]/p2)`,
				claim,
				`drift table people row ["Name 4"]: n is 5, of its source 4 (source sale/["k0"]/p4)`,
			}
			check("planted", false, want...)
			if _, by := m.repair(t, verify.Config{}); int(by["flat"].Repaired) != len(want) || by["flat"].Verdict != verify.VerdictEqual {
				t.Errorf("repaired: %+v", by["flat"])
			}
			check("after the repair", false)
			check("again", true)
		})
	}
}

// plantPeople plants faults through a sink of its own.
func (m *mart) plantPeople(t testing.TB, kind, dir, env string) {
	t.Helper()
	rec := m.record(t, "flat")
	cfg := project.Config{Pipeline: rec.ID, Generation: rec.Generation, Source: m.container(t, "sale")}
	sinks := map[string]func() (project.Sink, error){
		"container": func() (project.Sink, error) {
			return project.NewContainerSink(map[string]*store.Container{"people": m.container(t, "people")}, m.container(t, "refused")), nil
		},
		"parquet": func() (project.Sink, error) {
			return parquetsink.New(parquetsink.NewDir(dir), parquetsink.Config{})
		},
		"postgres": func() (project.Sink, error) { return pgsink.New(pgsink.Config{DSNEnv: env}) },
	}
	var err error
	if cfg.Sink, err = sinks[kind](); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cfg.Sink.Close() })
	number, _ := project.ParseType("int64")
	json, _ := project.ParseType("json")
	cfg.Tables = []project.Table{{Name: "people", Key: []string{"name"}, Columns: []project.Column{
		{Name: "name", Expr: "name"}, {Name: "n", Expr: "n", Type: number}, {Name: "more", Expr: "more", Type: json},
	}}}
	p, err := project.Compile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w, at, err := cfg.Sink.Open(t.Context(), p.Schema(), project.Term{Producer: feed.Producer{Pipeline: rec.ID, Generation: rec.Generation, Source: "plant"}, Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	source := func(key, id string) string {
		k, err := feed.NewPartitionKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return project.SourceOf("sale", k, id)
	}
	name := func(s string) []project.Value { return []project.Value{project.TextOf(s)} }
	b := &project.Batch{
		After: at, UpTo: feed.Position{LSN: at.LSN + 1},
		Put: []project.Row{
			{Key: name("Ghost"), Values: []project.Value{project.TextOf("Ghost"), {}, {}}, Source: source("k1", "ghost")},
			{Key: name("Extra"), Values: []project.Value{project.TextOf("Extra"), {}, {}}, Source: source("k1", "p5")},
			{Key: name("Name 4"), Values: []project.Value{project.TextOf("Name 4"), project.IntOf(5), project.JSONOf(`{"a":"x","b":[1]}`)}, Source: source("k0", "p4")},
		},
		Drop: []project.Row{
			{Key: name("Name 2"), Source: source("k0", "p2")},
			{Key: name("Name 3"), Source: source("k9", "twin")}, // which waits
		},
		Reject: []project.Reject{{Source: source("k1", "p5"), Column: "n", Reason: "of before"}},
		Accept: []project.Reject{{Source: source("k9", "bad")}},
	}
	if _, err := w.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}
