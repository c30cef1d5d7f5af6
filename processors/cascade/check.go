package cascade

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store/query"
)

// Check returns everything that is wrong with the declaration in cfg, whose
// containers are not looked at: sourceKey and targetKey are their partition key
// paths, such as /categoryId.
//
// It refuses what cannot be shown to converge: a match that, with the equalities of the
// source's where, does not fix the source's whole partition key and id; a match
// on another field of the source, for items could begin and cease to match
// without being changed themselves; and a set that writes what its own match,
// where or partition key reads.
func Check(cfg *Config, sourceKey, targetKey []string) processors.Problems {
	_, problems := declare(cfg, sourceKey, targetKey)
	return problems
}

// declaration is a checked Config with everything parsed.
type declaration struct {
	sourceWhere, targetWhere *query.Expr // nil: all
	each                     document.Path
	match                    []matchPair
	set                      []pair
	sourceID                 part   // where a source's id comes from
	sourceKey                []part // and its partition key
	targetKey                []document.Path
}

// pair is a parsed Pair.
type pair struct {
	Pair
	target, source document.Path
}

// matchPair is a field of the target and the fields of the source that it equals.
type matchPair struct {
	pair               // with the first field of the source
	more []sourceField // the others
}

// sourceField is a field of the source as it was written.
type sourceField struct {
	text string
	path document.Path
}

// visitSources visits every field of the source that the pair names.
func (m *matchPair) visitSources(visit func(f sourceField)) {
	visit(sourceField{m.Source, m.source})
	for _, f := range m.more {
		visit(f)
	}
}

// names says whether one of the source's fields is that of pointer.
func (m *matchPair) names(pointer string) bool {
	found := false
	m.visitSources(func(f sourceField) { found = found || f.path.Pointer() == pointer })
	return found
}

// part says where a component of a source's key comes from: from the fields of the
// target that pairs name, which all have to hold it, or, if there are none, from a
// constant of the source's where.
type part struct {
	pairs    []int  // in match
	constant []byte // raw JSON; also set beside pairs if both fix it
}

type checker struct {
	cfg      *Config
	d        declaration
	problems processors.Problems
}

func declare(cfg *Config, sourceKey, targetKey []string) (*declaration, processors.Problems) {
	c := &checker{cfg: cfg}
	c.d.sourceWhere = c.problems.Expression("source.where", cfg.SourceWhere, query.ParseExpr)
	c.d.targetWhere = c.problems.Expression("cascade.where", cfg.TargetWhere, query.ParseExpr)
	if cfg.Each != "" {
		c.d.each = c.names("cascade.each", cfg.Each)
	}
	c.d.match = c.matches(cfg.Match)
	c.d.set = c.pairs("cascade.set", cfg.Set)
	for _, p := range targetKey {
		path, err := document.ParsePointer(p)
		if err != nil {
			c.problems.Add("cascade.into", "has a partition key path that cannot be read: %v", err)
		}
		c.d.targetKey = append(c.d.targetKey, path)
	}
	c.onSourceDelete()
	if len(c.problems) == 0 {
		c.checkSourceKey(sourceKey)
		c.checkWrites()
	}
	return &c.d, c.problems
}

// names parses a field made of names alone: such a place can be written and
// indexed.
func (c *checker) names(field, text string) document.Path {
	path, err := document.ParseField(text)
	if err != nil {
		c.problems.Add(field, "%v", err)
		return nil
	}
	for i := range path {
		if s := &path[i]; s.IsIndex || s.All || s.KeyName != "" || s.Name == "-" {
			c.problems.Add(field, "is %q; names joined by dots are expected, such as order.product", text)
			return nil
		}
	}
	return path
}

// matches parses match. Pairs with one field of the target are one pair, whose field
// equals several fields of the source.
func (c *checker) matches(pairs []Pair) []matchPair {
	var first []Pair
	more := map[string][]string{}
	for _, p := range pairs {
		if slices.ContainsFunc(first, func(o Pair) bool { return o.Target == p.Target }) {
			more[p.Target] = append(more[p.Target], p.Source)
		} else {
			first = append(first, p)
		}
	}
	parsed := c.pairs("cascade.match", first)
	matches := make([]matchPair, len(parsed))
	for i := range parsed {
		m := matchPair{pair: parsed[i]}
		at := "cascade.match." + m.Target
		for _, text := range more[m.Target] {
			path := c.source(at, text)
			if m.names(path.Pointer()) {
				c.problems.Add(at, "names the source's %s twice", text)
			}
			m.more = append(m.more, sourceField{text, path})
		}
		matches[i] = m
	}
	return matches
}

// source parses the field of the source that the field at copies or equals.
func (c *checker) source(at, text string) document.Path {
	path, err := document.ParseField(text)
	if err != nil {
		c.problems.Add(at, "copies from %v", err)
	}
	for i := range path {
		if path[i].All {
			c.problems.Add(at, "copies from %q; one value is expected, and [*] means many", text)
			break
		}
	}
	return path
}

