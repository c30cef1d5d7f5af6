package project_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/processors/project"
)

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*project.Config)
		field  string
		text   string
	}{
		"no tables":        {func(c *project.Config) { c.Tables = nil }, "project.tables", "0 tables"},
		"two of one name":  {func(c *project.Config) { c.Tables[1].Name = "customers" }, "project.tables.customers", "twice"},
		"no name":          {func(c *project.Config) { c.Tables[1].Name = "" }, "project.tables.", "cannot be a name"},
		"onExpire":         {func(c *project.Config) { c.OnExpire = "forget" }, "project.onExpire", "keep or delete"},
		"source where":     {func(c *project.Config) { c.SourceWhere = "type = " }, "source.where", ""},
		"where":            {func(c *project.Config) { c.Tables[0].Where = "type == 1" }, "project.tables.customers.where", ""},
		"each":             {func(c *project.Config) { c.Tables[2].Each = "details." }, "project.tables.orderItems.each", ""},
		"each with an end": {func(c *project.Config) { c.Tables[2].Each = "details[*]" }, "project.tables.orderItems.each", "write the path of the array alone"},
		"each by index":    {func(c *project.Config) { c.Tables[2].Each = "details[0].x" }, "project.tables.orderItems.each", "names joined by dots"},
		"an expression":    {func(c *project.Config) { c.Tables[1].Columns[2].Expr = "a +" }, "project.tables.orders.columns.orderDate", ""},
		"no expression":    {func(c *project.Config) { c.Tables[1].Columns[2].Expr = " " }, "project.tables.orders.columns.orderDate", "no expression"},
		"a parameter":      {func(c *project.Config) { c.Tables[1].Columns[2].Expr = "@p" }, "project.tables.orders.columns.orderDate", "@p"},
		"a type": {func(c *project.Config) {
			c.Tables[1].Columns[2].Type = project.Type{Kind: project.KindDecimal, Precision: 50}
		}, "project.tables.orders.columns.orderDate.type", "1 to 38"},
		"a column twice":    {func(c *project.Config) { c.Tables[0].Columns[1].Name = "id" }, "project.tables.customers.columns.id", "twice"},
		"a reserved column": {func(c *project.Config) { c.Tables[0].Columns[1].Name = "_source" }, "project.tables.customers.columns._source", "every row has"},
		"no key":            {func(c *project.Config) { c.Tables[0].Key = nil }, "project.tables.customers.key", "0 columns"},
		"a key that is not": {func(c *project.Config) { c.Tables[0].Key = []string{"idd"} }, "project.tables.customers.key", `"idd"`},
		"a key twice":       {func(c *project.Config) { c.Tables[0].Key = []string{"id", "id"} }, "project.tables.customers.key", "twice"},
		"a key of JSON":     {func(c *project.Config) { c.Tables[0].Columns[0].Type.Kind = project.KindJSON }, "project.tables.customers.key", "not told apart"},
		"an index":          {func(c *project.Config) { c.Tables[0].Index = [][]string{{"city"}, {"town"}} }, "project.tables.customers.index[1]", `"town"`},
		"partitionBy":       {func(c *project.Config) { c.Tables[0].PartitionBy = "town" }, "project.tables.customers.partitionBy", `"town"`},
		"partitionBy of JSON": {func(c *project.Config) {
			c.Tables[0].PartitionBy = "city"
			c.Tables[0].Columns[2].Type.Kind = project.KindJSON
		}, "project.tables.customers.partitionBy", "json"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := analytics(t)
			c.change(&cfg)
			problems := project.Check(&cfg)
			if len(problems) != 1 || problems[0].Field != c.field || !strings.Contains(problems[0].Message, c.text) {
				t.Errorf("problems are %v, want one of %s that says %q", problems, c.field, c.text)
			}
			if _, err := project.Compile(cfg); err == nil || !strings.Contains(err.Error(), problems[0].Message) {
				t.Errorf("Compile says %v", err)
			}
		})
	}
	cfg := analytics(t)
	cfg.Sink = nil
	if problems := project.Check(&cfg); len(problems) > 0 {
		t.Errorf("a good declaration: %v", problems)
	}
	cfg.Tables[0].Key, cfg.Tables[1].Columns[0].Expr, cfg.OnExpire = nil, "(", "x"
	if problems := project.Check(&cfg); len(problems) != 3 || problems[2].Line != 1 {
		t.Errorf("three problems: %v, want all, and where they are in an expression", problems)
	}
}

func TestReads(t *testing.T) {
	got := compile(t, analytics(t)).Reads()
	slices.Sort(got)
	want := []string{
		"/addresses/0/city", "/customerId", "/details", "/details/*/price", "/details/*/quantity", "/details/*/sku", "/firstName",
		"/id", "/id", "/id", "/lastName", "/orderDate", "/type", "/type", "/type",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is read (-want +got):\n%s", diff)
	}
}

func TestRebuild(t *testing.T) {
	typ := project.Type{Kind: project.KindJSON}
	for name, c := range map[string]struct {
		change func(*project.Config)
		want   []string
	}{
		"nothing": {func(*project.Config) {}, nil},
		"what is added": {func(c *project.Config) {
			c.Tables[0].Columns = append(c.Tables[0].Columns, project.Column{Name: "new", Expr: "x"})
			c.Tables[1].Index = [][]string{{"orderDate"}}
			c.Tables = append(c.Tables, project.Table{Name: "new"})
		}, nil},
		"everything": {func(c *project.Config) {
			c.SourceWhere, c.OnExpire = "x", project.Delete
			c.Tables[0].Where, c.Tables[0].Key, c.Tables[0].PartitionBy, c.Tables[0].Each = "x", []string{"name"}, "city", "x"
			c.Tables[0].Columns = []project.Column{{Name: "id", Expr: "x"}, {Name: "name", Expr: c.Tables[0].Columns[1].Expr, Type: typ}}
			c.Tables = c.Tables[:2]
		}, []string{
			"source.where selects other items", "project.onExpire has changed", "project.tables.customers.where selects other rows",
			"project.tables.customers.each has changed", "project.tables.customers.key has changed", "project.tables.customers.partitionBy has changed",
			"column customers.id has another expression", "column customers.name has another type", "column customers.city is gone", "table orderItems is gone",
		}},
	} {
		former, present := analytics(t), analytics(t)
		c.change(&present)
		if diff := cmp.Diff(c.want, project.Rebuild(&former, &present)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
