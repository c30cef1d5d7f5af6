package spec

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/feed/document"
)

// TestStepsMax bounds the steps of one test.
const TestStepsMax = 1000

// test reads a document of kind Test, if tests are asked for.
func (d *Decoder) test(r *Resources, t Test, spec *yaml.Node) {
	if !d.Tests {
		return
	}
	if spec != nil {
		d.testSpec(spec, &t.Spec)
	}
	r.Tests = append(r.Tests, t)
}

func (d *Decoder) testSpec(n *yaml.Node, s *TestSpec) {
	d.mapping(n, "spec",
		field{"pipelines", "", d.texts(&s.Pipelines, "[category-names]")},
		field{"given", "", d.testItems(&s.Given, "given", wholeItem)},
		field{"steps", "it says what changes and what is expected, step by step: [{change: ..., expect: ...}]", func(n *yaml.Node, path string) {
			d.list(n, path, "[{change: {upsert: {product: [{id: p1}]}}, expect: {product: [{id: p1}]}}]", func(e *yaml.Node, path string) {
				var step TestStep
				d.testStep(e, path, &step)
				s.Steps = append(s.Steps, step)
			})
			switch {
			case n.Kind == yaml.SequenceNode && len(n.Content) == 0:
				d.bad(n, "%s is empty; a step is expected, such as {expect: {product: [{id: p1}]}}", path)
			case len(s.Steps) > TestStepsMax:
				d.bad(n, "%s has %d steps; at most %d are allowed", path, len(s.Steps), TestStepsMax)
			}
		}},
	)
}

func (d *Decoder) testStep(n *yaml.Node, path string, s *TestStep) {
	if !d.mapping(n, path,
		field{"name", "", d.text(&s.Name)},
		field{"change", "", d.testChanges(&s.Change)},
		field{"expect", "", d.testItems(&s.Expect, "expect", partItem)},
		field{"absent", "", d.testItems(&s.Absent, "absent", partItem)},
		field{"expectRows", "", d.testRows(&s.ExpectRows)},
		field{"exact", "", d.boolean(&s.Exact)},
	) {
		return
	}
	if s.Change == nil && s.Expect == nil && s.Absent == nil && s.ExpectRows == nil && !d.isWrong(n) {
		d.bad(n, "%s does nothing; one of change, expect, absent and expectRows is expected", path)
	}
}

// isWrong tells whether a finding stands at a node or in it.
func (d *Decoder) isWrong(n *yaml.Node) bool {
	if slices.ContainsFunc(d.findings, func(f Finding) bool { return f.Place == d.at(n) }) {
		return true
	}
	return slices.ContainsFunc(n.Content, d.isWrong)
}

// testChanges reads operations, or a list of such.
func (d *Decoder) testChanges(into *TestChanges) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		read := func(n *yaml.Node, path string) {
			var c TestChange
			d.testChange(n, path, &c)
			*into = append(*into, c)
		}
		if n.Kind == yaml.SequenceNode {
			d.list(n, path, "[{upsert: {product: [{id: p1}]}}]", read)
			return
		}
		read(n, path)
	}
}

func (d *Decoder) testChange(n *yaml.Node, path string, c *TestChange) {
	operation := func(kind string, into *TestItems, form itemForm) field {
		return field{kind, "", d.testItems(into, kind, form)}
	}
	if !d.mapping(n, path,
		operation("create", &c.Create, wholeItem), operation("replace", &c.Replace, wholeItem), operation("upsert", &c.Upsert, wholeItem),
		operation("patch", &c.Patch, patchItem), operation("delete", &c.Delete, partItem),
	) {
		return
	}
	if len(n.Content) == 0 {
		d.bad(n, "%s is empty; create, replace, upsert, patch or delete is expected", path)
	}
	// mapping reads fields in its own order.
	for i := 0; i+1 < len(n.Content); i += 2 {
		kind := resolve(n.Content[i]).Value
		var items TestItems
		switch kind {
		case "create":
			items = c.Create
		case "replace":
			items = c.Replace
		case "upsert":
			items = c.Upsert
		case "patch":
			items = c.Patch
		case "delete":
			items = c.Delete
		}
		for j := range items {
			for _, item := range items[j].Items {
				c.Operations = append(c.Operations, TestOperation{kind, items[j].Container, item})
			}
		}
	}
}

// itemForm is what is asked of an item in a test.
type itemForm uint8

