package verify

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const instrumentation = "github.com/millrace/millrace/pipelines"

// instruments are this package's. They delegate to whatever provider the program
// sets, even later.
type instruments struct {
	verified    metric.Int64Gauge
	differences metric.Int64Gauge
}

var meters = newInstruments(otel.Meter(instrumentation))

func newInstruments(m metric.Meter) *instruments {
	i := &instruments{}
	i.verified, _ = m.Int64Gauge("millrace.verify.copies", metric.WithUnit("{copy}"),
		metric.WithDescription("Copies that the last verification compared with their sources."))
	i.differences, _ = m.Int64Gauge("millrace.verify.differences", metric.WithUnit("{copy}"),
		metric.WithDescription("Copies that the last verification found to differ, by kind: drift, behind, dangling."))
	return i
}

// record notes what was verified.
func (r *Report) record(ctx context.Context) {
	for i := range r.Pipelines {
		p := &r.Pipelines[i]
		pipeline := attribute.String("pipeline", p.title())
		meters.verified.Record(ctx, p.Copies, metric.WithAttributes(pipeline))
		for kind, n := range map[DifferenceKind]int64{
			DifferenceDrift: p.Drift, DifferenceBehind: p.Behind, DifferenceDangling: p.Dangling,
		} {
			meters.differences.Record(ctx, n, metric.WithAttributes(pipeline, attribute.String("kind", string(kind))))
		}
	}
}
