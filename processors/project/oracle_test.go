package project_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/sinktest"
	"github.com/millrace/millrace/store"
)

// doubling shows every row of the orders once more than the sink has it.
type doubling struct{ *sinktest.Memory }

func (s doubling) Rows(ctx context.Context, schema *project.Schema, table int) iter.Seq2[project.Row, error] {
	return func(yield func(project.Row, error) bool) {
		for range min(table, 1) + 1 {
			for row, err := range s.Memory.Rows(ctx, schema, table) {
				if !yield(row, err) {
					return
				}
			}
		}
	}
}

// TestDifferences_FindsEveryFault plants one fault after the other in a sink: what the
// tests of this package judge by tells each, and nothing else.
func TestDifferences_FindsEveryFault(t *testing.T) {
	cfg := analytics(t)
	cfg.Tables[2].Columns = append(cfg.Tables[2].Columns, project.Column{Name: "raw", Expr: "element", Type: project.Type{Kind: project.KindJSON}})
	items := []store.Item{
		{Key: key(t, "c1"), ID: "o1", Body: []byte(orderItem("o1", day, "a"))},
		{Key: key(t, "c1"), ID: "o3", Body: []byte(orderItem("o3", day, "a"))},
		{Key: key(t, "c1"), ID: "bad", Body: []byte(orderItem("bad", "never"))},
		{Key: key(t, "c2"), ID: "o1", Body: []byte(orderItem("o1", day))}, // wants the key of the first
	}
	for name, c := range map[string]struct {
		fault func(o1, o3 []project.Row, bad project.Reject) project.Batch
		want  []string
	}{
		"none": {},
		"a row is lost": {
			func(_, o3 []project.Row, _ project.Reject) project.Batch { return project.Batch{Drop: o3[:1]} },
			[]string{`row [o3 c1 2014-08-16T00:00:00Z] of customer/["c1"]/o3 is missing in table 1`},
		},
		"a row is stale": {
			func(_, o3 []project.Row, _ project.Reject) project.Batch {
				o3[1].Values = slices.Clone(o3[1].Values)
				o3[1].Values[2] = project.TextOf("z")
				return project.Batch{Put: o3[1:]}
			},
			[]string{`row of table 2 is [o3 0 z 0.50 1 {"sku":"a","price":0.5,"quantity":1}] of customer/["c1"]/o3 0, ` +
				`want [o3 0 a 0.50 1 {"sku":"a","price":0.5,"quantity":1}] of customer/["c1"]/o3 0`},
		},
		"a row says the same in other words": {
			func(_, o3 []project.Row, _ project.Reject) project.Batch {
				o3[1].Values = slices.Clone(o3[1].Values)
				o3[1].Values[5] = project.JSONOf(`{ "quantity": 1.0, "price":0.50,"sku":"a"}`)
				return project.Batch{Put: o3[1:]}
			}, nil,
		},
		"a row of an item has another key": {
			func(_, o3 []project.Row, _ project.Reject) project.Batch {
				o3[0].Key = []project.Value{project.TextOf("e")}
				o3[0].Values = []project.Value{o3[0].Key[0], {}, {}}
				return project.Batch{Put: o3[:1]}
			},
			[]string{`row [e null null] of customer/["c1"]/o3 should not be in table 1`},
		},
		"the row of no item is left over": {
			func(_, o3 []project.Row, _ project.Reject) project.Batch {
				o3[0].Key, o3[0].Source = []project.Value{project.TextOf("g")}, project.SourceOf("customer", key(t, "c1"), "ghost")
				o3[0].Values = []project.Value{o3[0].Key[0], {}, {}}
				return project.Batch{Put: o3[:1]}
			},
			[]string{`row [g null null] of customer/["c1"]/ghost should not be in table 1`},
		},
		"a pending row is lost": {
			func(o1, _ []project.Row, _ project.Reject) project.Batch {
				o1[0].Source = project.SourceOf("customer", key(t, "c2"), "o1")
				return project.Batch{Drop: o1[:1]}
			},
			[]string{`pending row [o1 c1 2014-08-16T00:00:00Z] of customer/["c2"]/o1 is missing in table 1`},
		},
		"a reject is lost": {
			func(_, _ []project.Row, bad project.Reject) project.Batch {
				return project.Batch{Accept: []project.Reject{bad}}
			},
			[]string{`the reject of customer/["c1"]/bad  is missing in table 1: orderDate is "never", and the column takes times such as 2024-01-31T08:30:00Z`},
		},
		"a reject is left over": {
			func(_, _ []project.Row, bad project.Reject) project.Batch {
				bad.Element = "7"
				return project.Batch{Reject: []project.Reject{bad}}
			},
			[]string{`the reject of customer/["c1"]/bad 7 should not be in table 1`},
		},
	} {
		sink := sinktest.NewMemory(sinktest.NewDisk(), false)
		cfg.Sink = sink
		p := compile(t, cfg)
		w, at, err := sink.Open(t.Context(), p.Schema(), project.Term{Producer: p.Resource(partition).Producer(), Epoch: 1})
		if err != nil {
			t.Fatal(err)
		}
		write := func(b project.Batch) {
			t.Helper()
			b.After, b.UpTo = at, feed.Position{LSN: at.LSN + 1}
			if _, err := w.Write(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			at = b.UpTo
		}
		rows, rejects := make([][]project.Row, len(items)), make([][]project.Reject, len(items))
		for i := range items {
			rows[i], rejects[i] = p.RowsOf(items[i].Key, items[i].ID, items[i].Body)
			write(project.Batch{Put: rows[i], Reject: rejects[i]})
		}
		if c.fault != nil {
			write(c.fault(rows[0], rows[1], rejects[2][0]))
		}
		if diff := cmp.Diff(c.want, sinktest.Differences(t.Context(), p, items)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	cfg.Sink = doubling{cfg.Sink.(*sinktest.Memory)}
	if twice := sinktest.Differences(t.Context(), compile(t, cfg), items); len(twice) != 1 || !strings.HasPrefix(twice[0], "orders: the key [") || !strings.HasSuffix(twice[0], "] is there twice") {
		t.Errorf("rows that are there twice: %q", twice)
	}
}
