package project_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/sinktest"
	"github.com/millrace/millrace/store"
)

var _ interface {
	sinktest.Sink
	project.Limiter
	project.Checker
	project.Forgetful
} = (*project.ContainerSink)(nil)

func TestContainerSink(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	sinktest.Run(t, func(t testing.TB) sinktest.Open {
		t.Helper()
		tables := map[string]*store.Container{
			"orders": n.container(t, "orders", 2, "/id"), "lines": n.container(t, "lines", 2, "/orderId"),
			"Kinds": n.container(t, "kinds", 1, "/k"), "added": n.container(t, "added", 1, "/id"),
		}
		rejects := n.container(t, "rejects", 1, "/table")
		return func(testing.TB) sinktest.Sink { return project.NewContainerSink(tables, rejects) }
	}, sinktest.Options{InPlace: true, Quick: true})
}

// kept is a schema of one table.
func kept(key []int, columns ...project.ColumnSchema) *project.Schema {
	return &project.Schema{Pipeline: "p", Generation: 1, Tables: []project.TableSchema{{Name: "t", Key: key, PartitionBy: -1, Columns: columns}}}
}

func TestContainerSinkCheck(t *testing.T) {
	column := func(name string) project.ColumnSchema { return project.ColumnSchema{Name: name} }
	number := project.ColumnSchema{Name: "id", Type: project.Type{Kind: project.KindInt64}}
	for name, c := range map[string]struct {
		key    []string
		schema *project.Schema
		want   string // of one problem; "" for none
	}{
		"by id":                       {[]string{"/id"}, kept([]int{0}, column("id"), column("x")), ""},
		"by another column":           {[]string{"/customerId"}, kept([]int{1, 0}, column("id"), column("customerId")), ""},
		"hierarchical":                {[]string{"/a", "/b"}, kept([]int{0, 1, 2}, column("a"), column("b"), column("c")), ""},
		"by id, which is no column":   {[]string{"/id"}, kept([]int{0, 1}, column("a"), column("b")), ""},
		"the partition key is no key": {[]string{"/customerId"}, kept([]int{0}, column("id"), column("customerId")), "project.tables.t.key does not hold the partition key"},
		"a nested partition key":      {[]string{"/a/b"}, kept([]int{0}, column("id"), column("a")), "project.tables.t.key does not hold the partition key"},
		"id is not the key":           {[]string{"/a"}, kept([]int{0, 1}, column("a"), column("b"), column("id")), "project.tables.t.columns.id is the item's id"},
		"id is not all of the key":    {[]string{"/a"}, kept([]int{0, 1, 2}, column("a"), column("b"), column("id")), "let key be [a, id]"},
		"id is a number":              {[]string{"/id"}, kept([]int{0}, number), "project.tables.t.columns.id.type is int64"},
		"a system property":           {[]string{"/id"}, kept([]int{0}, column("id"), column("_ts")), "project.tables.t.columns._ts is a property"},
	} {
		sink := project.NewContainerSink(map[string]*store.Container{"t": described(t, "rows", c.key...)}, nil)
		problems := sink.Check(c.schema)
		if c.want == "" && len(problems) == 0 {
			continue
		}
		if c.want == "" || len(problems) != 1 || !strings.Contains(problems[0].String(), c.want) {
			t.Errorf("%s: problems are %v, want %q", name, problems, c.want)
		}
	}
	sink := project.NewContainerSink(nil, described(t, "rejects", "/customer"))
	if problems := sink.Check(kept([]int{0}, column("id"))); len(problems) != 2 {
		t.Errorf("no container, and rejects by what they do not have: %v", problems)
	}
}

func TestContainerSinkCannotHold(t *testing.T) {
	id := project.ColumnSchema{Name: "id"}
	cents := project.ColumnSchema{Name: "cents", Type: project.Type{Kind: project.KindInt64}}
	sink := project.NewContainerSink(map[string]*store.Container{"t": described(t, "rows", "/cents")}, nil)
	s := kept([]int{0, 1}, id, cents)
	for name, c := range map[string]struct {
		id    string
		cents int64
		want  string
	}{
		"fits":               {"a|b~c", 1, ""},
		"a slash":            {"a/b", 1, "cannot be the id"},
		"empty":              {"", 1, "cannot be the id"},
		"beyond the doubles": {"a", 1<<53 + 1, "cannot be a partition key"},
	} {
		values := []project.Value{project.TextOf(c.id), project.IntOf(c.cents)}
		_, reason := sink.CannotHold(s, &project.Row{Key: values, Values: values, Source: "x"})
		if c.want == "" && reason != "" || !strings.Contains(reason, c.want) {
			t.Errorf("%s: %q, want %q", name, reason, c.want)
		}
	}
}

// Rows are items as an application would write them.
func TestContainerSinkItems(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := analytics(t)
	orders, lines := s.container(t, "orders", 2, "/customerId"), s.container(t, "lines", 1, "/orderId")
	cfg.Tables = cfg.Tables[1:]
	cfg.Tables[0].Key = []string{"customerId", "id"}
	cfg.Tables[1].Key = []string{"orderId", "line", "sku"}
	cfg.Sink = project.NewContainerSink(map[string]*store.Container{"orders": orders, "orderItems": lines}, nil)
	p := compile(t, cfg)
	l := newLease()
	s.run(l, p)
	s.append(set{id: "o1", body: orderItem("o1", day, "a/b|c")})
	s.append(set{id: "o2", body: orderItem("o2", "bad", "x")})
	cp := s.done(l)
	item, err := orders.Read(t.Context(), key(t, "c1"), "o1")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"o1","customerId":"c1","orderDate":"2014-08-16T00:00:00Z","_source":"customer/[\"c1\"]/o1"}`
	if diff := cmp.Diff(want, string(item.Body)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if item, err = lines.Read(t.Context(), key(t, "o1"), "0|a~2Fb~7Cc"); err != nil {
		t.Fatal(err)
	}
	want = `{"id":"0|a~2Fb~7Cc","orderId":"o1","line":0,"sku":"a/b|c","price":0.50,"quantity":1,"_source":"customer/[\"c1\"]/o1","_element":"0"}`
	if diff := cmp.Diff(want, string(item.Body)); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
	s.equal(p)
	if cp.Counts.Rejects != 1 || len(cp.Rejected) != 1 {
		t.Errorf("without a container for rejects they are counted and told: %+v", cp.State)
	}
	s.append(set{id: "o1"}, set{id: "o2"})
	s.done(l)
	s.equal(p)
	if _, err := orders.Read(t.Context(), key(t, "c1"), "o1"); err == nil {
		t.Error("the row of a deleted item is still there")
	}
}
