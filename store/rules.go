package store

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/accumulator"
)

// RuleWish is an aggregate as the catalog wishes it in the partitions of a
// container.
type RuleWish struct {
	Pipeline   string           `json:"pipeline"`
	Generation uint32           `json:"generation"`
	Spec       accumulator.Spec `json:"spec"`
	// Source says that the owner folds the changes of its own items in the
	// writer's commit; the container is then also the target.
	Source bool `json:"source,omitempty"`
	// Published says that the fields of the targets are set from the accumulators.
	Published bool `json:"published,omitempty"`
}

// RuleSetting is an aggregate's rule in a partition's log. What a rule decides is
// a function of the log: it changes by control commits only.
type RuleSetting struct {
	RuleWish
	// Index is the number of the index that finds targets, 0 if their id is fixed.
	Index uint32 `json:"index,omitempty"`
	// Active says that accumulators take what is folded: the index is built.
	Active bool `json:"active,omitempty"`
	// Swept says that every target has had its fields set since Published.
	Swept bool `json:"swept,omitempty"`
	// Folds says that the owner folds, which it does from the commit that sets it
	// to the one that takes it away.
	Folds bool `json:"folds,omitempty"`
	// Since is the commit that put the rule in force as it is.
	Since feed.LSN `json:"since,omitempty"`
}

// RuleState tells how far a rule is in a partition.
type RuleState struct {
	Pipeline   string `json:"pipeline"`
	Generation uint32 `json:"generation"`
	Active     bool   `json:"active"`
	Folds      bool   `json:"folds"`
	Published  bool   `json:"published"`
	Swept      bool   `json:"swept"`
	// Since is the commit that put the rule in force as it is.
	Since feed.LSN `json:"since"`
}

// WantRule records an aggregate whose accumulators the container keeps, in place
// of earlier generations of the same pipeline. If a later one is there, or the same one is published
// and wish is not, whoever asks has seen an old registry: the former changes nothing, and the latter
// does not take its publication back.
func (c *Catalog) WantRule(ctx context.Context, database, name string, wish RuleWish) error {
	_, err := c.modify(ctx, database, name, func(i *ContainerInfo) error {
		for _, r := range i.Rules {
			switch {
			case r.Pipeline != wish.Pipeline:
			case r.Generation > wish.Generation:
				return nil
			case r.Generation == wish.Generation:
				wish.Published = wish.Published || r.Published
			}
		}
		i.Rules = slices.DeleteFunc(i.Rules, func(r RuleWish) bool { return r.Pipeline == wish.Pipeline })
		i.Rules = append(i.Rules, wish)
		return nil
	})
	return err
}

// DropRule forgets an aggregate in all its generations. Its accumulators go; the
// fields that it set stay.
func (c *Catalog) DropRule(ctx context.Context, database, name, pipeline string) error {
	_, err := c.modify(ctx, database, name, func(i *ContainerInfo) error {
		i.Rules = slices.DeleteFunc(i.Rules, func(r RuleWish) bool { return r.Pipeline == pipeline })
		return nil
	})
	return err
}

// wishRules returns the rules that c asks for, given the present ones, and whether
// they differ. A rule that needs an index gets one of its own.
func (s *Settings) wishRules(c *ContainerInfo) (changed bool) {
	var rules []RuleSetting
	for _, wish := range c.Rules {
		at := slices.IndexFunc(s.Rules, func(r RuleSetting) bool {
			return r.Pipeline == wish.Pipeline && r.Generation == wish.Generation
		})
		if at < 0 {
			rules = append(rules, s.newRule(wish))
			changed = true
			continue
		}
		rule := s.Rules[at]
		// The same generation is the same aggregate, so its accumulators stay. Only who folds,
		// and whether the fields are published, changes within one:
		//
		//	eventual to transactional    Source: the owner folds, once its index is there
		//	not published any more       not swept either: a later publication sweeps anew
		if !sameWish(&rule.RuleWish, &wish) {
			rule.RuleWish = wish
			rule.Folds = wish.Source && rule.Active
			rule.Swept = rule.Swept && wish.Published
			changed = true
		}
		rules = append(rules, rule)
	}
	for _, old := range s.Rules {
		if !slices.ContainsFunc(rules, func(r RuleSetting) bool {
			return r.Pipeline == old.Pipeline && r.Generation == old.Generation
		}) {
			changed = true
		}
	}
	if changed {
		s.Rules = rules
	}
	return changed
}

