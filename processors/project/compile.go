package project

import (
	"errors"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// Projection is a compiled declaration: what its processors, a verification and a
// repair share. Safe for concurrent use.
type Projection struct {
	cfg Config
	*declaration
	limits    Limits
	container string          // name of the source, in Row.Source
	paths     []document.Path // of an item, whose change can change rows
	limiter   Limiter         // nil if the sink takes every row
}

// Compile checks cfg and returns the projection, or all problems joined.
func Compile(cfg Config) (*Projection, error) {
	if cfg.Source == nil || cfg.Sink == nil || cfg.Pipeline == "" {
		return nil, errors.New("project: pipeline, source and sink are required")
	}
	d, problems := declare(&cfg)
	if err := problems.Err(cfg.Pipeline); err != nil {
		return nil, err
	}
	limits, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Projection{cfg: cfg, declaration: d, limits: limits, container: cfg.Source.Info().Name}
	p.limiter, _ = cfg.Sink.(Limiter)
	p.collectPaths()
	return p, nil
}

// collectPaths collects the places whose change matters.
func (p *Projection) collectPaths() {
	if p.sourceWhere != nil {
		p.paths = append(p.paths, scope(nil).reads(p.sourceWhere, true)...)
	}
	for i := range p.tables {
		t := &p.tables[i]
		if t.where != nil {
			p.paths = append(p.paths, t.each.reads(t.where, true)...)
		}
		if len(t.each) > 0 {
			p.paths = append(p.paths, t.each.array())
		}
		for j := range t.columns {
			p.paths = append(p.paths, t.each.reads(t.columns[j].expr, false)...)
		}
	}
}

// touches says whether a change at pointer can change rows.
func (p *Projection) touches(pointer string) bool {
	for _, path := range p.paths {
		if path.Touched(pointer) {
			return true
		}
	}
	return false
}

// Schema returns what the sink has to know. It must not be changed.
func (p *Projection) Schema() *Schema { return &p.schema }

// Source returns the container of the items.
func (p *Projection) Source() *store.Container { return p.cfg.Source }

// Sink returns the sink that Compile was given.
func (p *Projection) Sink() Sink { return p.cfg.Sink }

// Resource names the lease of the processor of a source partition.
func (p *Projection) Resource(partition feed.Partition) processors.Resource {
	return processors.Resource{
		Pipeline: p.cfg.Pipeline, Generation: p.cfg.Generation, Role: processors.RoleSource, Partition: partition,
	}
}

// Reads returns the JSON pointers of the source that decide what the rows are,
// with * for elements.
func (p *Projection) Reads() []string {
	pointers := make([]string, len(p.paths))
	for i, path := range p.paths {
		pointers[i] = path.Pointer()
	}
	return pointers
}
