package spec

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/processors/project/pgsink"
)

// checkProject applies the rules of projections that need no containers.
func (d *Decoder) checkProject(s *PipelineSpec) {
	cfg, err := ProjectConfig(s)
	if err == nil {
		cfg.Sink, err = s.Project.Sink.idle()
	}
	if err != nil {
		d.findings.Add(d.places.at("spec.project"), "spec.project: %s", err)
		return
	}
	if cfg.Sink != nil {
		defer func() { _ = cfg.Sink.Close() }() // it holds nothing
	}
	for _, problem := range project.Check(&cfg) {
		field := "spec." + problem.Field
		at := d.places.at(field)
		for i := range s.Project.Tables {
			t := &s.Project.Tables[i]
			// The value of a table begins at its first field, often a line below. What is said of
			// all of it points at its name, and so does what is said of a column.
			if name := "spec.project.tables." + t.Name; field == name || strings.HasPrefix(field, name+".columns.") {
				at = d.places.key(field)
			}
		}
		d.findings.Add(at, "%s %s", field, problem.Message)
	}
	for i := range s.Project.Tables {
		t := &s.Project.Tables[i]
		field := "spec.project.tables." + t.Name
		if t.PartitionBy != "" && s.Project.Sink.Parquet == nil {
			d.findings.Add(d.places.key(field+".partitionBy"), "%s.partitionBy has no meaning here: only the files of a parquet sink are divided", field)
		}
		if len(t.Index) > 0 && s.Project.Sink.Postgres == nil {
			d.findings.Add(d.places.key(field+".index"), "%s.index has no meaning here: only a postgres sink keeps indexes; those of a container are declared with it", field)
		}
	}
}

// idle returns a sink that is only asked what it can hold; nil for containers,
// which are checked where they are known. It touches neither disk nor network.
func (s *Sink) idle() (project.Sink, error) {
	switch {
	case s.Parquet != nil: // files are the same in a bucket
		// New opens nothing: it holds the place, and is asked for its limits alone.
		return parquetsink.New(parquetsink.NewDir(s.Parquet.Path), parquetsink.Config{})
	case s.Postgres != nil:
		return pgsink.New(pgsink.Config{DSNEnv: s.Postgres.DSNEnv, Schema: s.Postgres.Schema})
	}
	return nil, nil
}

// project applies the rules of projections that need containers to p, and returns
// whether it keeps them. Only a sink of containers has such.
func (c *Checker) project(p *KnownPipeline) bool {
	sink := p.Spec.Project.Sink.Container
	if sink == nil {
		return true
	}
	before := len(c.findings)
	for i := range p.Spec.Project.Tables {
		t := &p.Spec.Project.Tables[i]
		field := "spec.project.tables." + t.Name
		at := p.places.key(field)
		if t.Name == p.Spec.Source.Container {
			c.findings.Add(at, "%s: %s is the source of the pipeline; rows are whole items, and would be copied again without end. Name another container", field, t.Name)
		} else if known := c.findAt(p, at, field, t.Name); known != nil {
			c.rowKey(p, t, known.spec.PartitionKey)
		}
	}
	if sink.Rejects != "" {
		c.rejects(p, sink.Rejects)
	}
	return before == len(c.findings)
}

// rowKey checks that the key of a row says which item of a container it is.
func (c *Checker) rowKey(p *KnownPipeline, t *NamedTable, paths []string) {
	field := "spec.project.tables." + t.Name
	key := "[" + strings.Join(paths, ", ") + "]"
	var names []string // of the partition key
	for _, pointer := range paths {
		path, err := document.ParsePointer(pointer)
		if err != nil || len(path) != 1 {
			c.findings.Add(p.places.key(field), "%s: the partition key of container %s is %s; a row has no fields within fields, so it cannot say where it belongs", field, t.Name, key)
			return
		}
		name := path[0].Name
		switch {
		case name == "id":
			continue // which is made of the key, if it is no column
		case t.Columns.Column(name) == nil:
			c.findings.Add(p.places.at(field+".columns"), "%s.columns has no %s; the partition key of container %s is %s", field, name, t.Name, key)
		case !slices.Contains(t.Key, name):
			c.findings.Add(p.places.at(field+".key"), "%s.key has no %s; the partition key of container %s is %s, and a row is found by its key", field, name, t.Name, key)
		}
		names = append(names, name)
	}
	c.rowID(p, t, append(names, "id"))
}

// rowID checks the column id of a row: with it, key is all that an item has as its
// identity, and nothing else.
func (c *Checker) rowID(p *KnownPipeline, t *NamedTable, identity []string) {
	id := t.Columns.Column("id")
	if id == nil {
		return
	}
	field := "spec.project.tables." + t.Name
	for _, name := range t.Key {
		if !slices.Contains(identity, name) {
			c.findings.Add(p.places.at(field+".key"), "%s.key has %s beside id; a row is an item, which its partition key and id identify: let key be [%s], or give the column id another name", field, name, strings.Join(identity, ", "))
			return
		}
	}
	if !slices.Contains(t.Key, "id") {
		c.findings.Add(p.places.at(field+".key"), "%s.key has no id; a row is an item, which its partition key and id identify: let key be [%s], or give the column id another name", field, strings.Join(identity, ", "))
	}
	if typ, err := project.ParseType(id.Type); err == nil && typ.Kind != project.KindAny && typ.Kind != project.KindString {
		c.findings.Add(p.places.at(field+".columns.id.type"), "%s.columns.id.type is %s; the id of an item is a string", field, typ)
	}
}

// rejectPaths can be the partition key of a container of rejects.
var rejectPaths = []string{"/id", "/pipeline", "/table", "/column"}

// rejects checks the container for rows that cannot be.
func (c *Checker) rejects(p *KnownPipeline, name string) {
	const field = "spec.project.sink.container.rejects"
	at := p.places.at(field)
	if name == p.Spec.Source.Container || slices.ContainsFunc(p.Spec.Project.Tables, func(t NamedTable) bool { return t.Name == name }) {
		c.findings.Add(at, "%s: %s is the source or a table of the pipeline; rejects need a container of their own", field, name)
		return
	}
	known := c.find(p, field, name)
	if known == nil {
		return
	}
	for _, path := range known.spec.PartitionKey {
		if !slices.Contains(rejectPaths, path) {
			c.findings.Add(at, "%s: the partition key of container %s has %s, which rejects do not have; it may be of %s", field, name, path, oneOf(rejectPaths))
		}
	}
}
