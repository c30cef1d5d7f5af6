package cascade

import (
	"errors"
	"math"
	"slices"
	"strconv"

	"golang.org/x/time/rate"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/tombstone"
)

// Cascade is a compiled declaration: what its processors, a verification and a
// repair share. Safe for concurrent use.
type Cascade struct {
	cfg Config
	*declaration
	limits Limits

	sourcePaths []document.Path // of a source, whose change can change copies
	targetPaths []document.Path // of a target, whose change can change what is right
	scope       scopeKind
	index       string // JSON pointer of the index that fan-outs use; "" if by key
	indexPair   int    // whose value is looked up in it
	rate        *rate.Limiter

	wish tombstone.Wish // for the source container
	kept []int          // of each pair of set, its index in wish.Fields
}

// scopeKind is how a fan-out finds the items that may hold copies.
type scopeKind uint8

const (
	byIndex scopeKind = iota
	byKey             // match fixes the target's partition key, and little else
)

// Compile checks cfg and returns the cascade, or all problems joined.
func Compile(cfg Config) (*Cascade, error) {
	if cfg.Source == nil || cfg.Target == nil || cfg.Pipeline == "" {
		return nil, errors.New("cascade: pipeline, source and target are required")
	}
	d, problems := declare(&cfg, cfg.Source.Info().Spec.PartitionKey, cfg.Target.Info().Spec.PartitionKey)
	if err := problems.Err(cfg.Pipeline); err != nil {
		return nil, err
	}
	limits, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cascade{cfg: cfg, declaration: d, limits: limits}
	c.collectPaths()
	c.chooseScope()
	c.planTombstones()
	if limits.FanOutRateMax > 0 {
		c.rate = rate.NewLimiter(rate.Limit(limits.FanOutRateMax), max(limits.FanOutRateMax, pageItemsLimit))
	}
	return c, nil
}

// collectPaths collects the places whose change matters.
func (c *Cascade) collectPaths() {
	for _, s := range c.set {
		c.sourcePaths = append(c.sourcePaths, s.source)
		c.targetPaths = append(c.targetPaths, slices.Concat(c.each, s.target))
	}
	for _, m := range c.match {
		c.targetPaths = append(c.targetPaths, slices.Concat(c.each, m.target))
	}
	if c.sourceWhere != nil {
		for _, p := range c.sourceWhere.Paths() {
			c.sourcePaths = append(c.sourcePaths, document.PathOf(p))
		}
	}
	if c.targetWhere != nil {
		for _, p := range c.targetWhere.Paths() {
			c.targetPaths = append(c.targetPaths, document.PathOf(p))
		}
	}
	// The paths of match and set lie in an element of the array. Those of where do not,
	// and come behind them.
	if len(c.each) > 0 {
		for i := range c.targetPaths[:len(c.set)+len(c.match)] {
			c.targetPaths[i] = slices.Insert(c.targetPaths[i], len(c.each), document.Step{All: true})
		}
	}
}

// chooseScope chooses how fan-outs find their items: the logical partition if match
// fixes the target's partition key and names nothing that is more selective, else
// the index on a matched field, by preference the one that holds the source's id.
func (c *Cascade) chooseScope() {
	c.indexPair = 0
	for i := range c.match {
		if c.match[i].names("/id") {
			c.indexPair = i
		}
	}
	if len(c.each) == 0 && c.coversTargetKey() {
		// A logical partition may hold many items of other sources. To go through it pays
		// only if the most selective field of match is a part of its key, or fixes the one
		// item by its id; else the index is shorter.
		inKey := slices.ContainsFunc(c.targetKey, func(p document.Path) bool {
			return p.Pointer() == c.match[c.indexPair].target.Pointer()
		})
		if inKey || c.match[c.indexPair].target.Pointer() == "/id" {
			c.scope = byKey
			return
		}
	}
	path := slices.Clone(c.each)
	if len(c.each) > 0 {
		path = append(path, document.Step{All: true})
	}
	c.index = append(path, c.match[c.indexPair].target...).Pointer()
}

// coversTargetKey says whether match fixes the target's whole partition key.
func (c *Cascade) coversTargetKey() bool {
	for _, key := range c.targetKey {
		if !slices.ContainsFunc(c.match, func(m matchPair) bool { return m.target.Pointer() == key.Pointer() }) {
			return false
		}
	}
	return true
}

// Index returns the index, such as /tags/*/id, that the target container must
// have for fan-outs; "" if none is needed.
func (c *Cascade) Index() string { return c.index }

// Source returns the container of the originals, Target that of the copies.
func (c *Cascade) Source() *store.Container { return c.cfg.Source }

// Target returns the container of the copies.
func (c *Cascade) Target() *store.Container { return c.cfg.Target }

// targets is where the copies of a source are: one scope in some partitions.
type targets struct {
	scope      store.Scope
	partitions []feed.Partition
	match      []store.Field
}

// targetsOf returns where the copies of a source are. ok is false if there can be
// none, because a component of its key is missing or null, or because fields differ
// that one field of a copy has to equal.
func (c *Cascade) targetsOf(source store.ItemRef) (p targets, ok bool) {
	p.match = make([]store.Field, len(c.match))
	for i := range c.match {
		p.match[i].Path = c.match[i].Target
	}
	// fix gives the value of a key's component to the fields of the target that are matched
	// with it. With customerId: [customerId, id] the source {customerId: k1, id: k2} fixes
	// customerId to k1 and to k2: no item can copy from it.
	fix := func(part *part, value []byte) bool {
		for _, i := range part.pairs {
			m := &p.match[i]
			if value == nil || m.Value != nil && !document.Equal(m.Value, value) {
				return false
			}
			m.Value = value
		}
		return true
	}
	components := source.Key.Components()
	for i := range c.sourceKey {
		if !fix(&c.sourceKey[i], appendComponent(nil, components[i])) {
			return p, false
		}
	}
	if !fix(&c.sourceID, document.AppendQuote(nil, source.ID)) {
		return p, false
	}
	if c.scope == byIndex {
		p.scope = store.Scope{Index: c.index, Value: p.match[c.indexPair].Value}
		p.partitions = c.cfg.Target.Partitions()
		return p, true
	}
	key := make([]any, len(c.targetKey))
	for i, path := range c.targetKey {
		at := slices.IndexFunc(c.match, func(m matchPair) bool { return m.target.Pointer() == path.Pointer() })
		v, err := component(p.match[at].Value)
		if err != nil {
			return p, false
		}
		key[i] = v
	}
	k, err := feed.NewPartitionKey(key...)
	if err != nil {
		return p, false
	}
	p.scope = store.Scope{Key: k}
	p.partitions = []feed.Partition{c.cfg.Target.PartitionFor(k)}
	return p, true
}

// appendComponent appends a component of a partition key as JSON; nil for one
// that is missing or null, by which nothing is matched.
func appendComponent(dst []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(dst, v)
	case string:
		return document.AppendQuote(dst, v)
	case float64:
		if math.Abs(v) < 1e21 {
			return strconv.AppendFloat(dst, v, 'f', -1, 64)
		}
		return strconv.AppendFloat(dst, v, 'e', -1, 64)
	}
	return nil
}
