package pipelines_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"
)

// TestStatusSaysThatASinkIsAway takes the directory of Parquet files away for a while:
// the pipeline that writes there says since when, with what error and that it tries
// again, the others go on, and it catches up by itself.
func TestStatusSaysThatASinkIsAway(t *testing.T) {
	t.Parallel()
	m := newMart(t)
	m.fill(t, 3, 2)
	aside := m.dir + "-aside"
	if err := os.Rename(m.dir, aside); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.put(t, "sale", martOrder(1, 7, 3))
	poll.Until(t, func() error {
		p := m.status(t, "files")
		switch {
		case p.State == status.Idle || p.Lag.None():
			return fmt.Errorf("it is %s, lag %+v", p.State, p.Lag)
		case !strings.Contains(p.Reason, "not a directory") || !strings.Contains(p.Reason, "failed") || !strings.Contains(p.Reason, "tried again by itself"):
			return fmt.Errorf("it is %s: %q, sink %+v", p.State, p.Reason, p.Sink)
		case !strings.Contains(p.Sink.Error, "not a directory") || p.Sink.Attempts == 0 || p.Sink.Since.IsZero():
			return fmt.Errorf("sink %+v", p.Sink)
		}
		return nil
	})
	poll.Until(t, func() error {
		for _, name := range []string{"totals", "days", "lines"} {
			if p := m.status(t, name); p.State != status.Idle {
				return fmt.Errorf("%s is %s: %s", name, p.State, p.Reason)
			}
		}
		return nil
	})
	if err := os.Remove(m.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, m.dir); err != nil {
		t.Fatal(err)
	}
	m.idle(t)
	if p := m.status(t, "files"); p.Reason != "" || p.Sink.Error != "" || !p.Sink.Since.IsZero() {
		t.Errorf("it is %s: %q, sink %+v", p.State, p.Reason, p.Sink)
	}
	if r, _ := m.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual {
		t.Errorf("in the end:\n%s", text(r))
	}
}
