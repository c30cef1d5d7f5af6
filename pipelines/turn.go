package pipelines

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
	"github.com/millrace/millrace/store/query"
)

// turned tells whether the generation was begun when expressions meant something else,
// and this makes a difference to it: what it wrote does not hold any more.
func (r *Record) turned() bool {
	return r.ID != "" && r.Expressions < query.MeaningNow && len(r.Spec.turns()) > 0
}

// turns names the expressions of a spec that could come to something else by
// query.MeaningNow than by query.MeaningTyped.
func (s *PipelineSpec) turns() []string {
	var names []string
	look := func(name, text string, condition bool, in scope) {
		if text == "" {
			return
		}
		if e, err := in.parse(text); err == nil && e.Turns(condition) {
			names = append(names, name)
		}
	}
	if s.Aggregate == nil {
		look("source.where", s.Source.Where, true, scope{})
	}
	switch {
	case s.Cascade != nil:
		look("cascade.where", s.Cascade.Where, true, scope{})
	case s.Aggregate != nil:
		if rule, err := accumulator.Compile(aggregateSpec(s)); err == nil {
			names = rule.Turns()
		}
	case s.Project != nil:
		for i := range s.Project.Tables {
			t := &s.Project.Tables[i]
			members, err := scopeOf(t.Each)
			if err != nil {
				continue
			}
			look("project.tables."+t.Name+".where", t.Where, true, scope{members.arrays, true})
			for j := range t.Columns {
				look("project.tables."+t.Name+".columns."+t.Columns[j].Name, t.Columns[j].Expr, false, members)
			}
		}
	}
	return names
}

// turn brings a pipeline to what expressions mean now. One whose results could differ
// gets a new generation, which computes all anew, and is named; for the others the two
// meanings are the same, and that is noted.
func (s *steward) turn(ctx context.Context, rec *Record, containers []store.ContainerInfo) error {
	names := rec.Spec.turns()
	if len(names) == 0 {
		return s.note(ctx, rec, "a pipeline means the same by the present meaning of expressions", func(now *Record) { now.Expressions = query.MeaningNow })
	}
	if _, gone := rec.bound(containers); gone != "" {
		return nil // it does nothing, and is told to
	}
	declared := rec.Document()
	outcome, err := s.registry.applyPipeline(ctx, &declared, &ApplyOptions{})
	if err != nil {
		return err
	}
	s.log.WarnContext(ctx, "a pipeline is computed anew, because =, != and IN between values of different types mean something else since this release",
		slog.String("pipeline", rec.Metadata().String()), slog.Uint64("generation", uint64(outcome.Generation)),
		slog.String("expressions", strings.Join(names, ", ")), slog.String("notes", strings.Join(outcome.Notes, "; ")))
	return nil
}

// older tells whether a record has to be looked at by turn.
func older(r Record) bool { return r.Expressions < query.MeaningNow }

// hasOlder tells whether one of the pipelines has.
func (w *World) hasOlder() bool { return slices.ContainsFunc(w.Pipelines, older) }
