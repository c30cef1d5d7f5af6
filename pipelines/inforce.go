package pipelines

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// unsettledSwept is what is left when all is in force but the fields.
const unsettledSwept = "the fields of its targets are being set"

// unsettled says what is left to do until an aggregate is in force as declared in
// every partition of its target; "" if nothing is.
func (r *Record) unsettled(b *bound, rules map[uint32]store.RuleState, at positions) string {
	transactional := r.Spec.Aggregate.Consistency == Transactional
	swept := true
	for _, p := range b.target.Partitions {
		rule := rules[p.Number]
		partition := feed.Partition{Container: b.target.ID, Number: p.Number}
		switch {
		case !rule.Active:
			return fmt.Sprintf("its rule is not in force in %s yet", partition)
		case rule.Folds != transactional:
			return fmt.Sprintf("%s is not %s yet", partition, r.Spec.Aggregate.Consistency)
		}
		swept = swept && rule.Published && rule.Swept
	}
	if b.source.ID == b.target.ID {
		since := make([]Start, 0, len(rules))
		for number, rule := range rules {
			since = append(since, Start{number, feed.Position{LSN: rule.Since}})
		}
		if !r.passed(b, at, since) {
			return "its readers have not passed the commits that put its rule in force"
		}
	}
	if !swept {
		return unsettledSwept
	}
	return ""
}

func ruleOf(status *store.PartitionStatus, rec *Record) store.RuleState {
	at := slices.IndexFunc(status.Rules, func(r store.RuleState) bool {
		return r.Pipeline == rec.ID && r.Generation == rec.Generation
	})
	if at < 0 {
		return store.RuleState{}
	}
	return status.Rules[at]
}
