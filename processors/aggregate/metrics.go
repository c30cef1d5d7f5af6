package aggregate

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/feed/meter"
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

var meters = newInstruments(meter.Of(instrumentation))

func newInstruments(m meter.Meter) *instruments {
	return &instruments{
		changes:  m.Counter("millrace.aggregate.changes", "{change}", "Changes that were folded by a processor; the others were by the owner, or have no share."),
		groups:   m.Counter("millrace.aggregate.groups", "{group}", "Groups whose accumulators a processor has changed."),
		requests: m.Counter("millrace.aggregate.folds", "{request}", "Intervals of source positions that a partition has folded."),
		known:    m.Counter("millrace.aggregate.folds.known", "{request}", "Intervals that a partition had folded already, wholly or in part."),
		bytes: m.Histogram("millrace.aggregate.fold.size", "By", "Size of the shares in one request.",
			64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304),
		duration: m.Durations("millrace.aggregate.fold.duration", "Time from the commit of the oldest change of an interval until it is folded everywhere.",
			.0005, .001, .002, .005, .01, .02, .05, .1, .5, 1, 5, 10, 60, 600),
	}
}

// measured are the attributes of every instrument: few and bounded.
func (a *Aggregate) measured() metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String("pipeline", a.cfg.Pipeline)))
}
