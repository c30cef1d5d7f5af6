package cascade

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

const instrumentation = "github.com/millrace/millrace/processors/cascade"

func tracer() trace.Tracer { return otel.Tracer(instrumentation) }

type instruments struct {
	copies         metric.Int64Counter
	pages          metric.Int64Counter
	checked        metric.Int64Counter
	dangling       metric.Int64Counter
	fanOutItems    metric.Int64Histogram
	fanOutDuration metric.Float64Histogram
}

var meters = newInstruments(otel.Meter(instrumentation))

func newInstruments(m metric.Meter) *instruments {
	i := &instruments{}
	i.copies, _ = m.Int64Counter("millrace.cascade.copies", metric.WithUnit("{item}"),
		metric.WithDescription("Items whose copies were changed, by cause: fan-out or repair."))
	i.pages, _ = m.Int64Counter("millrace.cascade.pages", metric.WithUnit("{page}"),
		metric.WithDescription("Pages of fan-outs that were answered."))
	i.checked, _ = m.Int64Counter("millrace.cascade.checked", metric.WithUnit("{copy}"),
		metric.WithDescription("Copies compared with their source."))
	i.dangling, _ = m.Int64Counter("millrace.cascade.dangling", metric.WithUnit("{copy}"),
		metric.WithDescription("Copies seen whose source is not there."))
	i.fanOutItems, _ = m.Int64Histogram("millrace.cascade.fanout.items", metric.WithUnit("{item}"),
		metric.WithDescription("Items that one fan-out changed."),
		metric.WithExplicitBucketBoundaries(0, 1, 2, 5, 10, 20, 50, 100, 1000, 10_000, 100_000, 1_000_000))
	i.fanOutDuration, _ = m.Float64Histogram("millrace.cascade.fanout.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the commit of a change to its last copy."),
		metric.WithExplicitBucketBoundaries(.0005, .001, .002, .005, .01, .02, .05, .1, .5, 1, 5, 10, 60, 600))
	return i
}

// measured are the attributes of every instrument: few and bounded.
func (c *Cascade) measured(cause string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String("pipeline", c.cfg.Pipeline), attribute.String("cause", cause)))
}
