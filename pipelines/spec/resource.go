package spec

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// APIVersion is the version of the documents that this release reads.
const APIVersion = "millrace/v1"

// The kinds of documents.
const (
	KindContainer = "Container"
	KindPipeline  = "Pipeline"
	KindTest      = "Test" // read by testcase.Load alone
)

// DatabaseDefault is the database of a document that names none.
const DatabaseDefault = "default"

// Metadata names a resource.
type Metadata struct {
	// Name of the resource, unique among those of its kind in its database: of a pipeline or
	// test 1 to 63 letters, digits, - and _, the first a letter or digit; of a container 1 to 255
	// characters, but no control characters, / \ # ? and no space at the end.
	Name string `json:"name" yaml:"name"`
	// Database is the namespace of the resource and of the containers that it
	// names, itself named as a container may be. Default default.
	Database string `json:"database,omitempty" yaml:"database,omitempty"`
}

// String returns database/name.
func (m Metadata) String() string { return m.Database + "/" + m.Name }

// Title returns the name, with its database unless that is the default.
func (m Metadata) Title() string {
	if m.Database == DatabaseDefault {
		return m.Name
	}
	return m.String()
}

// Container is a document that declares a container.
type Container struct {
	// APIVersion is millrace/v1.
	APIVersion string `json:"apiVersion" yaml:"apiVersion"`
	// Kind is Container.
	Kind string `json:"kind" yaml:"kind"`
	// Metadata names the container.
	Metadata Metadata `json:"metadata" yaml:"metadata"`
	// Spec tells how the items of the container are kept.
	Spec store.ContainerSpec `json:"spec" yaml:"spec"`

	places places
}

// Pipeline is a document that declares a pipeline: one copy that is to be kept
// equal to its source.
type Pipeline struct {
	// APIVersion is millrace/v1.
	APIVersion string `json:"apiVersion" yaml:"apiVersion"`
	// Kind is Pipeline.
	Kind string `json:"kind" yaml:"kind"`
	// Metadata names the pipeline.
	Metadata Metadata `json:"metadata" yaml:"metadata"`
	// Spec tells what is copied, and where to.
	Spec PipelineSpec `json:"spec" yaml:"spec"`

	places places
}

// PipelineSpec tells what is copied, and where to: exactly one of cascade, aggregate
// and project.
type PipelineSpec struct {
	// Source is what is copied.
	Source Source `json:"source" yaml:"source"`
	// Cascade copies fields of each source item into the items that name it.
	Cascade *Cascade `json:"cascade,omitempty" yaml:"cascade,omitempty"`
	// Aggregate counts, sums or lists source items, or elements in them, in fields
	// of the items that they belong to.
	Aggregate *Aggregate `json:"aggregate,omitempty" yaml:"aggregate,omitempty"`
	// Project writes source items, or elements in them, as rows of tables.
	Project *Project `json:"project,omitempty" yaml:"project,omitempty"`
	// OnError is what becomes of the pipeline when a change cannot be processed:
	// park (its key waits as a dead letter, all others go on) or halt (the pipeline
	// stops at it until an operator acts). Default park.
	OnError OnError `json:"onError,omitempty" yaml:"onError,omitempty"`
}

// OnError is what becomes of a pipeline when a change cannot be processed.
type OnError string

// What becomes of a pipeline when a change cannot be processed. The zero value is
// Park.
const (
	Park OnError = "park" // its key waits as a dead letter, all others go on
	Halt OnError = "halt" // the pipeline stops at it until an operator acts
)

// Source is what a pipeline copies.
type Source struct {
	// Container holds the source items.
	Container string `json:"container" yaml:"container"`
	// Where restricts the source items: an expression of the SQL dialect, such as
	// type = "category". An item for which it is not true is, for the pipeline, not
	// there. Default: all items.
	Where Expression `json:"where,omitzero" yaml:"where,omitempty"`
}

// OnSourceDelete is what becomes of copies whose source was deleted.
type OnSourceDelete string

// What becomes of copies whose source was deleted. The zero value is Keep.
const (
	Keep   OnSourceDelete = "keep"   // the copies stay as they are
	Clear  OnSourceDelete = "clear"  // the set fields go; with each, the element goes
	Delete OnSourceDelete = "delete" // the items that hold the copies go; not with each
)

// Cascade copies fields of each source item into the items that name it.
type Cascade struct {
	// Into is the container of the items that hold the copies, the target.
	Into string `json:"into" yaml:"into"`
	// Each is the path of an array in the target's items whose elements are the
	// copies, such as tags. Default: the item itself holds the copy.
	Each document.Field `json:"each,omitzero" yaml:"each,omitempty"`
	// Match says how a copy names its source: field of the target (with each, of
	// the element): field of the source, or a list of its fields, all of which it
	// equals, such as customerId: [customerId, id]. Together with the source's where
	// it must fix the source's partition key and id. At most 32.
	Match ByField[SourceFields] `json:"match" yaml:"match"`
	// Where restricts the items that hold copies: an expression of the SQL dialect.
	// Default: all items of the target that have the match fields.
	Where Expression `json:"where,omitzero" yaml:"where,omitempty"`
	// Set says what is copied: field of the target (with each, of the element):
	// field of the source. A field that the source lacks is removed. At most 32; no
	// field has two writers.
	Set ByField[document.Field] `json:"set" yaml:"set"`
	// OnSourceDelete is keep, clear (the set fields go; with each, the element
	// goes) or delete (the items go; not with each). Default keep.
	OnSourceDelete OnSourceDelete `json:"onSourceDelete,omitempty" yaml:"onSourceDelete,omitempty"`
}

// Resources is what a set of files declares, in the order of the files.
type Resources struct {
	Containers []Container
	Pipelines  []Pipeline
	// Tests are there after testcase.Load; Load and Decode pass over them.
	Tests []Test
}

// places tells where the fields of a document stand: a value under its path, such
// as spec.cascade.set.name, a key under its path and a final "~".
type places map[string]Place

// at returns the place of field, or that of the nearest field around it.
func (p places) at(field string) Place {
	for {
		if at, ok := p[field]; ok {
			return at
		}
		if field == "" {
			return Place{}
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
}

// key returns the place of the key of field.
func (p places) key(field string) Place {
	if at, ok := p[field+"~"]; ok {
		return at
	}
	return p.at(field)
}

// Clone returns a copy of s that shares nothing with it.
func (s PipelineSpec) Clone() PipelineSpec {
	if s.Cascade != nil {
		c := *s.Cascade
		c.Match, c.Set = slices.Clone(c.Match), slices.Clone(c.Set)
		for i := range c.Match {
			c.Match[i].Value = slices.Clone(c.Match[i].Value)
		}
		s.Cascade = &c
	}
	if s.Aggregate != nil {
		s.Aggregate = s.Aggregate.clone()
	}
	if s.Project != nil {
		s.Project = s.Project.clone()
	}
	return s
}

// normalize fills the defaults of fields left out.
func (s *PipelineSpec) normalize() {
	if s.Cascade != nil && s.Cascade.OnSourceDelete == "" {
		s.Cascade.OnSourceDelete = Keep
	}
	if s.Aggregate != nil && s.Aggregate.Consistency == "" {
		s.Aggregate.Consistency = Eventual
	}
	if s.Project != nil {
		s.Project.normalize()
	}
}

// At returns the place of a field in its file, or that of the nearest field around it.
func (p *Pipeline) At(field string) Place { return p.places.at(field) }

// At returns the place of a field in its file, or that of the nearest field around it.
func (c *Container) At(field string) Place { return c.places.at(field) }
