package pipelines_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"
)

var hugeLines = flag.Int("huge.lines", 5_000, "rows of the item of TestAHugeArrayBlocksOnlyItsKey")

// An item whose array makes very many rows, one of which a sink of containers cannot
// take, blocks nobody but itself, and has all its rows when it is tried again.
func TestAHugeArrayBlocksOnlyItsKey(t *testing.T) {
	lines := *hugeLines
	w := newWard(t)
	huge := func(id, last string) string {
		return fmt.Sprintf(`{"id":%q,"customerId":"c","day":"d","total":1,"lines":[%s{"sku":%q}]}`, id, strings.Repeat(`{"sku":"s"},`, lines-1), last)
	}
	began := time.Now()
	w.put(t, "order", huge("taken", "plain"))
	w.idle(t)
	t.Logf("%d rows of one item in %s", lines, time.Since(began).Round(time.Millisecond))

	w.gate.shut.Store(true)
	w.put(t, "order", huge("given up", "poison"))
	deadLetters := w.gaveUp(t, "lines", 1)
	w.put(t, "order", wardOrder("beside", "c", "d", "b", "plain", 1))
	poll.Until(t, func() error {
		s, err := w.monitor.Read(t.Context())
		if err != nil {
			return err
		}
		for _, p := range s.Pipelines {
			if p.Name == "lines" && (p.Lag.Commits > 0 || p.Parked != 1) || p.Name != "lines" && p.State != status.Idle {
				return fmt.Errorf("%s is %s, %d commits behind, %d parked", p.Name, p.State, p.Lag.Commits, p.Parked)
			}
		}
		return nil
	})
	if got := w.read(t, "day", "d", "d", "orders"); got != "3" {
		t.Errorf("%s orders are counted, not 3", got)
	}
	w.gate.shut.Store(false)
	if err := w.letters.Retry(t.Context(), deadLetters[0].Pipeline, deadLetters[0].ID); err != nil {
		t.Fatal(err)
	}
	w.gaveUp(t, "lines", 0)
	w.idle(t)
	if r, by := w.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual || by["lines"].Copies != int64(2*lines+2) {
		t.Errorf("%d rows:\n%s", by["lines"].Copies, text(r))
	}
}
