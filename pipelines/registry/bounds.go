package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

// Bounds are the containers within which somebody may apply pipelines who may not apply all.
//
// A pipeline is within them if it writes to containers of Targets alone, and reads one of Sources or
// Targets. What it reads is bounded too: who may have fields of any container copied into one that
// they may read can read them all. Both hold for the pipeline as it is declared and, where one of its
// name is registered, as that is: who replaces a pipeline ends what it kept. Files, buckets and databases
// are no containers, so a projection into them is outside.
//
// A container that is declared must be one of these, and be as it is declared already: none is made or
// changed. What a pipeline within the bounds asks of its containers by itself is asked all the same:
// an index or a rule of a target, tombstones of a source.
type Bounds struct {
	Targets []spec.Metadata `json:"targets"`
	Sources []spec.Metadata `json:"sources,omitempty"`
}

// OutsideError says that declarations are beyond the bounds of who applies them: nothing was changed.
type OutsideError struct{ Findings spec.Findings }

func (e *OutsideError) Error() string { return e.Findings.Error() }

// Check returns *OutsideError if any declaration is outside. A nil Bounds has no limit.
func (b *Bounds) Check(declared *spec.Resources, w World) error {
	if b == nil {
		return nil
	}
	var findings spec.Findings
	for i := range declared.Containers {
		d := &declared.Containers[i]
		var there *store.ContainerInfo
		at := slices.IndexFunc(w.Containers, func(c store.ContainerInfo) bool {
			return c.Database == d.Metadata.Database && c.Name == d.Metadata.Name
		})
		if at >= 0 {
			there = &w.Containers[at]
		}
		findings = append(findings, b.container(d, there)...)
	}
	for i := range declared.Pipelines {
		d := &declared.Pipelines[i]
		var there *Record
		if at := slices.IndexFunc(w.Pipelines, func(r Record) bool { return r.Metadata() == d.Metadata }); at >= 0 {
			there = &w.Pipelines[at]
		}
		findings = append(findings, b.pipeline(d, there)...)
	}
	return outsideError(findings)
}

func outsideError(findings spec.Findings) error {
	if len(findings) == 0 {
		return nil
	}
	return &OutsideError{findings.Sorted()}
}

// container tells why a container may not be declared, beside the one that is there; nil if there is none.
func (b *Bounds) container(d *spec.Container, there *store.ContainerInfo) (findings spec.Findings) {
	if b == nil {
		return nil
	}
	switch {
	case !b.reads(d.Metadata):
		findings.Add(d.At("metadata.name"), "container %s is none of %s", d.Metadata, names(b.Targets, b.Sources))
	case there == nil || there.State != store.ContainerReady:
		findings.Add(d.At("metadata.name"), "container %s is not there, and containers may not be made", d.Metadata)
	case !SameSpec(&there.Spec, &d.Spec):
		findings.Add(d.At("metadata.name"), "container %s is not as it is declared, and containers may not be changed", d.Metadata)
	}
	return findings
}

// pipeline tells why a pipeline may not be declared, beside the record of its name; nil or a zero one if there is
// none.
func (b *Bounds) pipeline(d *spec.Pipeline, there *Record) (findings spec.Findings) {
	if b == nil {
		return nil
	}
	for _, why := range b.outside(d.Metadata.Database, &d.Spec) {
		findings.Add(d.At(why.field), "pipeline %s %s", d.Metadata, why.text)
	}
	if there == nil || there.ID == "" {
		return findings
	}
	for _, g := range there.Generations() {
		for _, why := range b.outside(there.Database, &g.Spec) {
			findings.Add(d.At("metadata.name"), "pipeline %s is registered already, and that one %s", d.Metadata, why.text)
		}
	}
	return findings
}

// beyond is a field of a pipeline that is outside, and why.
type beyond struct{ field, text string }

func (b *Bounds) outside(database string, s *spec.PipelineSpec) (all []beyond) {
	named := func(name string) spec.Metadata { return spec.Metadata{Name: name, Database: database} }
	if source := named(s.Source.Container); !b.reads(source) {
		all = append(all, beyond{"spec.source.container", fmt.Sprintf("reads container %s, and those that may be read are %s", source, names(b.Targets, b.Sources))})
	}
	field, written := "spec."+string(s.Kind())+".into", s.Tables()
	switch target := s.Target(); {
	case target != "":
		written = append(written, target)
	case len(written) > 0:
		field = "spec.project.tables"
	default:
		all = append(all, beyond{"spec.project.sink", fmt.Sprintf("writes to %s, which is no container, and may write to %s alone", s.Destination(), names(b.Targets))})
	}
	for _, name := range written {
		if target := named(name); !slices.Contains(b.Targets, target) {
			all = append(all, beyond{field, fmt.Sprintf("writes to container %s, and may write to %s alone", target, names(b.Targets))})
		}
	}
	return all
}

// reads tells whether a container may be read.
func (b *Bounds) reads(m spec.Metadata) bool {
	return slices.Contains(b.Targets, m) || slices.Contains(b.Sources, m)
}

// names lists containers, each once.
func names(of ...[]spec.Metadata) string {
	var all []string
	for _, m := range slices.Concat(of...) {
		if name := m.String(); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return strings.Join(all, ", ")
}
