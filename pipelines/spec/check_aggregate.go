package spec

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/accumulator"
)

// aggregate applies the rules of aggregates that need its target to p, and returns
// whether it keeps them.
func (c *Checker) aggregate(p *KnownPipeline, target *knownContainer) bool {
	rule, err := accumulator.Compile(AggregateSpec(&p.Spec))
	if err != nil {
		c.findings.Add(p.places.at("spec.aggregate"), "spec.aggregate: %s", err)
		return false
	}
	before := len(c.findings)
	paths := make([]document.Path, len(target.spec.PartitionKey))
	for i, pointer := range target.spec.PartitionKey {
		if paths[i], err = document.ParsePointer(pointer); err != nil {
			c.findings.Add(p.places.at("spec.aggregate.into"), "spec.aggregate.into: the container has a partition key path that cannot be read: %s", err)
			return false
		}
	}
	c.targetKey(p, rule, paths)
	c.targetWrites(p, paths)
	if p.Spec.Aggregate.Consistency == Transactional {
		c.transactional(p, paths)
	}
	return before == len(c.findings)
}

// targetKey checks that a group says which partition its target is in.
func (c *Checker) targetKey(p *KnownPipeline, rule *accumulator.Rule, paths []document.Path) {
	a := p.Spec.Aggregate
	const field = "spec.aggregate.match"
	if !rule.FixesTargetKey(paths) {
		var missing []string
		for _, path := range paths {
			if !rule.FixesTargetKey([]document.Path{path}) {
				missing = append(missing, path.String())
			}
		}
		c.findings.Add(p.places.at(field), "%s does not say which partition the target is in: %s of %s is not fixed; the exact state of a group is kept there, "+
			"whether or not its item is. Match it with a field of the source, or fix it in aggregate.where (%s = ...)",
			field, strings.Join(missing, " and "), a.Into, missing[0])
	}
}

// targetWrites refuses a set that writes the identity of its target.
func (c *Checker) targetWrites(p *KnownPipeline, paths []document.Path) {
	for i := range p.Spec.Aggregate.Set {
		written := p.Spec.Aggregate.Set[i].Field
		field := "spec.aggregate.set." + written.String()
		if slices.ContainsFunc(paths, func(key document.Path) bool { return overlap(written.Path(), key) }) {
			c.findings.Add(p.places.key(field), "%s writes the target's partition key, which cannot be changed", field)
		}
	}
}

// transactional checks that a source item and its target are always in one logical
// partition.
func (c *Checker) transactional(p *KnownPipeline, paths []document.Path) {
	const field = "spec.aggregate.consistency"
	a, at := p.Spec.Aggregate, p.places.at("spec.aggregate.consistency")
	const way = "a transaction stays inside a logical partition. Write consistency: eventual"
	if a.Into != p.Spec.Source.Container {
		c.findings.Add(at, "%s: transactional, and the source is in container %s, the target in %s; %s", field, p.Spec.Source.Container, a.Into, way)
		return
	}
	var apart []string
	for _, path := range paths {
		if !p.Spec.sameInBoth(path) {
			apart = append(apart, path.String())
		}
	}
	if len(apart) > 0 {
		names := strings.Join(apart, " and ")
		c.findings.Add(at, "%s: transactional, and the target need not have the partition key of the source item: %s is not matched with itself; %s, or match {%s: %s}",
			field, names, way, apart[0], p.Spec.ownField(apart[0]))
	}
}

// ownField writes a field of the source item as match would.
func (s *PipelineSpec) ownField(field string) string {
	if !s.Aggregate.Each.IsZero() {
		return "item." + field
	}
	return field
}

// sameInBoth tells whether a path has the same value in a source item and in its
// target: match says so, or both wheres fix it alike.
func (s *PipelineSpec) sameInBoth(path document.Path) bool {
	members := scopeOf(s.Aggregate.Each)
	for _, m := range s.Aggregate.Match {
		if m.Field.Path().Pointer() != path.Pointer() {
			continue
		}
		if reads := members.refReads(m.Value); len(reads) == 1 && reads[0].Pointer() == path.Pointer() {
			return true
		}
	}
	for _, x := range s.Source.Where.equalities() {
		for _, y := range s.Aggregate.Where.equalities() {
			if named(x.Path).Pointer() == path.Pointer() && slices.Equal(x.Path, y.Path) && document.Equal(x.Value, y.Value) {
				return true
			}
		}
	}
	return false
}
