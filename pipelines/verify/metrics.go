package verify

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/millrace/millrace/feed/meter"
)

const instrumentation = "github.com/millrace/millrace/pipelines"

// instruments are this package's. They delegate to whatever provider the program
// sets, even later.
type instruments struct {
	verified    metric.Int64Gauge
	differences metric.Int64Gauge
}

var meters = newInstruments(meter.Of(instrumentation))

func newInstruments(m meter.Meter) *instruments {
	return &instruments{
		verified:    m.Gauge("millrace.verify.copies", "{copy}", "Copies that the last verification compared with their sources."),
		differences: m.Gauge("millrace.verify.differences", "{copy}", "Copies that the last verification found to differ, by kind: drift, behind, dangling, unjudged."),
	}
}

// record notes what was verified. It notes that there is no difference of a kind, too: a gauge keeps its
// last value, so a drift that was repaired would be shown for as long as the process lives.
func (r *Report) record(ctx context.Context) {
	for i := range r.Pipelines {
		p := &r.Pipelines[i]
		pipeline := attribute.String("pipeline", p.title())
		meters.verified.Record(ctx, p.Copies, metric.WithAttributes(pipeline))
		for kind, n := range map[DifferenceKind]int64{
			DifferenceDrift: p.Drift, DifferenceBehind: p.Behind, DifferenceDangling: p.Dangling, DifferenceUnjudged: p.Unjudged,
		} {
			meters.differences.Record(ctx, n, metric.WithAttributes(pipeline, attribute.String("kind", string(kind))))
		}
	}
}
