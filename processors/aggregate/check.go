package aggregate

import (
	"strings"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store/accumulator"
)

// declaration is a checked Config with everything parsed.
type declaration struct {
	rule      *accumulator.Rule
	sourceKey []document.Path
	targetKey []document.Path
	reads     []document.Path // of a source item
}

type checker struct {
	problems processors.Problems
}

// declare parses the declaration in cfg and returns everything that is wrong with it.
// Its containers are not looked at: sourceKey and targetKey are their partition key
// paths, such as /categoryId.
//
// It refuses what cannot be shown to converge: a match that, with the equalities of the
// target's where, does not fix the whole partition key of the target, for the
// exact state of a group is kept there, whether or not its target is; create,
// where they do not fix the target's id too; and a field that writes what match
// or where reads, the target's partition key or its id.
func declare(cfg *Config, sourceKey, targetKey []string) (*declaration, processors.Problems) {
	c := &checker{}
	for _, p := range accumulator.Check(cfg.Spec) {
		c.problems.Add(p.Field, "%s", p.Message)
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
		c.problems.Add("aggregate", "%v", err)
		return d, c.problems
	}
	d.rule, d.reads = rule, rule.SourceReads()
	c.checkTargetKey(d, targetKey)
	c.checkWrites(d)
	return d, c.problems
}

func (c *checker) paths(field string, pointers []string) []document.Path {
	paths := make([]document.Path, 0, len(pointers))
	for _, p := range pointers {
		path, err := document.ParsePointer(p)
		if err != nil {
			c.problems.Add(field, "has a partition key path that cannot be read: %v", err)
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
		c.problems.Add("aggregate.match", "does not say which partition the target of a group is in, where the exact state of the group is kept: its %s is not fixed; "+
			"match it with a field of the source, or fix it in aggregate.where (%s = ...). Its partition key is %s",
			fields, fields, strings.Join(all, ", "))
	}
}

// checkWrites refuses fields that write what cannot be changed. What decides about the
// fields themselves is refused by accumulator.Check.
func (c *checker) checkWrites(d *declaration) {
	for _, path := range d.rule.TargetWrites() {
		for _, key := range d.targetKey {
			if path.Overlaps(key) {
				c.problems.Add("aggregate.set."+path.String(), "writes the target's partition key, which cannot be changed")
			}
		}
	}
}
