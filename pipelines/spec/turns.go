package spec

import "github.com/millrace/millrace/store/accumulator"

// Turns names the expressions of a spec that could come to something else by
// query.MeaningNow than by query.MeaningTyped.
func (s *PipelineSpec) Turns() []string {
	if s.Aggregate != nil {
		rule, err := accumulator.Compile(AggregateSpec(s))
		if err != nil {
			return nil
		}
		return rule.Turns()
	}
	var names []string
	s.expressions(func(at string, e *Expression, _ Scope, condition bool) {
		if e.expr.Turns(condition) {
			names = append(names, at)
		}
	})
	return names
}
