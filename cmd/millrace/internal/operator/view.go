package operator

import (
	"github.com/millrace/millrace/pipelines/plan"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"
)

// Withheld takes the place of a text that may quote what an item holds.
const Withheld = "why is told to who has credentials of the store, or its console: a key of an operator shows nothing of items"

func withhold(text *string) {
	if *text != "" {
		*text = Withheld
	}
}

// withoutItems takes from a status what may be of an item: errors of processors and sinks quote ids and values, rejected
// rows are quoted, and a fan-out is named for its item. What is left are names, states, counts and positions, and what
// owners say of logs and engines.
func withoutItems(s *status.Status) {
	for i := range s.Pipelines {
		p := &s.Pipelines[i]
		withhold(&p.Reason)
		if p.Sink != nil {
			withhold(&p.Sink.Error)
			p.Sink.Rejected = nil
		}
		if p.Verified != nil {
			withhold(&p.Verified.Reason)
		}
		for j := range p.FanOuts {
			p.FanOuts[j].Source = "an item"
			withhold(&p.FanOuts[j].LastError)
		}
		for j := range p.Processors {
			withhold(&p.Processors[j].Reason)
		}
	}
}

// onlyCounts takes from a report what is of single items.
func onlyCounts(r *verify.Report) {
	for i := range r.Pipelines {
		r.Pipelines[i].Differences = nil
		withhold(&r.Pipelines[i].Reason)
	}
}

// ownPart takes from a plan the fields of pipelines that it does not declare; samples were not made.
func ownPart(p *plan.Plan) {
	p.Graph = spec.FieldGraph{Fields: []spec.GraphField{}, Cycles: [][]int{}, Returns: [][]spec.ContainerStep{}}
}
