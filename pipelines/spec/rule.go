package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store/accumulator"
	"github.com/millrace/millrace/store/query"
)

// CascadeConfig returns what a spec says in the words of the processor. The
// containers and the pipeline's identity are left out.
func CascadeConfig(s *PipelineSpec) cascade.Config {
	c := s.Cascade
	return cascade.Config{
		SourceWhere: s.Source.Where.String(), TargetWhere: c.Where.String(), Each: c.Each.String(),
		Match: matchOf(c.Match), Set: pairsOf(c.Set), OnSourceDelete: cascade.OnSourceDelete(c.OnSourceDelete),
	}
}

// matchOf orders match by the field of the target. One that equals several fields of
// the source is in as many pairs.
func matchOf(match ByField[SourceFields]) []cascade.Pair {
	pairs := make([]cascade.Pair, 0, len(match))
	for _, m := range match {
		for _, source := range m.Value {
			pairs = append(pairs, cascade.Pair{Target: m.Field.String(), Source: source.String()})
		}
	}
	return pairs
}

// pairsOf orders pairs by the field of the target.
func pairsOf(fields ByField[document.Field]) []cascade.Pair {
	pairs := make([]cascade.Pair, 0, len(fields))
	for _, f := range fields {
		pairs = append(pairs, cascade.Pair{Target: f.Field.String(), Source: f.Value.String()})
	}
	return pairs
}

// AggregateSpec returns what a spec says in the words of accumulators, as a generation
// that begins now has it.
func AggregateSpec(s *PipelineSpec) accumulator.Spec {
	a := s.Aggregate
	spec := accumulator.Spec{
		SourceWhere: s.Source.Where.String(), Each: a.Each.String(), TargetWhere: a.Where.String(), Create: a.Create, Expressions: query.MeaningNow,
	}
	for _, m := range a.Match {
		spec.Match = append(spec.Match, accumulator.Pair{Target: m.Field.String(), Source: m.Value.String()})
	}
	for i := range a.Set {
		f := &a.Set[i].Value
		function, expr := f.function()
		field := accumulator.Field{
			Path: a.Set[i].Field.String(), Func: function, Expr: expr.String(), Each: f.Each.String(), Where: f.Where.String(), N: f.Latest, By: f.By.String(),
		}
		for _, kept := range f.Fields {
			field.Fields = append(field.Fields, kept.String())
		}
		spec.Set = append(spec.Set, field)
	}
	return spec
}

// function returns what a field is, and the expression that it is of.
func (f *AggregateField) function() (accumulator.Func, Expression) {
	switch {
	case f.Count:
		return accumulator.Count, Expression{}
	case !f.Sum.IsZero():
		return accumulator.Sum, f.Sum
	case !f.Min.IsZero():
		return accumulator.Min, f.Min
	case !f.Max.IsZero():
		return accumulator.Max, f.Max
	case !f.Avg.IsZero():
		return accumulator.Avg, f.Avg
	case f.Latest != 0:
		return accumulator.Latest, Expression{}
	}
	return "", Expression{}
}

// projectTables returns the tables of a spec in the words of the processor.
func projectTables(s *PipelineSpec) ([]project.Table, error) {
	tables := make([]project.Table, 0, len(s.Project.Tables))
	for i := range s.Project.Tables {
		t := &s.Project.Tables[i]
		table := project.Table{Name: t.Name, Where: t.Where.String(), Each: t.Each.String(), Key: slices.Clone(t.Key), Index: t.Index, PartitionBy: t.PartitionBy}
		for _, c := range t.Columns {
			typ, err := project.ParseType(c.Type)
			if err != nil {
				return nil, fmt.Errorf("table %s: column %s: %w", t.Name, c.Name, err)
			}
			table.Columns = append(table.Columns, project.Column{Name: c.Name, Expr: c.Expr.String(), Type: typ})
		}
		tables = append(tables, table)
	}
	return tables, nil
}

// ProjectConfig returns what a spec says in the words of the processor. The
// source, the sink, the limits and the pipeline's identity are left out.
func ProjectConfig(s *PipelineSpec) (project.Config, error) {
	tables, err := projectTables(s)
	return project.Config{SourceWhere: s.Source.Where.String(), OnExpire: project.OnExpire(s.Project.OnExpire), Tables: tables}, err
}

// cascade applies the rules of cascades to p, and returns whether it keeps them.
func (c *Checker) cascade(p *KnownPipeline, source, target *knownContainer) bool {
	cfg := CascadeConfig(&p.Spec)
	problems := cascade.Check(&cfg, source.spec.PartitionKey, target.spec.PartitionKey)
	for _, problem := range problems {
		field := "spec." + problem.Field
		at := p.places.at(field)
		if strings.HasPrefix(problem.Field, "cascade.set.") || strings.HasPrefix(problem.Field, "cascade.match.") {
			at = p.places.key(field)
		}
		c.findings.Add(at, "%s %s", field, problem.Message)
	}
	return len(problems) == 0
}
