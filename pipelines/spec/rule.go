package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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
		SourceWhere: s.Source.Where, TargetWhere: c.Where, Each: c.Each,
		Match: matchOf(c.Match), Set: pairsOf(c.Set), OnSourceDelete: cascade.OnSourceDelete(c.OnSourceDelete),
	}
}

// matchOf orders match by the field of the target. One that equals several fields of
// the source is in as many pairs.
func matchOf(match map[string]SourceFields) []cascade.Pair {
	pairs := make([]cascade.Pair, 0, len(match))
	for _, target := range slices.Sorted(maps.Keys(match)) {
		for _, source := range match[target] {
			pairs = append(pairs, cascade.Pair{Target: target, Source: source})
		}
	}
	return pairs
}

// pairsOf orders pairs by the field of the target.
func pairsOf(fields map[string]string) []cascade.Pair {
	pairs := make([]cascade.Pair, 0, len(fields))
	for _, target := range slices.Sorted(maps.Keys(fields)) {
		pairs = append(pairs, cascade.Pair{Target: target, Source: fields[target]})
	}
	return pairs
}

// AggregateSpec returns what a spec says in the words of accumulators, as a generation
// that begins now has it.
func AggregateSpec(s *PipelineSpec) accumulator.Spec {
	a := s.Aggregate
	spec := accumulator.Spec{SourceWhere: s.Source.Where, Each: a.Each, TargetWhere: a.Where, Create: a.Create, Expressions: query.MeaningNow}
	for _, target := range slices.Sorted(maps.Keys(a.Match)) {
		spec.Match = append(spec.Match, accumulator.Pair{Target: target, Source: a.Match[target]})
	}
	for _, path := range slices.Sorted(maps.Keys(a.Set)) {
		f := a.Set[path]
		function, expr := f.function()
		spec.Set = append(spec.Set, accumulator.Field{
			Path: path, Func: function, Expr: expr, Each: f.Each, Where: f.Where, N: f.Latest, By: f.By, Fields: slices.Clone(f.Fields),
		})
	}
	return spec
}

// function returns what a field is, and the expression that it is of.
func (f *AggregateField) function() (accumulator.Func, string) {
	switch {
	case f.Count:
		return accumulator.Count, ""
	case f.Sum != "":
		return accumulator.Sum, f.Sum
	case f.Min != "":
		return accumulator.Min, f.Min
	case f.Max != "":
		return accumulator.Max, f.Max
	case f.Avg != "":
		return accumulator.Avg, f.Avg
	case f.Latest != 0:
		return accumulator.Latest, ""
	}
	return "", ""
}

// projectTables returns the tables of a spec in the words of the processor.
func projectTables(s *PipelineSpec) ([]project.Table, error) {
	tables := make([]project.Table, 0, len(s.Project.Tables))
	for i := range s.Project.Tables {
		t := &s.Project.Tables[i]
		table := project.Table{Name: t.Name, Where: t.Where, Each: t.Each, Key: slices.Clone(t.Key), Index: t.Index, PartitionBy: t.PartitionBy}
		for _, c := range t.Columns {
			typ, err := project.ParseType(c.Type)
			if err != nil {
				return nil, fmt.Errorf("table %s: column %s: %w", t.Name, c.Name, err)
			}
			table.Columns = append(table.Columns, project.Column{Name: c.Name, Expr: c.Expr, Type: typ})
		}
		tables = append(tables, table)
	}
	return tables, nil
}

// ProjectConfig returns what a spec says in the words of the processor. The
// source, the sink, the limits and the pipeline's identity are left out.
func ProjectConfig(s *PipelineSpec) (project.Config, error) {
	tables, err := projectTables(s)
	return project.Config{SourceWhere: s.Source.Where, OnExpire: project.OnExpire(s.Project.OnExpire), Tables: tables}, err
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
