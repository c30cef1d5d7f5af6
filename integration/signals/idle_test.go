package signals_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/millrace/millrace/integration/poll"
)

// looksQuiet is how often a node must look after itself without a span to count as silent. Beside
// each look it verifies, reconciles, samples and renews.
const looksQuiet = 4

// TestSpans_AnIdleNodeExportsNone runs all roles and pipelines until nothing is left to do, and
// then counts the looks of the node that pass without a span.
func TestSpans_AnIdleNodeExportsNone(t *testing.T) {
	o := observe()
	n := runShop(t, func() error { return nil })
	known, looks, looked := -1, 0, n.Ready().Checked
	poll.Until(t, func() error {
		spans := o.spans.GetSpans()
		if len(spans) != known {
			latest := spans[max(known, 0):]
			known, looks, looked = len(spans), 0, n.Ready().Checked
			return fmt.Errorf("spans go on:\n%s", strings.Join(namesOf(latest), "\n"))
		}
		if now := n.Ready().Checked; now.After(looked) {
			looks, looked = looks+1, now
		}
		return poll.Unless(looks >= looksQuiet, fmt.Sprintf("%d looks without a span", looks))
	})
}

func namesOf(spans tracetest.SpanStubs) (names []string) {
	for i := range spans {
		name := spans[i].Name
		if spans[i].Parent.IsValid() {
			name += " in a trace"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestSpans_ARefusalHasOne looks for the request that runShop signs with a key that is not in force.
func TestSpans_ARefusalHasOne(t *testing.T) {
	o := observe()
	o.spans.Reset()
	runShop(t, func() error {
		for _, span := range o.spans.GetSpans() {
			if span.Name != "millrace.gateway refused" {
				continue
			}
			of := attribute.NewSet(span.Attributes...)
			status, _ := of.Value("http.response.status_code")
			if of.HasValue("db.namespace") || of.HasValue("db.collection.name") {
				t.Errorf("what an unknown sender asks for is exported: %v", span.Attributes)
			}
			return poll.Unless(status.AsInt64() == 401, fmt.Sprintf("the span says %v", span.Attributes))
		}
		return errors.New("no span of a refusal")
	})
}
