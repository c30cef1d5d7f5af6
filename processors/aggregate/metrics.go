package aggregate

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

const instrumentation = "github.com/millrace/millrace/processors/aggregate"

func tracer() trace.Tracer { return otel.Tracer(instrumentation) }

type instruments struct {
	changes  metric.Int64Counter
	groups   metric.Int64Counter
	requests metric.Int64Counter
	known    metric.Int64Counter
	bytes    metric.Int64Histogram
	duration metric.Float64Histogram
}

var meters = newInstruments(otel.Meter(instrumentation))

func newInstruments(m metric.Meter) *instruments {
	i := &instruments{}
	i.changes, _ = m.Int64Counter("millrace.aggregate.changes", metric.WithUnit("{change}"),
		metric.WithDescription("Changes that were folded by a processor; the others were by the owner, or have no share."))
	i.groups, _ = m.Int64Counter("millrace.aggregate.groups", metric.WithUnit("{group}"),
		metric.WithDescription("Groups whose accumulators a processor has changed."))
	i.requests, _ = m.Int64Counter("millrace.aggregate.folds", metric.WithUnit("{request}"),
		metric.WithDescription("Intervals of source positions that a partition has folded."))
	i.known, _ = m.Int64Counter("millrace.aggregate.folds.known", metric.WithUnit("{request}"),
		metric.WithDescription("Intervals that a partition had folded already, wholly or in part."))
	i.bytes, _ = m.Int64Histogram("millrace.aggregate.fold.size", metric.WithUnit("By"),
		metric.WithDescription("Size of the shares in one request."),
		metric.WithExplicitBucketBoundaries(64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304))
	i.duration, _ = m.Float64Histogram("millrace.aggregate.fold.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the commit of the oldest change of an interval until it is folded everywhere."),
		metric.WithExplicitBucketBoundaries(.0005, .001, .002, .005, .01, .02, .05, .1, .5, 1, 5, 10, 60, 600))
	return i
}

// measured are the attributes of every instrument: few and bounded.
func (a *Aggregate) measured() metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String("pipeline", a.cfg.Pipeline)))
}
