package aggregate

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/accumulator"
)

// Problem is one thing that is wrong with a declaration.
type Problem struct {
	// Field is the place in a pipeline's spec: source.where, aggregate.each,
	// aggregate.match.customerId, aggregate.set.lifetimeValue.sum.
	Field string
	// Message says what is wrong and what to do.
	Message string
	// Offset is where in the text of the field, in bytes; zero if the problem is the
	// field as a whole.
	Offset int
}

func (p Problem) String() string { return p.Field + " " + p.Message }

// declaration is a checked Config with everything parsed.
type declaration struct {
	rule      *accumulator.Rule
	sourceKey []document.Path
	targetKey []document.Path
	reads     []document.Path // of a source item
}

type checker struct {
	problems []Problem
}

// declare parses the declaration in cfg and returns everything that is wrong with it.
// Its containers are not looked at: sourceKey and targetKey are their partition key
// paths, such as /categoryId.
//
// What cannot be argued is refused: a match that, with the equalities of the
// target's where, does not fix the whole partition key of the target, for the
// exact state of a group is kept there, whether or not its target is; create,
// where they do not fix the target's id too; and a field that writes what match
// or where reads, the target's partition key or its id.
func declare(cfg *Config, sourceKey, targetKey []string) (*declaration, []Problem) {
	c := &checker{}
	for _, p := range accumulator.Check(cfg.Spec) {
		c.problems = append(c.problems, Problem{Field: p.Field, Message: p.Message, Offset: p.Offset})
	}
	d := &declaration{
		sourceKey: c.paths("source.container", sourceKey),
		targetKey: c.paths("aggregate.into", targetKey),
	}
	if len(c.problems) > 0 {
		return d, c.problems
	}
	rule, err := accumulator.Compile(cfg.Spec)
	if err != nil { // which Check has not found
		c.bad("aggregate", "%v", err)
		return d, c.problems
	}
	d.rule, d.reads = rule, rule.SourceReads()
	c.checkTargetKey(d, targetKey)
	c.checkWrites(d)
	return d, c.problems
}

func (c *checker) bad(field, format string, args ...any) {
	c.problems = append(c.problems, Problem{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) paths(field string, pointers []string) []document.Path {
	paths := make([]document.Path, 0, len(pointers))
	for _, p := range pointers {
		path, err := document.ParsePointer(p)
		if err != nil {
			c.bad(field, "has a partition key path that cannot be read: %v", err)
			continue
		}
		paths = append(paths, path)
	}
	return paths
}

// checkTargetKey refuses groups that do not say in which partition their target is.
func (c *checker) checkTargetKey(d *declaration, pointers []string) {
	var missing, all []string
	for _, path := range d.targetKey {
		all = append(all, path.String())
		if !d.rule.FixesTargetKey([]document.Path{path}) {
			missing = append(missing, path.String())
		}
	}
	if len(missing) > 0 || len(pointers) == 0 {
		fields := strings.Join(missing, " and ")
		c.bad("aggregate.match", "does not say which partition the target of a group is in, where the exact state of the group is kept: its %s is not fixed; "+
			"match it with a field of the source, or fix it in aggregate.where (%s = ...). Its partition key is %s",
			fields, fields, strings.Join(all, ", "))
	}
}

// checkWrites refuses fields that write what cannot be changed. What decides about the
// fields themselves is refused by accumulator.Check.
func (c *checker) checkWrites(d *declaration) {
	for _, path := range d.rule.TargetWrites() {
		for _, key := range d.targetKey {
			if overlap(path, key) {
				c.bad("aggregate.set."+path.String(), "writes the target's partition key, which cannot be changed")
			}
		}
	}
}

// overlap says whether one of two paths of names leads to, or into, the other.
func overlap(a, b document.Path) bool {
	for i := range min(len(a), len(b)) {
		if a[i].Name != b[i].Name {
			return false
		}
	}
	return true
}