const (
	wholeItem itemForm = iota // all that an item must have
	partItem                  // its identity, and any of its fields
	patchItem                 // its identity, and fields by their paths
)

// testItems reads a mapping of containers to items.
func (d *Decoder) testItems(into *TestItems, what string, form itemForm) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		example := "{product: [{id: p1, categoryId: c1}]}"
		for _, e := range d.entries(n, path, "the names of containers with a list of items each are expected, such as "+example) {
			at := Join(path, e.name)
			c := TestContainer{Container: e.name}
			d.list(e.value, at, "[{id: p1, categoryId: c1}]", func(n *yaml.Node, path string) {
				item, ok := d.testItem(n, path)
				if ok && d.itemID(n, path, item.Body) && d.itemPaths(n, path, item.Body, form) {
					c.Items = append(c.Items, item)
				}
			})
			if e.value.Kind == yaml.SequenceNode && len(e.value.Content) == 0 {
				d.bad(e.value, "%s is empty, and says nothing; name items, or leave %s out", at, what)
			}
			*into = append(*into, c)
		}
	}
}

// testItem reads an item or a row.
func (d *Decoder) testItem(n *yaml.Node, path string) (TestItem, bool) {
	if n.Kind != yaml.MappingNode {
		d.bad(n, "%s is %s; the fields of an item are expected, such as {id: p1}", path, describe(n))
		return TestItem{}, false
	}
	before := len(d.findings)
	w := YamlWriter{
		place: func(n *yaml.Node, path string) { d.places[path] = d.at(n) },
		bad:   func(n *yaml.Node, message string) { d.bad(n, "%s: %s", path, message) },
	}
	w.Value(n, path)
	if before != len(d.findings) {
		return TestItem{}, false
	}
	return TestItem{Body: w.Out.Bytes(), Path: path}, true
}

// itemID checks that an item has an id.
func (d *Decoder) itemID(n *yaml.Node, path string, body []byte) bool {
	raw, ok := document.Get(body, document.Path{{Name: "id"}})
	if !ok {
		d.bad(n, "%s has no id; write id: and a text", path)
		return false
	}
	at := d.places.at(path + ".id")
	id, ok := document.Text(raw)
	if !ok {
		d.findings.Add(at, "%s.id is %s; a text is expected: if you mean the text, quote it", path, raw)
		return false
	}
	if err := document.CheckNewID(id); err != nil {
		d.findings.Add(at, "%s.id: %s", path, err)
		return false
	}
	return true
}

// itemPaths checks that the fields of a patch are paths.
func (d *Decoder) itemPaths(n *yaml.Node, path string, body []byte, form itemForm) bool {
	if form != patchItem {
		return true
	}
	fields, ok := 0, true
	document.Members(body, func(name, _ []byte) bool {
		if fields++; string(name) == "id" {
			return true
		}
		if _, err := document.ParseField(string(name)); err != nil {
			d.findings.Add(d.places.at(Join(path, string(name))), "%s: %q is not the path of a field such as name or tags[0].name: %s", path, name, err)
			ok = false
		}
		return true
	})
	if fields < 2 {
		d.bad(n, "%s says nothing of what changes; write fields and their values", path)
		return false
	}
	return ok
}

// testRows reads a mapping of pipelines to tables to rows.
func (d *Decoder) testRows(into *TestRows) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		const expected = "the name of a projection, its tables and a list of rows each are expected, such as {analytics: {orders: [{id: o1}]}}"
		for _, pipeline := range d.entries(n, path, expected) {
			of := Join(path, pipeline.name)
			for _, table := range d.entries(pipeline.value, of, expected) {
				t := TestTable{Pipeline: pipeline.name, Table: table.name, Path: Join(of, table.name)}
				d.list(table.value, t.Path, "[{id: o1}]", func(n *yaml.Node, path string) {
					if row, ok := d.testItem(n, path); ok {
						t.Rows = append(t.Rows, row)
					}
				})
				*into = append(*into, t)
			}
		}
	}
}

// CheckTests finds what tests name and nobody declares.
func (r *Resources) CheckTests() Findings {
	var findings Findings
	for i := range r.Tests {
		c := testChecker{r: r, t: &r.Tests[i], findings: &findings}
		c.all()
	}
	return findings
}

// testChecker checks one test against what is declared.
type testChecker struct {
	r        *Resources
	t        *Test
	findings *Findings
}

func (c *testChecker) add(path, format string, args ...any) {
	c.findings.Add(c.t.places.key(path), "%s: %s", path, fmt.Sprintf(format, args...))
}