func sameWish(a, b *RuleWish) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// newRule returns the rule for a wish that is new here. It is active at once if
// no index needs to be built for it.
func (s *Settings) newRule(wish RuleWish) RuleSetting {
	rule := RuleSetting{RuleWish: wish, Active: true, Folds: wish.Source}
	compiled, err := accumulator.Compile(wish.Spec)
	if err != nil || compiled.FixesTargetID() || len(wish.Spec.Match) == 0 {
		return rule // one that does not compile is refused where it is used
	}
	path, err := document.ParseField(wish.Spec.Match[0].Target)
	if err != nil {
		return rule
	}
	index := IndexSetting{Number: s.NextNumber, Path: path.Pointer(), Where: wish.Spec.TargetWhere, Expressions: wish.Spec.Expressions, Rule: wish.Pipeline}
	s.NextNumber++
	s.Indexes = append(s.Indexes, index)
	rule.Index, rule.Active, rule.Folds = index.Number, false, false
	return rule
}

// IndexReady marks an index as built, and makes the rule that waited for it
// active; false if there is no such index any more.
func (s Settings) IndexReady(number uint32) (Settings, bool) {
	at := slices.IndexFunc(s.Indexes, func(i IndexSetting) bool { return i.Number == number })
	if at < 0 || s.Indexes[at].Ready {
		return s, false
	}
	s.Indexes = slices.Clone(s.Indexes)
	s.Indexes[at].Ready = true
	s.Rules = slices.Clone(s.Rules)
	for i := range s.Rules {
		if r := &s.Rules[i]; r.Index == number {
			r.Active, r.Folds = true, r.Source
		}
	}
	return s, true
}

// RuleSwept notes that every target of a rule has had its fields set; false if
// that is known, or if the rule is not published any more.
func (s Settings) RuleSwept(pipeline string, generation uint32) (Settings, bool) {
	at := slices.IndexFunc(s.Rules, func(r RuleSetting) bool {
		return r.Pipeline == pipeline && r.Generation == generation && r.Published && !r.Swept
	})
	if at < 0 {
		return s, false
	}
	s.Rules = slices.Clone(s.Rules)
	s.Rules[at].Swept = true
	return s, true
}

// RulesSince gives the rules that fold otherwise than in old the commit from which
// on they do.
func (s *Settings) RulesSince(old *Settings, lsn feed.LSN) {
	for i := range s.Rules {
		r := &s.Rules[i]
		at := slices.IndexFunc(old.Rules, func(o RuleSetting) bool { return o.Pipeline == r.Pipeline && o.Generation == r.Generation })
		if at < 0 || !sameRule(&old.Rules[at], r) {
			s.Rules = slices.Clone(s.Rules)
			s.Rules[i].Since = lsn
		}
	}
}

// sameRule says whether two settings of a rule fold alike.
func sameRule(a, b *RuleSetting) bool { return a.Active == b.Active && a.Folds == b.Folds }

// WantIndex records an index that a pipeline needs. It stays when the container's
// declaration drops it.
func (c *Catalog) WantIndex(ctx context.Context, database, name, path string) error {
	_, err := c.modify(ctx, database, name, func(i *ContainerInfo) error {
		if !slices.Contains(i.IndexesWanted, path) {
			i.IndexesWanted = append(i.IndexesWanted, path)
		}
		return nil
	})
	return err
}

// DropIndex takes back what WantIndex recorded, when no pipeline needs the index
// any more. One that the container's declaration names stays.
func (c *Catalog) DropIndex(ctx context.Context, database, name, path string) error {
	_, err := c.modify(ctx, database, name, func(i *ContainerInfo) error {
		i.IndexesWanted = slices.DeleteFunc(i.IndexesWanted, func(p string) bool { return p == path })
		return nil
	})
	return err
}
