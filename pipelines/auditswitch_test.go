package pipelines_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"
)

// TestSwitchWaitsForItsVerification goes from one consistency to the other and back, under
// writes, with a fault planted before: the aggregate is switching until it has been
// verified, which it is not before the fault is repaired; also where nothing is
// verified continuously.
func TestSwitchWaitsForItsVerification(t *testing.T) {
	t.Parallel()
	m := newMartVerified(t, verify.ContinuousConfig{Continuous: "off", SharePercent: 100, Interval: 100 * time.Millisecond})
	m.fill(t, 5, 6)
	stop := m.traffic(t, 20, 4)
	totals, _, ok := strings.Cut(martPipelines[strings.Index(martPipelines, "apiVersion"):], "---")
	if !ok || !strings.Contains(totals, "consistency: transactional") {
		t.Fatalf("no transactional aggregate: %s", totals)
	}
	if m.record(t, "totals").Unverified {
		t.Error("a new aggregate waits for a verification")
	}
	for _, consistency := range []string{"eventual", "transactional"} {
		m.plantGroup(t, "totals", martOrder(2, 9, 100))
		m.apply(t, decode(t, strings.Replace(totals, "consistency: transactional", "consistency: "+consistency, 1)))
		poll.Until(t, func() error {
			p := m.status(t, "totals")
			if p.State != status.Switching || !strings.Contains(p.Reason, "1 of its copies differs") {
				return fmt.Errorf("%s: %s, %s, verification %+v", consistency, p.State, p.Reason, p.Verified)
			}
			return nil
		})
		if rec := m.record(t, "totals"); !rec.Unverified || !rec.InForce {
			t.Errorf("%s: in force %t, unverified %t", consistency, rec.InForce, rec.Unverified)
		}
		if _, by := m.repair(t, verify.Config{}); by["totals"].Repaired != 1 {
			t.Errorf("%s: repaired %+v", consistency, by["totals"])
		}
		poll.Until(t, func() error {
			if p := m.status(t, "totals"); p.State != status.Idle && p.State != status.Behind {
				return fmt.Errorf("%s and repaired: %s, %s, verification %+v", consistency, p.State, p.Reason, p.Verified)
			}
			return nil
		})
		if p := m.status(t, "totals").Verified; p == nil || p.Verdict != verify.VerdictEqual || m.record(t, "totals").Unverified {
			t.Errorf("%s: it is in force without a verification: %+v", consistency, p)
		}
	}
	stop()
	m.idle(t)
	if r, _ := m.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual {
		t.Errorf("in the end:\n%s", text(r))
	}
}