func (c *checker) pairs(field string, pairs []Pair) []pair {
	if len(pairs) == 0 || len(pairs) > PairsMax {
		c.problems.Add(field, "has %d fields; 1 to %d are expected", len(pairs), PairsMax)
	}
	parsed := make([]pair, 0, len(pairs))
	for _, p := range pairs {
		at := field + "." + p.Target
		target := c.names(at, p.Target)
		source := c.source(at, p.Source)
		for i := range parsed {
			if target != nil && parsed[i].target.Overlaps(target) {
				c.problems.Add(at, "is there twice, or lies inside another: %s", parsed[i].Target)
			}
		}
		parsed = append(parsed, pair{Pair: p, target: target, source: source})
	}
	return parsed
}

func (c *checker) onSourceDelete() {
	switch c.cfg.OnSourceDelete {
	case "", Keep, Clear:
	case Delete:
		if c.cfg.Each != "" {
			c.problems.Add("cascade.onSourceDelete", "is delete, which would delete the item that holds the array; with each, clear removes the element")
		}
	default:
		c.problems.Add("cascade.onSourceDelete", "is %q; keep, clear or delete is expected", c.cfg.OnSourceDelete)
	}
}

// checkSourceKey finds where each component of a source's identity comes from.
func (c *checker) checkSourceKey(paths []string) {
	constants := map[string][]byte{}
	if c.d.sourceWhere != nil {
		for _, e := range c.d.sourceWhere.Equalities() {
			constants[document.PathOf(e.Path).Pointer()] = e.Value
		}
	}
	// An id is unique within a logical partition alone, so a source is named by its whole
	// partition key and its id.
	pointers := append(slices.Clone(paths), "/id")
	var missing []string
	for _, pointer := range pointers {
		p := part{constant: constants[pointer]}
		for i := range c.d.match {
			if c.d.match[i].names(pointer) {
				p.pairs = append(p.pairs, i)
			}
		}
		if len(p.pairs) == 0 && p.constant == nil {
			missing = append(missing, fieldOf(pointer))
		}
		c.d.sourceKey = append(c.d.sourceKey, p)
	}
	c.d.sourceID = c.d.sourceKey[len(paths)]
	c.d.sourceKey = c.d.sourceKey[:len(paths)]
	if len(missing) > 0 {
		c.problems.Add("cascade.match", "does not say which source item a copy has: its %s is not fixed; match a field of the target with it%s, "+
			"or fix it in source.where (%s = ...). Its partition key is %s",
			strings.Join(missing, " and "), c.alsoNamed(missing[0], pointers), missing[0], fieldsOf(paths))
	}
	// An item begins to match, or ceases to, only if a field of match changes, in it or in
	// the source. Its own changes are in the target's feed. The source's key and id never
	// change; any other field of it would, and no feed of the target would say so.
	for i := range c.d.match {
		c.d.match[i].visitSources(func(f sourceField) {
			if !slices.Contains(pointers, f.path.Pointer()) {
				c.problems.Add("cascade.match."+c.d.match[i].Target, "matches the source's %s, which is neither its id nor its partition key (%s); "+
					"items would begin and cease to match without being changed themselves", f.text, fieldsOf(paths))
			}
		})
	}
}

// alsoNamed says how a field of the target that is matched with one of pointers
// already would be matched with missing too.
func (c *checker) alsoNamed(missing string, pointers []string) string {
	at := slices.IndexFunc(c.d.match, func(m matchPair) bool { return slices.Contains(pointers, m.source.Pointer()) })
	if at < 0 {
		return ""
	}
	m := &c.d.match[at]
	return fmt.Sprintf(" (if both are equal, %s: [%s, %s])", m.Target, m.Source, missing)
}

// checkWrites refuses a set that writes what decides about itself.
func (c *checker) checkWrites() {
	for _, s := range c.d.set {
		written, at := slices.Concat(c.d.each, s.target), "cascade.set."+s.Target
		for _, m := range c.d.match {
			if written.Overlaps(slices.Concat(c.d.each, m.target)) {
				c.problems.Add(at, "writes the field by which the copy is matched")
			}
		}
		for _, key := range c.d.targetKey {
			if written.Overlaps(key) {
				c.problems.Add(at, "writes the target's partition key, which cannot be changed")
			}
		}
		if len(c.d.each) == 0 && written[0].Name == "id" {
			c.problems.Add(at, "writes the target's id, which cannot be changed")
		}
		if c.d.targetWhere == nil {
			continue
		}
		// With set: {status: state} and where "status = 'open'" the copy itself could end
		// the reason for which it was made.
		for _, read := range c.d.targetWhere.Paths() {
			if written.Overlaps(document.PathOf(read)) {
				c.problems.Add(at, "writes what cascade.where reads: %s", strings.Join(read, "."))
			}
		}
	}
}

// fieldOf writes a JSON pointer as a field.
func fieldOf(pointer string) string {
	path, err := document.ParsePointer(pointer)
	if err != nil {
		return pointer
	}
	return path.String()
}

func fieldsOf(pointers []string) string {
	fields := make([]string, len(pointers))
	for i, p := range pointers {
		fields[i] = fieldOf(p)
	}
	return strings.Join(fields, ", ")
}
