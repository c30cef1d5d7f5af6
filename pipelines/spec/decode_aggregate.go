package spec

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/accumulator"
)

// aggregate reads what an aggregate is. Its each comes before what it is the scope
// of.
func (d *Decoder) aggregate(n *yaml.Node, path string, a *Aggregate) {
	d.mapping(n, path,
		field{"into", "the name of the container that holds the fields is expected", d.text(&a.Into)},
		field{"each", "", d.each(&a.Each)},
		field{"match", "", func(n *yaml.Node, path string) {
			// match: {} is written for one group of all, as no match at all is. pairs would want an entry.
			if n.Kind != yaml.MappingNode || len(n.Content) > 0 {
				d.pairs(&a.Match, "{customerId: customerId}", d.namesPath, d.sourceField(scopeOf(a.Each)))(n, path)
			}
		}},
		field{"where", "", d.where(&a.Where)},
		field{"create", "", d.boolean(&a.Create)},
		field{"set", "it says what each field of the target is, such as {orders: {count: true}}", func(n *yaml.Node, path string) {
			d.aggregateFields(n, path, a)
		}},
		field{"consistency", "", oneOfTexts(d, &a.Consistency, Eventual, Transactional)},
	)
}

func (d *Decoder) aggregateFields(n *yaml.Node, path string, a *Aggregate) {
	const example = "{count: true} or {sum: price * quantity, each: details}"
	for _, e := range d.entries(n, path, "field of the target: what it is, is expected, such as {orders: {count: true}}") {
		at := Join(path, e.name)
		field, ok := d.namesPath(e.key, at, e.name)
		if e.value.Kind != yaml.MappingNode {
			d.bad(e.value, "%s is %s; what the field is, is expected: %s", at, describe(e.value), example)
			continue
		}
		var f AggregateField
		if d.aggregateField(e.value, at, a.Each, &f); ok {
			a.Set.put(field, f)
		}
	}
}

// functions are what a field of an aggregate can be.
var functions = []string{"count", "sum", "min", "max", "avg", "latest"}

// aggregateField reads what one field is.
func (d *Decoder) aggregateField(n *yaml.Node, path string, each document.Field, f *AggregateField) {
	expression := func(into *Expression) func(*yaml.Node, string) {
		return func(n *yaml.Node, path string) {
			d.expression(into, scopeOf(each, f.Each), "price * quantity")(n, path)
		}
	}
	var there []string // the fields that are
	seen := func(name string, read func(*yaml.Node, string)) field {
		return field{name, "", func(n *yaml.Node, path string) {
			there = append(there, name)
			read(n, path)
		}}
	}
	d.mapping(n, path,
		field{"each", "", d.each(&f.Each)},
		seen("count", d.count(&f.Count)),
		seen("sum", expression(&f.Sum)), seen("min", expression(&f.Min)), seen("max", expression(&f.Max)), seen("avg", expression(&f.Avg)),
		seen("latest", d.latest(&f.Latest)), seen("by", expression(&f.By)), seen("fields", func(n *yaml.Node, path string) { d.latestFields(n, path, scopeOf(each, f.Each), &f.Fields) }),
		field{"where", "", expression(&f.Where)},
	)
	for i := 0; i+1 < len(n.Content); i += 2 {
		if name := n.Content[i].Value; !slices.Contains(there, name) && name != "each" && name != "where" {
			return // unknown or empty: it may be what is missing
		}
	}
	d.oneFunction(path, there)
}

// oneFunction checks that a field is one thing, and has what belongs to it.
func (d *Decoder) oneFunction(path string, there []string) {
	has := func(name string) bool { return slices.Contains(there, name) }
	is := slices.DeleteFunc(slices.Clone(functions), func(name string) bool { return !has(name) })
	switch {
	case len(is) > 1:
		d.findings.Add(d.places.key(path), "%s has %s; one of them is expected: a field is one thing", path, strings.Join(is, " and "))
		return
	case len(is) == 0:
		d.findings.Add(d.places.key(path), "%s does not say what it is; one of %s is expected, such as count: true", path, oneOf(functions))
		return
	}
	for name, what := range map[string]string{
		"by": "the expression that tells which are the newest, such as by: orderDate", "fields": "what is kept of each, such as fields: [id, orderDate]",
	} {
		switch {
		case is[0] == "latest" && !has(name):
			d.findings.Add(d.places.key(path+".latest"), "%s.latest needs %s: %s", path, name, what)
		case is[0] != "latest" && has(name):
			d.findings.Add(d.places.key(path+"."+name), "%s.%s has no meaning with %s; it belongs to latest", path, name, is[0])
		}
	}
}

// count reads count: true, the only way to write it.
func (d *Decoder) count(into *bool) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		before := len(d.findings)
		if d.boolean(into)(n, path); !*into && before == len(d.findings) {
			d.bad(n, "%s is false; write count: true, or leave it out", path)
		}
	}
}

// latest reads how many of the newest there are.
func (d *Decoder) latest(into *int) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		before := len(d.findings)
		if d.number(into)(n, path); before == len(d.findings) && (*into < 1 || *into > accumulator.LatestMax) {
			d.bad(n, "%s is %d; 1 to %d are allowed", path, *into, accumulator.LatestMax)
		}
	}
}

// latestFields reads what is kept of each of the newest.
func (d *Decoder) latestFields(n *yaml.Node, path string, s Scope, into *[]document.Field) {
	d.list(n, path, "[id, orderDate]", func(e *yaml.Node, path string) {
		var text string
		if d.text(&text)(e, path); text == "" {
			return
		}
		if f, ok := d.sourceField(s)(e, path, text); ok {
			*into = append(*into, f)
		}
	})
}

// checkAggregate applies the rules of aggregates that need nothing else.
func (d *Decoder) checkAggregate(s *PipelineSpec) {
	for _, problem := range accumulator.Check(AggregateSpec(s)) {
		field := "spec." + problem.Field
		at := d.places.at(field)
		// What is said of an entry as a whole points at its name; its value may begin a line below.
		if isEntry(field, "spec.aggregate.match.", s.Aggregate.Match) || isEntry(field, "spec.aggregate.set.", s.Aggregate.Set) {
			at = d.places.key(field)
		}
		d.findings.Add(at, "%s %s", field, problem.Message)
	}
}

// isEntry tells whether a field is one of the entries of a mapping.
func isEntry[T any](field, mapping string, entries ByField[T]) bool {
	name, ok := strings.CutPrefix(field, mapping)
	return ok && entries.has(name)
}
