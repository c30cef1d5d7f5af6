package spec

import "github.com/millrace/millrace/store/accumulator"

// Turns names the expressions of a spec that could come to something else by
// query.MeaningNow than by query.MeaningTyped.
func (s *PipelineSpec) Turns() []string {
	var names []string
	look := func(name, text string, condition bool, in Scope) {
		if text == "" {
			return
		}
		if e, err := in.Parse(text); err == nil && e.Turns(condition) {
			names = append(names, name)
		}
	}
	if s.Aggregate == nil {
		look("source.where", s.Source.Where, true, Scope{})
	}
	switch {
	case s.Cascade != nil:
		look("cascade.where", s.Cascade.Where, true, Scope{})
	case s.Aggregate != nil:
		if rule, err := accumulator.Compile(AggregateSpec(s)); err == nil {
			names = rule.Turns()
		}
	case s.Project != nil:
		for i := range s.Project.Tables {
			t := &s.Project.Tables[i]
			members, err := scopeOf(t.Each)
			if err != nil {
				continue
			}
			look("project.tables."+t.Name+".where", t.Where, true, Scope{members.arrays, true})
			for j := range t.Columns {
				look("project.tables."+t.Name+".columns."+t.Columns[j].Name, t.Columns[j].Expr, false, members)
			}
		}
	}
	return names
}
