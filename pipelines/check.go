package pipelines

import (
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/store"
)

// World is what is there already, against which declarations are checked.
type World struct {
	Containers []store.ContainerInfo
	Pipelines  []Record
}

// Check returns what is wrong with r in the world w: Findings, or nil. It reads
// nothing else and changes nothing, so the same r and w give the same answer.
//
// A pipeline is checked against the containers of r and w, and against all other
// pipelines of both; one of w that r declares anew counts as r declares it.
// Refused is what cannot be argued to converge: a cascade whose match and where
// do not fix the source's whole partition key and id, a field set by two
// pipelines, a set that writes what its own match or where reads or a partition
// key, and cycles of fields that need not come to rest. Refused too is what would
// surprise: another partition key, number of partitions or unique keys for a
// container that exists.
func (r *Resources) Check(w World) error {
	c := newChecker(r, w)
	for i := range r.Containers {
		c.container(&r.Containers[i])
	}
	for _, p := range c.pipelines {
		if p.declared {
			c.pipeline(p)
		}
	}
	c.conflicts()
	c.cycles()
	return c.findings.sorted().Err()
}

// checker holds all containers and pipelines, declared and existing.
type checker struct {
	containers map[string]*knownContainer // by database/name
	pipelines  []*knownPipeline
	findings   Findings
}

type knownContainer struct {
	spec store.ContainerSpec
	info *store.ContainerInfo // nil if only declared
}

type knownPipeline struct {
	Metadata
	spec     PipelineSpec
	places   places
	declared bool   // in the files at hand, so findings can name a place
	shape    *shape // nil if the pipeline is itself wrong
}

func newChecker(r *Resources, w World) *checker {
	c := &checker{containers: map[string]*knownContainer{}}
	for i := range w.Containers {
		info := &w.Containers[i]
		c.containers[Metadata{info.Name, info.Database}.String()] = &knownContainer{info.Spec, info}
	}
	for i := range r.Containers {
		d := &r.Containers[i]
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
		c.pipelines = append(c.pipelines, &knownPipeline{Metadata: p.Metadata, spec: p.Spec, places: p.places, declared: true})
	}
	for i := range w.Pipelines {
		rec := &w.Pipelines[i]
		if !declared[rec.Metadata()] {
			p := &knownPipeline{Metadata: rec.Metadata(), spec: rec.Spec}
			p.shape = c.shapeOf(p)
			c.pipelines = append(c.pipelines, p)
		}
	}
	return c
}

// container checks a declared container against the one of that name that exists.
func (c *checker) container(d *Container) {
	info := c.containers[d.Metadata.String()].info
	if info == nil {
		return
	}
	at := d.places.at("metadata.name")
	if info.State == store.ContainerDeleting {
		c.findings.add(at, "container %s is being deleted; apply again when it is gone (millrace get containers)", d.Metadata)
		return
	}
	field := info.Spec.FixedDifference(&d.Spec)
	if field == "" {
		return
	}
	is, wish := fixed(&info.Spec, field), fixed(&d.Spec, field)
	c.findings.add(d.places.at("spec."+field),
		"spec.%s of container %s is %s and cannot be changed to %s; keep it, or declare a container of another name and import the items there",
		field, d.Metadata, is, wish)
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
func (c *checker) pipeline(p *knownPipeline) {
	if p.spec.Cascade == nil {
		return // a finding of the decoder
	}
	source := c.find(p, "spec.source.container", p.spec.Source.Container)
	target := c.find(p, "spec.cascade.into", p.spec.Cascade.Into)
	if source == nil || target == nil {
		return
	}
	if c.rules(p, source, target) {
		p.shape = c.shapeOf(p)
	}
}

// find returns the container that a field of p names.
func (c *checker) find(p *knownPipeline, field, name string) *knownContainer {
	if name == "" {
		return nil // a finding of the decoder
	}
	if k := c.containers[Metadata{name, p.Database}.String()]; k != nil {
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
	c.findings.add(p.places.at(field), "%s: container %s/%s does not exist%s", field, p.Database, name, hint)
	return nil
}

// conflicts finds fields that two pipelines set.
func (c *checker) conflicts() {
	sets := c.setPaths()
	for i, p := range c.pipelines {
		for _, q := range c.pipelines[:i] {
			if p.shape == nil || q.shape == nil || p.shape.target != q.shape.target || disjoint(p.shape.targetIs, q.shape.targetIs, sets[p.shape.target]) {
				continue
			}
			for _, mine := range p.shape.sets {
				for _, other := range q.shape.sets {
					if overlap(mine.target, other.target) {
						c.conflict(p, q, mine, other)
					}
				}
			}
		}
	}
}

// conflict reports that mine of p and other of q are one field. Pipelines that
// exist come after those declared, so p may be the one without a place.
func (c *checker) conflict(p, q *knownPipeline, mine, other setField) {
	if !p.declared && !q.declared {
		return // refused when the later one was applied, or by neither
	}
	if !p.declared {
		p, q, mine, other = q, p, other, mine
	}
	where := ""
	if q.declared {
		where = " at " + q.places.key(other.yaml).String()
	}
	c.findings.add(p.places.key(mine.yaml), "%s: field %s of %s is set by pipeline %s too%s; a field has one source",
		mine.yaml, mine.target, p.shape.target, q.Metadata, where)
}