func (c *testChecker) all() {
	for i, name := range c.t.Spec.Pipelines {
		c.pipeline(fmt.Sprintf("spec.pipelines[%d]", i), name)
	}
	c.items("spec.given", c.t.Spec.Given)
	for i := range c.t.Spec.Steps {
		step, path := &c.t.Spec.Steps[i], fmt.Sprintf("spec.steps[%d]", i)
		c.items(path+".expect", step.Expect)
		c.items(path+".absent", step.Absent)
		for j := range step.Change {
			for _, o := range step.Change[j].Operations {
				c.item(o.Container, o.Item)
			}
		}
		for j := range step.ExpectRows {
			c.rows(path+".expectRows", &step.ExpectRows[j])
		}
	}
}

// pipeline returns the pipeline that the test names.
func (c *testChecker) pipeline(path, name string) *Pipeline {
	var names []string
	for i := range c.r.Pipelines {
		p := &c.r.Pipelines[i]
		if p.Metadata.Database != c.t.Metadata.Database {
			continue
		}
		if names = append(names, p.Metadata.Name); p.Metadata.Name == name {
			return p
		}
	}
	c.add(path, "pipeline %s/%s is not declared%s", c.t.Metadata.Database, name, didYouMean(name, names))
	return nil
}

// items checks items by container.
func (c *testChecker) items(path string, items TestItems) {
	for i := range items {
		if len(items[i].Items) == 0 && c.container(Join(path, items[i].Container), items[i].Container) == nil {
			continue
		}
		for _, item := range items[i].Items {
			c.item(items[i].Container, item)
		}
	}
}

// container returns the container that the test names.
func (c *testChecker) container(path, name string) *Container {
	var names []string
	for i := range c.r.Containers {
		d := &c.r.Containers[i]
		if d.Metadata.Database != c.t.Metadata.Database {
			continue
		}
		if names = append(names, d.Metadata.Name); d.Metadata.Name == name {
			return d
		}
	}
	c.add(path, "container %s/%s is not declared%s", c.t.Metadata.Database, name, didYouMean(name, names))
	return nil
}

// item checks that an item says which logical partition it is in.
func (c *testChecker) item(container string, item TestItem) {
	of := item.Path[:strings.LastIndexByte(item.Path, '[')]
	d := c.container(of, container)
	if d == nil {
		return
	}
	for _, pointer := range d.Spec.PartitionKey {
		path, err := document.ParsePointer(pointer)
		if err != nil {
			continue // a finding of the decoder
		}
		if _, ok := document.Get(item.Body, path); !ok {
			c.findings.Add(c.t.places.at(item.Path), "%s has no %s, which is of the partition key of container %s", item.Path, path, container)
		}
	}
}

// rows checks the rows of a table.
func (c *testChecker) rows(path string, t *TestTable) {
	of := Join(path, t.Pipeline)
	p := c.pipeline(of, t.Pipeline)
	switch {
	case p == nil:
		return
	case p.Spec.Project == nil:
		c.add(of, "pipeline %s is no projection, and has no rows", t.Pipeline)
		return
	case len(c.t.Spec.Pipelines) > 0 && !slices.Contains(c.t.Spec.Pipelines, t.Pipeline):
		c.add(of, "pipeline %s is not among those of spec.pipelines", t.Pipeline)
		return
	}
	var names []string
	for i := range p.Spec.Project.Tables {
		names = append(names, p.Spec.Project.Tables[i].Name)
	}
	at := slices.Index(names, t.Table)
	if at < 0 {
		c.add(t.Path, "pipeline %s has no table %s%s", t.Pipeline, t.Table, didYouMean(t.Table, names))
		return
	}
	table := &p.Spec.Project.Tables[at]
	for _, row := range t.Rows {
		for _, key := range table.Key {
			if _, ok := document.Get(row.Body, document.Path{{Name: key}}); !ok {
				c.findings.Add(c.t.places.at(row.Path), "%s has no %s, which is of the key of table %s", row.Path, key, t.Table)
			}
		}
		document.Members(row.Body, func(name, _ []byte) bool {
			if table.Columns.Column(string(name)) == nil {
				var columns []string
				for i := range table.Columns {
					columns = append(columns, table.Columns[i].Name)
				}
				c.add(Join(row.Path, string(name)), "table %s has no column %s%s", t.Table, name, didYouMean(string(name), columns))
			}
			return true
		})
	}
}
