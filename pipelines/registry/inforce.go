package registry

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

// FieldsPending is what is left when all is in force but the fields.
const FieldsPending = "the fields of its targets are being set"

// NotInForce says what is left to do until an aggregate is in force as declared in
// every partition of its target; "" if nothing is.
func (r *Record) NotInForce(b *Bound, rules map[uint32]store.RuleState, at Checkpoints) string {
	// In the order in which it comes about: the rule, with its index; who folds; the readers
	// beyond the commit from which on that is so; the fields, last.
	transactional := r.Spec.Aggregate.Consistency == spec.Transactional
	swept := true
	for _, p := range b.Target.Partitions {
		rule := rules[p.Number]
		partition := feed.Partition{Container: b.Target.ID, Number: p.Number}
		switch {
		case !rule.Active:
			return fmt.Sprintf("its rule is not in force in %s yet", partition)
		case rule.Folds != transactional:
			return fmt.Sprintf("%s is not %s yet", partition, r.Spec.Aggregate.Consistency)
		}
		swept = swept && rule.Published && rule.Swept
	}
	// Only where the owner can fold, which it does with the changes of its own partition. A
	// reader that has not passed that commit has yet to fold what lies before it.
	if b.Source.ID == b.Target.ID {
		since := make([]Start, 0, len(rules))
		for number, rule := range rules {
			since = append(since, Start{number, feed.Position{LSN: rule.Since}})
		}
		if !r.Passed(b, at, since) {
			return "its readers have not passed the commits that put its rule in force"
		}
	}
	if !swept {
		return FieldsPending
	}
	return ""
}

// RuleOf returns how a partition keeps an aggregate; the zero state if it does not know
// its generation yet.
func RuleOf(status *store.PartitionStatus, rec *Record) store.RuleState {
	at := slices.IndexFunc(status.Rules, func(r store.RuleState) bool {
		return r.Pipeline == rec.ID && r.Generation == rec.Generation
	})
	if at < 0 {
		return store.RuleState{}
	}
	return status.Rules[at]
}
