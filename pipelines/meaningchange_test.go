package pipelines_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/query"
)

// older makes a record be as the release before wrote it, which knew one meaning of
// expressions, and the rule that it asks for.
func (n *node) older(t *testing.T, name string) {
	t.Helper()
	kv, err := n.js.KeyValue(t.Context(), "millrace_pipelines")
	if err != nil {
		t.Fatal(err)
	}
	entry, err := kv.Get(t.Context(), "pipeline.default."+name)
	if err != nil {
		t.Fatal(err)
	}
	var rec map[string]any
	if err := json.Unmarshal(entry.Value(), &rec); err != nil {
		t.Fatal(err)
	}
	delete(rec, "expressions")
	rec["version"] = 2
	if rule, ok := rec["rule"].(map[string]any); ok {
		delete(rule, "expressions")
	}
	data, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Update(t.Context(), entry.Key(), data, entry.Revision()); err != nil {
		t.Fatal(err)
	}
	r := n.record(t, name)
	if r.Rule == nil {
		return
	}
	wish := store.RuleWish{Pipeline: r.ID, Generation: r.Generation, Spec: *r.Rule}
	if err := n.client.Catalog().WantRule(t.Context(), "default", "customer", wish); err != nil {
		t.Fatal(err)
	}
}

// A pipeline that was registered when values of different types could not be compared
// is computed anew by what they mean now, if that makes a difference; another one goes
// on as it is.
func TestPipelinesTurnToWhatExpressionsMean(t *testing.T) {
	t.Parallel()
	n := newIdleNode(t)
	n.apply(t, decode(t, shopContainers))
	n.apply(t, totals(t, `{orderCount: {count: true, where: 'total != "gift"'}, spent: {sum: total}}`, "eventual"))
	n.apply(t, decode(t, strings.NewReplacer("customer-totals", "plain-totals", "SET", "{plainCount: {count: true}}", "CONSISTENCY", "eventual").Replace(customerTotals)))
	n.apply(t, rows(t, "{container: {}}", `{customerId: customerId, orderId: id, paid: {expr: 'total != "gift"'}}`))
	names := []string{"customer-totals", "plain-totals", "order-rows"}
	for _, name := range names {
		n.older(t, name)
	}
	n.customers(t, 2, 3) // whose orders have numbers for totals
	n.put(t, "customer", `{"id":"o0-9","customerId":"c0","type":"order","total":"gift"}`)

	n.work(t, n.client, compile.SinkLimits{})
	poll.Until(t, func() error {
		for _, name := range names {
			if r := n.record(t, name); r.Expressions != query.MeaningNow || !r.InForce {
				return fmt.Errorf("%s has meaning %d in generation %d, in force: %v", name, r.Expressions, r.Generation, r.InForce)
			}
		}
		return nil
	})
	n.idle(t)
	for name, want := range map[string]uint32{"customer-totals": 2, "plain-totals": 1, "order-rows": 2} {
		if got := n.record(t, name).Generation; got != want {
			t.Errorf("%s is in generation %d, want %d", name, got, want)
		}
	}
	n.field(t, "c0", "orderCount", "3")
	n.field(t, "c1", "orderCount", "3")
	n.field(t, "c0", "plainCount", "4")
	if rule := n.record(t, "plain-totals").Rule; rule.Expressions != 0 {
		t.Error("a rule that lasts has got another meaning")
	}
	if rule := n.record(t, "customer-totals").Rule; rule.Expressions != query.MeaningNow {
		t.Errorf("the rule of a new generation has the meaning %d", rule.Expressions)
	}
	report, _ := n.verify(t, verify.Config{})
	if report.Verdict != verify.VerdictEqual {
		t.Errorf("the copies differ: %+v", report)
	}
}
