package aggregate

import (
	"errors"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
	"github.com/millrace/millrace/store/query"
)

// Aggregate is a compiled declaration. Safe for concurrent use.
type Aggregate struct {
	cfg Config
	*declaration
	local bool // a source item and its targets are always in one logical partition
}

// Compile checks cfg and returns the aggregate, or all problems joined.
func Compile(cfg Config) (*Aggregate, error) {
	if cfg.Source == nil || cfg.Target == nil || cfg.Pipeline == "" {
		return nil, errors.New("aggregate: pipeline, source and target are required")
	}
	d, problems := declare(&cfg, cfg.Source.Info().Spec.PartitionKey, cfg.Target.Info().Spec.PartitionKey)
	if err := problems.Err(cfg.Pipeline); err != nil {
		return nil, err
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &Aggregate{cfg: cfg, declaration: d}
	a.local = cfg.Source.Info().ID == cfg.Target.Info().ID && d.sameKey()
	return a, nil
}

// Source returns the container of the members, Target that of the fields.
func (a *Aggregate) Source() *store.Container { return a.cfg.Source }

// Target returns the container of the fields.
func (a *Aggregate) Target() *store.Container { return a.cfg.Target }

// Rule is what the fields say of the members.
func (a *Aggregate) Rule() *accumulator.Rule { return a.rule }

// targetsOf returns the partitions in which members of a source partition can have
// targets.
func (a *Aggregate) targetsOf(source feed.Partition) []feed.Partition {
	if !a.local {
		return a.cfg.Target.Partitions()
	}
	// The log of one that was split is read to its end all the same, and says what is to be folded in those that came of it.
	info := a.cfg.Target.Info()
	var all []feed.Partition
	for _, p := range info.HeirsOf(source.Number) {
		all = append(all, feed.Partition{Container: source.Container, Number: p.Number})
	}
	return all
}

// partitionOf returns the partition of a group's target; ok is false if there can be no
// such target.
func (a *Aggregate) partitionOf(g accumulator.Group) (p feed.Partition, ok bool) {
	key, ok := a.rule.TargetKey(g, a.targetKey)
	if !ok {
		return p, false
	}
	return a.cfg.Target.PartitionFor(key), true
}

// targetRef returns the target of a group, if match and where fix it.
func (a *Aggregate) targetRef(g accumulator.Group) (ref store.ItemRef, ok bool) {
	if ref.ID, ok = a.rule.TargetID(g); ok {
		ref.Key, ok = a.rule.TargetKey(g, a.targetKey)
	}
	return ref, ok
}

// sameKey says whether the partition key of a target is that of its members: match
// relates each path of it to itself, or both wheres fix it alike. The containers
// are one.
func (d *declaration) sameKey() bool {
	spec := d.rule.Spec()
	for _, path := range d.targetKey {
		if !matchesItself(&spec, path) && !fixedAlike(&spec, path) {
			return false
		}
	}
	return true
}

// matchesItself says whether match relates a field of the target to the same field
// of the source item.
func matchesItself(spec *accumulator.Spec, path document.Path) bool {
	return slices.ContainsFunc(spec.Match, func(p accumulator.Pair) bool {
		target, err := document.ParseField(p.Target)
		if err != nil || target.Pointer() != path.Pointer() {
			return false
		}
		source, ok := itemField(spec, p.Source)
		return ok && source.Pointer() == path.Pointer()
	})
}

// itemField returns the field of the source item that the source of a pair names;
// ok is false if it is one of an element.
func itemField(spec *accumulator.Spec, text string) (path document.Path, ok bool) {
	path, err := document.ParseField(text)
	if err != nil {
		return nil, false
	}
	if name := path[0].Name; name == "item" || name == "c" || name == "root" {
		return path[1:], true
	}
	return path, spec.Each == ""
}

func fixedAlike(spec *accumulator.Spec, path document.Path) bool {
	source, target := fixedTo(spec.SourceWhere, path), fixedTo(spec.TargetWhere, path)
	return source != nil && target != nil && document.Equal(source, target)
}

// fixedTo returns the value to which a condition fixes a field, nil if to none.
func fixedTo(where string, path document.Path) []byte {
	if where == "" {
		return nil
	}
	e, err := query.ParseExpr(where)
	if err != nil {
		return nil
	}
	for _, eq := range e.Equalities() {
		if document.PathOf(eq.Path).Pointer() == path.Pointer() {
			return eq.Value
		}
	}
	return nil
}
