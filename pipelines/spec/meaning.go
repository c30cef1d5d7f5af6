package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/processors/project"
)

// SameText tells whether two specs are written alike.
func (s *PipelineSpec) SameText(other *PipelineSpec) bool { return bytes.Equal(s.JSON(), other.JSON()) }

// SameMeaning tells whether two specs copy the same in the same way, however
// their expressions and paths are written.
func (s *PipelineSpec) SameMeaning(other *PipelineSpec) bool {
	return bytes.Equal(s.meaning().JSON(), other.meaning().JSON())
}

// JSON returns the spec as JSON, the same for the same spec.
func (s *PipelineSpec) JSON() []byte {
	data, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("pipelines: spec %+v cannot be encoded: %v", s, err))
	}
	return data
}

// meaning returns the spec with every expression, path and type in its one form,
// every default filled in, and the tables in the order of their names.
func (s *PipelineSpec) meaning() *PipelineSpec {
	m := s.Clone()
	m.normalize()
	if m.OnError == "" {
		m.OnError = Park
	}
	// The parsed form is printed in one way, whatever was written:
	//
	//	(type="tag")   type = "tag"   item.type = "tag"   ->   type = "tag"
	m.expressions(func(_ string, e *Expression, _ Scope, _ bool) { e.text = e.expr.String() })
	if c := m.Cascade; c != nil {
		c.Each, c.Match, c.Set = sameField(c.Each), sameMatch(c.Match), sameFields(c.Set, sameField)
	}
	if m.Aggregate != nil {
		m.Aggregate.meaning()
	}
	if m.Project != nil {
		m.Project.meaning()
	}
	return &m
}

func (a *Aggregate) meaning() {
	members := scopeOf(a.Each)
	a.Match = sameFields(a.Match, members.sameRef)
	var set ByField[AggregateField]
	for i := range a.Set {
		f := a.Set[i].Value
		of := scopeOf(a.Each, f.Each)
		for j := range f.Fields {
			f.Fields[j] = of.sameRef(f.Fields[j])
		}
		f.Each = sameField(f.Each)
		set.put(sameField(a.Set[i].Field), f)
	}
	a.Each, a.Set = sameField(a.Each), set
}

func (p *Project) meaning() {
	if sink := p.Sink.Parquet; sink != nil {
		if sink.S3 != nil {
			sink.S3.Prefix = strings.Trim(sink.S3.Prefix, "/")
		} else {
			sink.Path = filepath.Clean(sink.Path)
		}
	}
	// The order of tables means nothing. That of columns does: it is the one in
	// which files and tables have them.
	slices.SortFunc(p.Tables, func(a, b NamedTable) int { return strings.Compare(a.Name, b.Name) })
	for i := range p.Tables {
		t := &p.Tables[i]
		t.Each = sameField(t.Each)
		for j := range t.Columns {
			c := &t.Columns[j]
			if typ, err := project.ParseType(c.Type); err == nil {
				c.Type = typ.String()
			}
		}
	}
}

// sameRef returns a path in the scope in its one form, which begins with the name
// of its root.
func (s Scope) sameRef(f document.Field) document.Field {
	root, path, _ := s.ref(f)
	return document.FieldOf(slices.Concat(document.Path{{Name: elementRoots[root][0]}}, path))
}

// sameField returns a path in its one form.
func sameField(f document.Field) document.Field {
	if f.IsZero() {
		return f
	}
	return document.FieldOf(f.Path())
}

// sameMatch returns match in its one form. The order of fields that one field equals
// says nothing.
func sameMatch(match ByField[SourceFields]) ByField[SourceFields] {
	var same ByField[SourceFields]
	for _, m := range match {
		fields := make(SourceFields, len(m.Value))
		for i, source := range m.Value {
			fields[i] = sameField(source)
		}
		slices.SortFunc(fields, func(a, b document.Field) int { return strings.Compare(a.String(), b.String()) })
		same.put(sameField(m.Field), fields)
	}
	return same
}

// sameFields returns fields of the target and of the source in their one form, those of
// the source as form says.
func sameFields(fields ByField[document.Field], form func(document.Field) document.Field) ByField[document.Field] {
	var same ByField[document.Field]
	for _, f := range fields {
		same.put(sameField(f.Field), form(f.Value))
	}
	return same
}
