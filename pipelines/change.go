package pipelines

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/processors/project"
)

// change is what a declaration means for the record that is there.
type change uint8

const (
	changeNew         change = iota // there is no record
	changeNone                      // it says the same in the same words
	changeWords                     // it says the same in other words
	changeLive                      // the generation goes on in another way
	changeContainers                // a container was made again
	changeMeaning                   // what was written does not hold any more
	changeExpressions               // it says the same, and expressions mean something else
)

// change tells what a declaration, and the containers that it finds, mean for r.
func (r *Record) change(spec *PipelineSpec, b *bound, opts *ApplyOptions) change {
	if r.ID == "" {
		return changeNew
	}
	same := r.sameContainers(b)
	switch {
	case r.turned() && r.Spec.goesOnAs(spec, opts):
		return changeExpressions
	case same && r.Spec.sameText(spec):
		return changeNone
	case same && r.Spec.sameMeaning(spec):
		return changeWords
	case r.Spec.goesOnAs(spec, opts):
		if same {
			return changeLive
		}
		return changeContainers
	}
	return changeMeaning
}

// goesOnAs tells whether what was written under s holds under next too: they
// differ in no more than
//   - onError;
//   - the consistency of an aggregate, whose accumulators are exact under both;
//   - columns that a projection gains, which are filled beside what changes, unless a
//     backfill is asked for; its indexes and its commit interval.
func (s *PipelineSpec) goesOnAs(next *PipelineSpec, opts *ApplyOptions) bool {
	was, is := s.meaning(), next.meaning()
	was.OnError = is.OnError
	if was.Aggregate != nil && is.Aggregate != nil {
		was.Aggregate.Consistency = is.Aggregate.Consistency
	}
	if was.Project != nil && is.Project != nil {
		if opts.Backfill && gainsColumns(was.Project, is.Project) {
			return false
		}
		was.Project.widen(is.Project)
	}
	return bytes.Equal(was.json(), is.json())
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

// gainsColumns tells whether a table of next has a column that p does not have.
func gainsColumns(p, next *Project) bool {
	return slices.ContainsFunc(next.Tables, func(is NamedTable) bool {
		at := slices.IndexFunc(p.Tables, func(was NamedTable) bool { return was.Name == is.Name })
		return at >= 0 && !hasAll(p.Tables[at].Columns, is.Columns)
	})
}

// hasAll tells whether columns hold each of some, with the same meaning.
func hasAll(columns, some Columns) bool {
	return !slices.ContainsFunc(some, func(c NamedColumn) bool { return !slices.Contains(columns, c) })
}

// sameSink tells whether two projections write to the same place, so that the rows
// of one stand in the way of the other's.
func (p *Project) sameSink(other *Project) bool {
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
	return bytes.Equal(x.json(), y.json())
}

// reshapes tells whether the rows of s have no place among those of next, which
// are written to the same tables.
func (s *PipelineSpec) reshapes(next *PipelineSpec) bool {
	if s.Project == nil || next.Project == nil || !s.Project.sameSink(next.Project) {
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

// RefusedError says that declarations are right, and that to apply them would
// surprise: nothing was changed. Its text says which options make them welcome.
type RefusedError struct{ Findings Findings }

func (e *RefusedError) Error() string { return e.Findings.Error() }

// refuse returns what of the declarations may not be done without being asked for,
// nil if all may.
func (o *ApplyOptions) refuse(declared *Resources, w World) error {
	if o.Backfill && o.FromNow {
		return errors.New("a backfill begins with what is there, --from-now leaves it out: choose one")
	}
	var findings Findings
	for i := range declared.Pipelines {
		d := &declared.Pipelines[i]
		var there Record
		if at := slices.IndexFunc(w.Pipelines, func(r Record) bool { return r.Metadata() == d.Metadata }); at >= 0 {
			there = w.Pipelines[at]
		}
		what := changeContainers // those that are not there are made
		if b, gone := d.bound(w.Containers); gone == "" || there.ID == "" {
			what = there.change(&d.Spec, &b, o)
		}
		if reason := o.refusal(&there, d, what); reason != "" {
			findings.add(d.places.at("spec"), "%s", reason)
		}
	}
	if len(findings) == 0 {
		return nil
	}
	return &RefusedError{findings.sorted()}
}

// refusal says why a pipeline may not be registered as declared, "" if it may.
func (o *ApplyOptions) refusal(there *Record, d *Pipeline, what change) string {
	switch {
	case what == changeNone || what == changeWords || what == changeLive:
		return ""
	case o.FromNow && d.Spec.Kind() == AggregateKind:
		return fmt.Sprintf("pipeline %s: an aggregate cannot begin now: it would not know the items that are there, and its fields would be wrong from the first of them that changes; apply it with --backfill", d.Metadata)
	case o.FromNow && what == changeMeaning && there.Spec.reshapes(&d.Spec):
		return fmt.Sprintf("pipeline %s: the rows that are there do not fit into the tables as declared: another key, or columns that are gone or of another type; apply it with --backfill to build them anew", d.Metadata)
	case what == changeMeaning && !o.Backfill && !o.FromNow:
		return fmt.Sprintf("pipeline %s: what it has written as generation %d does not hold under this declaration%s; %s",
			d.Metadata, there.Generation, there.Spec.reasons(&d.Spec), d.Spec.choices())
	}
	return ""
}

// reasons says, in brackets, why the rows of a projection do not hold under next, as
// far as that is known.
func (s *PipelineSpec) reasons(next *PipelineSpec) string {
	if s.Project == nil || next.Project == nil {
		return ""
	}
	was, errWas := projectConfig(s.meaning())
	is, errIs := projectConfig(next.meaning())
	if reasons := project.Rebuild(&was, &is); errWas == nil && errIs == nil && len(reasons) > 0 {
		return " (" + strings.Join(reasons, ", ") + ")"
	}
	return ""
}

// choices says what an operator may choose when the meaning changes.
func (s *PipelineSpec) choices() string {
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
