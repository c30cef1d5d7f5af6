package spec

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/processors/project"
)

// GoesOnAs tells whether what was written under s holds under next too: they
// differ in no more than
//   - onError;
//   - the consistency of an aggregate, whose accumulators are exact under both;
//   - columns that a projection gains, which are filled beside what changes, unless
//     backfill says that one is asked for; its indexes and its commit interval.
func (s *PipelineSpec) GoesOnAs(next *PipelineSpec, backfill bool) bool {
	was, is := s.meaning(), next.meaning()
	// Make the two alike in all that may differ, then compare the rest: whatever
	// is added to a spec later makes a new generation unless it is named here.
	was.OnError = is.OnError
	if was.Aggregate != nil && is.Aggregate != nil {
		was.Aggregate.Consistency = is.Aggregate.Consistency
	}
	if was.Project != nil && is.Project != nil {
		if backfill && GainsColumns(was.Project, is.Project) {
			return false
		}
		was.Project.widen(is.Project)
	}
	return bytes.Equal(was.JSON(), is.JSON())
}

// widen takes over from next what a projection may gain while it runs.
func (p *Project) widen(next *Project) {
	if p.Sink.Parquet != nil && next.Sink.Parquet != nil {
		p.Sink.Parquet.CommitInterval = next.Sink.Parquet.CommitInterval
	}
	for i := range p.Tables {
		at := slices.IndexFunc(next.Tables, func(t NamedTable) bool { return t.Name == p.Tables[i].Name })
		if at < 0 {
			continue
		}
		was, is := &p.Tables[i], &next.Tables[at]
		was.Index = is.Index
		if hasAll(is.Columns, was.Columns) {
			was.Columns = is.Columns
		}
	}
}

// GainsColumns tells whether a table of next has a column that p does not have.
func GainsColumns(p, next *Project) bool {
	return slices.ContainsFunc(next.Tables, func(is NamedTable) bool {
		at := slices.IndexFunc(p.Tables, func(was NamedTable) bool { return was.Name == is.Name })
		return at >= 0 && !hasAll(p.Tables[at].Columns, is.Columns)
	})
}

// hasAll tells whether columns hold each of some, with the same meaning.
func hasAll(columns, some Columns) bool {
	return !slices.ContainsFunc(some, func(c NamedColumn) bool {
		is := columns.Column(c.Name)
		return is == nil || !is.Expr.Equal(c.Expr) || is.Type != c.Type
	})
}

// SameSink tells whether two projections write to the same place, so that the rows
// of one stand in the way of the other's.
func (p *Project) SameSink(other *Project) bool {
	a, b := p.clone(), other.clone()
	a.normalize()
	b.normalize()
	for _, c := range []*Project{a, b} {
		c.Tables, c.OnExpire = nil, ""
		if c.Sink.Parquet != nil {
			c.Sink.Parquet.CommitInterval = 0
		}
	}
	x, y := PipelineSpec{Project: a}, PipelineSpec{Project: b}
	return bytes.Equal(x.JSON(), y.JSON())
}

// Reshapes tells whether the rows of s have no place among those of next, which
// are written to the same tables.
func (s *PipelineSpec) Reshapes(next *PipelineSpec) bool {
	if s.Project == nil || next.Project == nil || !s.Project.SameSink(next.Project) {
		return false
	}
	was, is := s.meaning().Project, next.meaning().Project
	return slices.ContainsFunc(was.Tables, func(old NamedTable) bool {
		at := slices.IndexFunc(is.Tables, func(t NamedTable) bool { return t.Name == old.Name })
		return at >= 0 && !is.Tables[at].holds(&old)
	})
}

// holds tells whether a table takes the rows of another one as they are.
func (t *NamedTable) holds(rows *NamedTable) bool {
	if !slices.Equal(t.Key, rows.Key) || t.PartitionBy != rows.PartitionBy {
		return false
	}
	return !slices.ContainsFunc(rows.Columns, func(old NamedColumn) bool {
		is := t.Columns.Column(old.Name)
		return is == nil || is.Type != old.Type
	})
}

// Reasons says, in brackets, why the rows of a projection do not hold under next, as
// far as that is known.
func (s *PipelineSpec) Reasons(next *PipelineSpec) string {
	if s.Project == nil || next.Project == nil {
		return ""
	}
	was, errWas := ProjectConfig(s.meaning())
	is, errIs := ProjectConfig(next.meaning())
	if reasons := project.Rebuild(&was, &is); errWas == nil && errIs == nil && len(reasons) > 0 {
		return " (" + strings.Join(reasons, ", ") + ")"
	}
	return ""
}

// Choices says what an operator may choose when the meaning changes.
func (s *PipelineSpec) Choices() string {
	backfill, fromNow := "", ""
	switch s.Kind() {
	case CascadeKind:
		backfill, fromNow = "to set every copy anew", "to leave those that are there and follow changes from now on"
	case AggregateKind:
		return "apply it with --backfill to compute it anew (its fields stay as they are until that is done)"
	case ProjectKind:
		backfill, fromNow = "to build its rows anew", "to leave those that are there and write rows of what changes from now on"
	}
	return fmt.Sprintf("apply it with --backfill %s, or with --from-now %s", backfill, fromNow)
}

// Switches says whether next changes who folds the changes of an aggregate.
func (s *PipelineSpec) Switches(next *PipelineSpec) bool {
	return s.Aggregate != nil && next.Aggregate != nil && s.Aggregate.Consistency != next.Aggregate.Consistency
}

// Leaves tells what of former writings stays though next does not write it.
func (s *PipelineSpec) Leaves(next *PipelineSpec) []string {
	var left []string
	switch {
	case s.Cascade != nil && next.Cascade != nil && s.Cascade.Into == next.Cascade.Into && s.Cascade.Each.Equal(next.Cascade.Each):
		left = withoutKeys(s.Cascade.Set, next.Cascade.Set)
	case s.Aggregate != nil && next.Aggregate != nil && s.Aggregate.Into == next.Aggregate.Into:
		left = withoutKeys(s.Aggregate.Set, next.Aggregate.Set)
	case s.Kind() != next.Kind() && s.Target() != "":
		return []string{"what it has written into container " + s.Target() + " stays"}
	}
	var notes []string
	for _, field := range left {
		notes = append(notes, fmt.Sprintf("field %s is set no more; its values stay as they are", field))
	}
	return notes
}

func withoutKeys[V any](all, without ByField[V]) []string {
	var left []string
	for _, e := range all {
		if field := e.Field.String(); !without.has(field) {
			left = append(left, field)
		}
	}
	return left
}
