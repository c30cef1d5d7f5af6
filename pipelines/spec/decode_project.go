package spec

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/processors/project"
)

// project reads what a projection is.
func (d *Decoder) project(n *yaml.Node, path string, p *Project) {
	d.mapping(n, path,
		field{"sink", "it says where the tables are, such as {parquet: {path: ./analytics}}", func(n *yaml.Node, path string) { d.sink(n, path, &p.Sink) }},
		field{"onExpire", "", oneOfTexts(d, &p.OnExpire, KeepRows, DeleteRows)},
		field{"tables", "it says which rows there are, table: {key: [id], columns: {id: id}}", func(n *yaml.Node, path string) { d.tables(n, path, &p.Tables) }},
	)
}

func (d *Decoder) tables(n *yaml.Node, path string, into *Tables) {
	entries := d.entries(n, path, "table: which rows it has, is expected, such as orders: {key: [id], columns: {id: id}}")
	for _, e := range entries {
		at := Join(path, e.name)
		t := NamedTable{Name: e.name}
		if IsNull(e.value) {
			d.bad(e.value, "%s is empty; which rows it has is expected, such as {key: [id], columns: {id: id}}", at)
			continue
		}
		d.table(e.value, at, &t.Table)
		*into = append(*into, t)
	}
}

// table reads which rows a table has. Its each comes before what it is the scope
// of.
func (d *Decoder) table(n *yaml.Node, path string, t *Table) {
	complete := false // all columns could be read
	d.mapping(n, path,
		field{"each", "", d.each(&t.Each)},
		field{"where", "", func(n *yaml.Node, path string) {
			d.expression(&t.Where, scopeOf(t.Each).ofWhere(), `type = "salesOrder"`)(n, path)
		}},
		field{"key", "the columns that tell the rows apart are expected, such as [id]", d.texts(&t.Key, "[id]")},
		field{"columns", "what a row holds is expected, such as {id: id, city: address.city}", func(n *yaml.Node, path string) {
			before := len(d.findings)
			d.columns(n, path, scopeOf(t.Each), &t.Columns)
			complete = before == len(d.findings)
		}},
		field{"index", "", func(n *yaml.Node, path string) {
			d.list(n, path, "[[orderDate]]", func(e *yaml.Node, path string) {
				var names []string
				d.texts(&names, "[orderDate]")(e, path)
				t.Index = append(t.Index, names)
			})
		}},
		field{"partitionBy", "", d.text(&t.PartitionBy)},
	)
	if complete {
		d.columnNames(path, t)
	}
}

func (d *Decoder) columns(n *yaml.Node, path string, s Scope, into *Columns) {
	entries := d.entries(n, path, "column: expression is expected, such as {id: id, city: address.city}")
	for _, e := range entries {
		at := Join(path, e.name)
		c := NamedColumn{Name: e.name}
		switch {
		case IsNull(e.value):
			d.bad(e.value, "%s is empty; an expression is expected, such as %s", at, "address.city")
		case e.value.Kind == yaml.MappingNode:
			d.mapping(e.value, at,
				field{"expr", "an expression is expected, such as expr: price * quantity", d.expression(&c.Expr, s, "price * quantity")},
				field{"type", "", d.columnType(&c.Type)},
			)
		default:
			d.expression(&c.Expr, s, "address.city")(e.value, at)
		}
		*into = append(*into, c) // even if it is wrong, for what names it
	}
}

// columnType reads the type of a column.
func (d *Decoder) columnType(into *string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		var text string
		if d.text(&text)(n, path); text == "" {
			return
		}
		if _, err := project.ParseType(text); err != nil {
			d.bad(n, "%s: %s", path, err)
			return
		}
		*into = text
	}
}

// columnNames checks that key, index and partitionBy name columns.
func (d *Decoder) columnNames(path string, t *Table) {
	names := make([]string, len(t.Columns))
	for i := range t.Columns {
		names[i] = t.Columns[i].Name
	}
	is := func(at, name string) {
		if name != "" && !slices.Contains(names, name) {
			hint := didYouMean(name, names)
			if hint == "" {
				hint = "; it has " + strings.Join(names[:min(len(names), 20)], ", ")
			}
			d.findings.Add(d.places.at(at), "%s: %q is not a column of the table%s", at, name, hint)
		}
	}
	list := func(at string, list []string) {
		for i, name := range list {
			is(fmt.Sprintf("%s[%d]", at, i), name)
		}
	}
	list(path+".key", t.Key)
	for i, columns := range t.Index {
		list(fmt.Sprintf("%s.index[%d]", path, i), columns)
	}
	is(path+".partitionBy", t.PartitionBy)
}
