package project_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/sinktest"
)

// Each planted fault is found by both passes, and nothing else.
func TestCompareAndExamine(t *testing.T) {
	cfg := analytics(t)
	sink := sinktest.NewMemory(sinktest.NewDisk(), false)
	cfg.Sink = sink
	cfg.Tables[2].Columns = append(cfg.Tables[2].Columns, project.Column{Name: "raw", Expr: "element", Type: project.Type{Kind: project.KindJSON}})
	p := compile(t, cfg)
	items := map[string]project.Item{}
	for _, id := range []string{"o1", "o2", "o3", "o4"} {
		items[id] = project.Item{ItemRef: ref(t, "c1", id), Body: []byte(orderItem(id, day, "a", "b"))}
	}
	items["bad"] = project.Item{ItemRef: ref(t, "c1", "bad"), Body: []byte(orderItem("bad", "never", "a"))}
	twin := project.Item{ItemRef: ref(t, "c2", "o1"), Body: []byte(orderItem("o1", day, "a", "b"))} // claims the keys of o1
	w, _, err := sink.Open(t.Context(), p.Schema(), project.Term{Producer: p.Resource(partition).Producer(), Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	position := uint64(0)
	write := func(b project.Batch) {
		t.Helper()
		b.After, b.UpTo = feed.Position{LSN: feed.LSN(position)}, feed.Position{LSN: feed.LSN(position + 1)}
		position++
		if _, err := w.Write(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"o1", "o2", "o3", "o4", "bad"} {
		rows, rejects := p.RowsOf(items[id].Key, id, items[id].Body)
		write(project.Batch{Put: rows, Reject: rejects})
	}
	rows, _ := p.RowsOf(twin.Key, twin.ID, twin.Body)
	write(project.Batch{Put: rows})

	check := func(name string, suspects []string, differences ...string) *project.Examination {
		t.Helper()
		c := p.Compare()
		c.Expect(twin.Key, twin.ID, twin.Body)
		for _, item := range items {
			c.Expect(item.Key, item.ID, item.Body)
		}
		if err := c.Read(t.Context(), sink); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(suspects, c.Suspects()); len(suspects)+len(c.Suspects()) > 0 && diff != "" {
			t.Errorf("%s: suspects (-want +got):\n%s", name, diff)
		}
		all := []project.Item{twin}
		for _, id := range []string{"o1", "o2", "o3", "o4", "bad", "ghost"} {
			item := items[id]
			item.ItemRef = ref(t, "c1", id)
			all = append(all, item)
		}
		e, err := p.Examine(t.Context(), sink, all)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range e.Differences {
			got = append(got, fmt.Sprintf("%s %d %v %s", d.Kind, d.Table, d.Key, d.Detail))
		}
		slices.Sort(got)
		slices.Sort(differences)
		if diff := cmp.Diff(differences, got); diff != "" {
			t.Errorf("%s: differences (-want +got):\n%s", name, diff)
		}
		return e
	}
	if e := check("nothing", nil); e.Waiting != 3 || e.Rows != 16 {
		t.Errorf("%d rows, %d wait, want 16 and 3", e.Rows, e.Waiting)
	}

	o2, o3, o4 := p2(t, p, items["o2"]), p2(t, p, items["o3"]), p2(t, p, items["o4"])
	wrong := o3[1]
	wrong.Values = slices.Clone(wrong.Values)
	wrong.Values[2], wrong.Values[5] = project.TextOf("z"), project.JSONOf(`{"quantity":1.0,"price":0.5,"sku":"z"}`)
	same := o4[1]
	same.Values = slices.Clone(same.Values)
	same.Values[5] = project.JSONOf(`{ "quantity": 1.0, "price":0.50,"sku":"a"}`) // says the same
	ghost := project.Row{Table: 1, Key: []project.Value{project.TextOf("g")}, Values: []project.Value{project.TextOf("g"), {}, {}}, Source: project.SourceOf("customer", key(t, "c1"), "ghost")}
	extra := project.Row{Table: 1, Key: []project.Value{project.TextOf("e")}, Values: []project.Value{project.TextOf("e"), {}, {}}, Source: o4[0].Source}
	_, rejects := p.RowsOf(items["bad"].Key, "bad", items["bad"].Body)
	write(project.Batch{Drop: []project.Row{o2[0]}, Put: []project.Row{wrong, same, ghost, extra}, Accept: rejects})
	e := check("planted",
		[]string{`customer/["c1"]/bad`, `customer/["c1"]/ghost`, `customer/["c1"]/o2`, `customer/["c1"]/o3`, `customer/["c1"]/o4`},
		"missing 1 [o2] there is no such row",
		`wrong 2 [o3 0] sku should be "a" and is "z"; raw should be {"sku":"a","price":0.5,"quantity":1} and is {"quantity":1.0,"price":0.5,"sku":"z"}`,
		"extra 1 [e] its item has no such row",
		`missing 1 [] it is not among the rejects: orderDate is "never", and the column takes times such as 2024-01-31T08:30:00Z`,
	)
	if e.Kept != 1 {
		t.Errorf("%d rows are kept of items that are gone, want that of the ghost", e.Kept)
	}
	was := e.Was(items["o4"], "customer")
	if len(was.Rows) != 1 || was.Rows[0].Key[0].Text() != "e" || len(was.Rejects) != 0 {
		t.Errorf("what is to be removed is %+v", was)
	}
}

// p2 returns the rows of an item.
func p2(t testing.TB, p *project.Projection, item project.Item) []project.Row {
	t.Helper()
	rows, _ := p.RowsOf(item.Key, item.ID, item.Body)
	if len(rows) == 0 {
		t.Fatalf("%s has no rows", item.ItemRef)
	}
	return rows
}

// Mend brings an item's rows to what it is, whatever the sink has of it.
func TestMend(t *testing.T) {
	n := newNode(t)
	source := n.container(t, "customer", 2, "/customerId")
	cfg := analytics(t)
	sink := sinktest.NewMemory(sinktest.NewDisk(), true)
	cfg.Source, cfg.Sink = source, sink
	p := compile(t, cfg)
	if _, err := source.Create(t.Context(), []byte(orderItem("o1", day, "a", "b"))); err != nil {
		t.Fatal(err)
	}
	producer := p.Resource(partition).Producer()
	producer.Source = "repair"
	w, at, err := sink.Open(t.Context(), p.Schema(), project.Term{Producer: producer, Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	present := func() *project.Examination {
		t.Helper()
		item, err := source.Read(t.Context(), key(t, "c1"), "o1")
		body := item.Body
		if err != nil {
			body = nil
		}
		e, err := p.Examine(t.Context(), sink, []project.Item{{ItemRef: ref(t, "c1", "o1"), Body: body}})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	mend := func(was project.Was) {
		t.Helper()
		if at, err = p.Mend(t.Context(), w, at, []project.Was{was}); err != nil {
			t.Fatal(err)
		}
	}
	if e := present(); len(e.Differences) != 3 {
		t.Fatalf("an empty sink differs by %+v", e.Differences)
	}
	mend(project.Was{ItemRef: ref(t, "c1", "o1")})
	if e := present(); len(e.Differences) != 0 {
		t.Errorf("after a repair: %+v", e.Differences)
	}
	// The item is another one now, and nobody has told the sink.
	if _, err := source.Replace(t.Context(), "o1", []byte(orderItem("o1", day, "z"))); err != nil {
		t.Fatal(err)
	}
	e := present()
	mend(e.Was(project.Item{ItemRef: ref(t, "c1", "o1")}, source.Info().Name))
	if e := present(); len(e.Differences) != 0 || at.LSN != 2 {
		t.Errorf("after a second repair, at %s: %+v", at, e.Differences)
	}
	rows := p2(t, p, project.Item{ItemRef: ref(t, "c1", "o1"), Body: []byte(orderItem("o1", day, "z"))})
	if err := source.Delete(t.Context(), key(t, "c1"), "o1"); err != nil {
		t.Fatal(err)
	}
	mend(project.Was{ItemRef: ref(t, "c1", "o1"), Rows: rows})
	for r, err := range sink.Rows(t.Context(), p.Schema(), 1) {
		t.Errorf("the row of a deleted item is still there: %v, %v", r, err)
	}
}
