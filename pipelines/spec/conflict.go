package spec

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// conflicts finds fields that two pipelines set.
func (c *Checker) conflicts() {
	sets := c.SetPaths()
	for i, p := range c.Pipelines {
		for _, q := range c.Pipelines[:i] {
			for _, mine := range p.Shapes {
				for _, other := range q.Shapes {
					// Two cascades may set one field of different items:
					//
					//	where: type = "product"   set: {name: name}
					//	where: type = "tag"       set: {name: name}
					if mine.Target == other.Target && !disjoint(mine.targetIs, other.targetIs, sets[mine.Target]) {
						c.conflict(p, q, mine, other)
					}
				}
			}
		}
	}
}

// conflict reports the fields that mine of p and other of q both set. Pipelines
// that exist come after those declared, so p may be the one without a place.
func (c *Checker) conflict(p, q *KnownPipeline, mine, other *Shape) {
	if !p.declared && !q.declared {
		return // refused when the later one was applied, or by neither
	}
	if !p.declared {
		p, q, mine, other = q, p, other, mine
	}
	if mine.whole != nil && other.whole != nil {
		return // a table written by two, see sameTables; rejects may share a container
	}
	for _, a := range mine.written() {
		for _, b := range other.written() {
			if !overlap(a.target, b.target) {
				continue
			}
			field, why := a.target, "a field has one source"
			// Whole items have no path, so the message names the field of the other one.
			if mine.whole != nil {
				field = b.target
			}
			if mine.whole != nil || other.whole != nil {
				why = "a projection writes whole items, and would undo it"
			}
			c.findings.Add(p.places.key(a.yaml), "%s: field %s of %s is set by pipeline %s too%s; %s", a.yaml, field, mine.Target, q.Metadata, q.at(b.yaml), why)
		}
	}
}

// written returns what stands for all that the shape writes in items that are
// there.
func (s *Shape) written() []*setField {
	if s.whole != nil {
		return []*setField{s.whole}
	}
	var all []*setField
	for i := range s.sets {
		if !s.sets[i].made {
			all = append(all, &s.sets[i])
		}
	}
	return all
}

// sinks finds places that two pipelines write.
func (c *Checker) sinks() {
	for i, p := range c.Pipelines {
		for _, q := range c.Pipelines[:i] {
			a, b := p, q
			if !a.declared {
				// A finding stands at a declared pipeline, for only that has a place.
				a, b = q, p // those that exist come after those declared
			}
			if !a.declared || a.Spec.Project == nil || b.Spec.Project == nil {
				continue
			}
			// Of files the folder counts, whatever the tables in it are called; of tables the name.
			// A sink of files and one of tables have no place in common.
			if a.Spec.Project.Sink.Parquet != nil && b.Spec.Project.Sink.Parquet != nil {
				c.sameFiles(a, b)
			} else {
				c.sameTables(a, b)
			}
		}
	}
}

// sameFiles refuses that p and q keep files in one place, or one inside the
// other's: each knows the files there by itself.
func (c *Checker) sameFiles(p, q *KnownPipeline) {
	store, path := p.Spec.Project.Sink.Parquet.place()
	otherStore, other := q.Spec.Project.Sink.Parquet.place()
	if store != otherStore || !holds(path, other) && !holds(other, path) {
		return
	}
	// One that is not absolute lies below a root of each worker. Where that is to an absolute one
	// is known only with the root; apply knows it, and has put it before (registry.Placed).
	if strings.HasPrefix(path, "/") != strings.HasPrefix(other, "/") {
		return
	}
	field := "spec.project.sink.parquet"
	c.findings.Add(p.places.at(field), "%s: the files are in %s%s, where pipeline %s has its own%s; a pipeline needs a place of its own, such as a folder beside the other's",
		field, store, path, q.Metadata, q.at(field))
}

// holds tells whether a folder is another one or holds it.
func holds(folder, other string) bool {
	return folder == other || folder == "." || folder == "" || strings.HasPrefix(other, strings.TrimSuffix(folder, "/")+"/")
}

// place names a store and the folder in it, in one form each.
func (s *ParquetSink) place() (store, path string) {
	if s.S3 == nil {
		return "directory ", filepath.ToSlash(filepath.Clean(s.Path))
	}
	// The sink of a pipeline that exists may have been written without the defaults: they are
	// filled into a copy.
	s3 := *s.S3
	s3.normalize()
	return fmt.Sprintf("bucket %s of %s: /", s3.Bucket, s3.Endpoint), strings.Trim(s3.Prefix, "/")
}

// at says where a field of p stands, if p is declared.
func (p *KnownPipeline) at(field string) string {
	if !p.declared {
		return ""
	}
	return " at " + p.places.key(field).String()
}

// sameTables refuses that p and q write a table of one sink, and that the rejects of one are
// among the rows of the other.
func (c *Checker) sameTables(p, q *KnownPipeline) {
	sink := p.Spec.Project.Sink.place(p.Database)
	if sink == "" || sink != q.Spec.Project.Sink.place(q.Database) {
		return
	}
	for i := range p.Spec.Project.Tables {
		for j := range q.Spec.Project.Tables {
			name := p.Spec.Project.Tables[i].Name
			if name == q.Spec.Project.Tables[j].Name {
				field := "spec.project.tables." + name
				c.findings.Add(p.places.key(field), "%s: table %s in %s is written by pipeline %s too%s; a table has one source", field, name, sink, q.Metadata, q.at(field))
			}
		}
	}
	const rejects = "spec.project.sink.container.rejects"
	if name := p.Spec.rejects(); name != "" && q.hasTable(name) {
		c.findings.Add(p.places.at(rejects), "%s: %s is a table of pipeline %s%s; rejects need a container without rows", rejects, name, q.Metadata, q.at("spec.project.tables."+name))
	}
	if name := q.Spec.rejects(); name != "" && p.hasTable(name) {
		field := "spec.project.tables." + name
		c.findings.Add(p.places.key(field), "%s: pipeline %s keeps its rejects in %s%s; rejects need a container without rows", field, q.Metadata, name, q.at(rejects))
	}
}

// rejects returns the container for the rejects of a projection, "" if there is none.
func (s *PipelineSpec) rejects() string {
	if s.Project.Sink.Container == nil {
		return ""
	}
	return s.Project.Sink.Container.Rejects
}

// hasTable tells whether a projection writes the table of that name.
func (p *KnownPipeline) hasTable(name string) bool {
	return slices.ContainsFunc(p.Spec.Project.Tables, func(t NamedTable) bool { return t.Name == name })
}

// place names what a sink of tables writes into, in one form; "" if it is none.
func (s *Sink) place(database string) string {
	switch {
	case s.Container != nil:
		return "database " + database
	case s.Postgres != nil:
		// Two variables can lead to one database, and only the workers know their values. The sink
		// itself refuses a table that another pipeline has (tableName in pgsink/build.go).
		return fmt.Sprintf("schema %s of the database in %s", cmp.Or(s.Postgres.Schema, PostgresSchemaDefault), s.Postgres.DSNEnv)
	}
	return ""
}
