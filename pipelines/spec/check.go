package spec

import (
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/store"
)

// Existing is what is there already, against which declarations are checked.
type Existing struct {
	Containers []store.ContainerInfo
	Pipelines  []Pipeline
}

// Check returns what is wrong with r beside w: Findings, or nil. It reads
// nothing else and changes nothing, so the same r and w give the same answer.
//
// A pipeline is checked against the containers of r and w, and against all other
// pipelines of both; one of w that r declares anew counts as r declares it.
// Refused is what cannot be argued to converge: a cascade whose match and where
// do not fix the source's whole partition key and id, an aggregate whose match and
// where do not fix its target's whole partition key (with create, its id too), a
// transactional one that leaves the logical partition, a field set by two
// pipelines, a table written by two, a set that writes what its own match or where
// reads or a partition key, and cycles of fields that need not come to rest.
// Refused too is what would surprise: another partition key, number of partitions
// or unique keys for a container that exists; a container in the database
// store.SystemDatabase, and a pipeline that writes to it: nobody but Millrace writes there.
func (r *Resources) Check(w Existing) error {
	c := newChecker(r, w)
	for i := range r.Containers {
		c.container(&r.Containers[i])
	}
	// Each by itself first: that gives those that are right their shapes, which are compared
	// behind it. One that is wrong has no shape, so it is told of once.
	for _, p := range c.Pipelines {
		if p.declared {
			c.pipeline(p)
		}
	}
	c.conflicts()
	c.sinks()
	c.cycles()
	return c.findings.Sorted().Err()
}

// Checker holds all containers and pipelines, declared and existing.
type Checker struct {
	containers map[string]*knownContainer // by database/name
	Pipelines  []*KnownPipeline
	findings   Findings
}

type knownContainer struct {
	spec store.ContainerSpec
	info *store.ContainerInfo // nil if only declared
}

// KnownPipeline is a pipeline that is declared or exists.
type KnownPipeline struct {
	Metadata
	Spec     PipelineSpec
	places   places
	declared bool     // in the files at hand, so findings can name a place
	Shapes   []*Shape // none if the pipeline is itself wrong
}

func newChecker(r *Resources, w Existing) *Checker {
	c := &Checker{containers: map[string]*knownContainer{}}
	for i := range w.Containers {
		info := &w.Containers[i]
		c.containers[Metadata{Name: info.Name, Database: info.Database}.String()] = &knownContainer{info.Spec, info}
	}
	for i := range r.Containers {
		d := &r.Containers[i]
		// The spec is the declared one, as it will be when all is applied. info stays, for what
		// cannot be changed is compared with it.
		known := &knownContainer{spec: d.Spec}
		if there := c.containers[d.Metadata.String()]; there != nil {
			known.info = there.info
		}
		c.containers[d.Metadata.String()] = known
	}
	declared := map[Metadata]bool{}
	for i := range r.Pipelines {
		p := &r.Pipelines[i]
		declared[p.Metadata] = true
		c.Pipelines = append(c.Pipelines, &KnownPipeline{Metadata: p.Metadata, Spec: p.Spec, places: p.places, declared: true})
	}
	// These come behind the declared ones; conflict and sinks rest on that. They were checked
	// when they were applied, so they have their shapes at once.
	for i := range w.Pipelines {
		there := &w.Pipelines[i]
		if !declared[there.Metadata] {
			p := &KnownPipeline{Metadata: there.Metadata, Spec: there.Spec}
			p.Shapes = c.ShapesOf(p)
			c.Pipelines = append(c.Pipelines, p)
		}
	}
	return c
}

// container checks a declared container against the one of that name that exists.
func (c *Checker) container(d *Container) {
	if d.Metadata.Database == store.SystemDatabase {
		c.findings.Add(d.places.at("metadata.database"),
			"container %s would be in the database %s, which is Millrace's own; declare it in another database",
			d.Metadata, store.SystemDatabase)
		return
	}
	info := c.containers[d.Metadata.String()].info
	if info == nil {
		return
	}
	at := d.places.at("metadata.name")
	if info.State == store.ContainerDeleting {
		c.findings.Add(at, "container %s is being deleted; apply again when it is gone (millrace get containers)", d.Metadata)
		return
	}
	field := info.Spec.FixedDifference(&d.Spec)
	if field == "" {
		return
	}
	is, declared := fixed(&info.Spec, field), fixed(&d.Spec, field)
	c.findings.Add(d.places.at("spec."+field),
		"spec.%s of container %s is %s and cannot be changed to %s; keep it, or declare a container of another name and import the items there",
		field, d.Metadata, is, declared)
}

// fixed prints a field that cannot be changed.
func fixed(s *store.ContainerSpec, field string) string {
	switch field {
	case "partitionKey":
		return "[" + strings.Join(s.PartitionKey, ", ") + "]"
	case "uniqueKeys":
		all := make([]string, len(s.UniqueKeys))
		for i, paths := range s.UniqueKeys {
			all[i] = "[" + strings.Join(paths, ", ") + "]"
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	return strconv.Itoa(s.Partitions)
}

// pipeline checks one declared pipeline by itself.
func (c *Checker) pipeline(p *KnownPipeline) {
	// What a pipeline writes is in its own database. Copies would go among the dead letters
	// that are kept there, or over them.
	if p.Database == store.SystemDatabase && (p.Spec.Target() != "" || p.Spec.Tables() != nil) {
		c.findings.Add(p.places.at("metadata.database"),
			"pipeline %s would write to the database %s, which is Millrace's own; declare it in another database, with the containers that it names. A projection into files or PostgreSQL may read %[2]s",
			p.Metadata, store.SystemDatabase)
		return
	}
	source := c.find(p, "spec.source.container", p.Spec.Source.Container)
	ok := source != nil
	switch {
	case p.Spec.Cascade != nil:
		// Both containers are looked for before the answer, so that both are told of if neither is
		// there.
		target := c.find(p, "spec.cascade.into", p.Spec.Cascade.Into)
		ok = ok && target != nil && c.cascade(p, source, target)
	case p.Spec.Aggregate != nil:
		target := c.find(p, "spec.aggregate.into", p.Spec.Aggregate.Into)
		ok = ok && target != nil && c.aggregate(p, target)
	case p.Spec.Project != nil:
		ok = c.project(p) && ok
	}
	if ok {
		p.Shapes = c.ShapesOf(p)
	}
}

// find returns the container that a field of p names.
func (c *Checker) find(p *KnownPipeline, field, name string) *knownContainer {
	return c.findAt(p, p.places.at(field), field, name)
}

// findAt is find with the place of what names the container.
func (c *Checker) findAt(p *KnownPipeline, at Place, field, name string) *knownContainer {
	if name == "" {
		return nil // a finding of the decoder
	}
	if k := c.containers[Metadata{Name: name, Database: p.Database}.String()]; k != nil {
		return k
	}
	var names []string
	for key := range c.containers {
		if db, n, _ := strings.Cut(key, "/"); db == p.Database {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	hint := didYouMean(name, names)
	if hint == "" {
		hint = "; declare it with kind: Container"
	}
	c.findings.Add(at, "%s: container %s/%s does not exist%s", field, p.Database, name, hint)
	return nil
}
