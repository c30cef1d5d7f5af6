package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
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
	m.Source.Where = Scope{}.same(m.Source.Where)
	if c := m.Cascade; c != nil {
		c.Where, c.Each = Scope{}.same(c.Where), sameField(c.Each)
		c.Match, c.Set = sameMatch(c.Match), sameFields(c.Set)
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
	members, err := scopeOf(a.Each)
	if err != nil {
		return // as it is written
	}
	a.Each, a.Where = sameField(a.Each), Scope{}.same(a.Where)
	match := make(map[string]string, len(a.Match))
	for target, source := range a.Match {
		match[sameField(target)] = members.sameRef(source)
	}
	set := make(map[string]AggregateField, len(a.Set))
	for path, f := range a.Set {
		of, err := scopeOf(a.Each, f.Each)
		if err != nil {
			set[path] = f
			continue
		}
		for _, text := range []*string{&f.Sum, &f.Min, &f.Max, &f.Avg, &f.By, &f.Where} {
			*text = of.same(*text)
		}
		for i := range f.Fields {
			f.Fields[i] = of.sameRef(f.Fields[i])
		}
		f.Each = sameField(f.Each)
		set[sameField(path)] = f
	}
	a.Match, a.Set = match, set
}

func (p *Project) meaning() {
	if sink := p.Sink.Parquet; sink != nil {
		if sink.S3 != nil {
			sink.S3.Prefix = strings.Trim(sink.S3.Prefix, "/")
		} else {
			sink.Path = filepath.Clean(sink.Path)
		}
	}
	slices.SortFunc(p.Tables, func(a, b NamedTable) int { return strings.Compare(a.Name, b.Name) })
	for i := range p.Tables {
		t := &p.Tables[i]
		members, err := scopeOf(t.Each)
		if err != nil {
			continue // as it is written
		}
		t.Each, t.Where = sameField(t.Each), Scope{members.arrays, true}.same(t.Where)
		for j := range t.Columns {
			c := &t.Columns[j]
			c.Expr = members.same(c.Expr)
			if typ, err := project.ParseType(c.Type); err == nil {
				c.Type = typ.String()
			}
		}
	}
}

// same returns an expression in the scope in its one form.
func (s Scope) same(text string) string {
	if text == "" {
		return ""
	}
	if e, err := s.Parse(text); err == nil {
		return e.String()
	}
	return text
}

// sameRef returns a path in the scope in its one form, which begins with the name
// of its root.
func (s Scope) sameRef(text string) string {
	root, path, ok := s.ref(text)
	if !ok {
		return text
	}
	return slices.Concat(document.Path{{Name: elementRoots[root][0]}}, path).String()
}

func sameField(text string) string {
	if p, err := document.ParseField(text); err == nil {
		return p.String()
	}
	return text
}

// sameMatch returns match in its one form. The order of fields that one field equals
// says nothing.
func sameMatch(match map[string]SourceFields) map[string]SourceFields {
	same := make(map[string]SourceFields, len(match))
	for _, target := range slices.Sorted(maps.Keys(match)) {
		fields := make(SourceFields, len(match[target]))
		for i, source := range match[target] {
			fields[i] = sameField(source)
		}
		slices.Sort(fields)
		same[sameField(target)] = fields
	}
	return same
}

func sameFields(fields map[string]string) map[string]string {
	same := make(map[string]string, len(fields))
	for _, target := range slices.Sorted(maps.Keys(fields)) {
		same[sameField(target)] = sameField(fields[target])
	}
	return same
}
