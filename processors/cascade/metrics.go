package cascade

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/feed/meter"
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

var meters = newInstruments(meter.Of(instrumentation))

func newInstruments(m meter.Meter) *instruments {
	return &instruments{
		copies:   m.Counter("millrace.cascade.copies", "{item}", "Items whose copies were changed, by cause: fan-out or repair."),
		pages:    m.Counter("millrace.cascade.pages", "{page}", "Pages of fan-outs that were answered."),
		checked:  m.Counter("millrace.cascade.checked", "{copy}", "Copies compared with their source."),
		dangling: m.Counter("millrace.cascade.dangling", "{copy}", "Copies seen whose source is not there."),
		fanOutItems: m.Histogram("millrace.cascade.fanout.items", "{item}", "Items that one fan-out changed.",
			0, 1, 2, 5, 10, 20, 50, 100, 1000, 10_000, 100_000, 1_000_000),
		fanOutDuration: m.Durations("millrace.cascade.fanout.duration", "Time from the commit of a change to its last copy.",
			.0005, .001, .002, .005, .01, .02, .05, .1, .5, 1, 5, 10, 60, 600),
	}
}

// measured are the attributes of every instrument: few and bounded.
func (c *Cascade) measured(cause string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String("pipeline", c.cfg.Pipeline), attribute.String("cause", cause)))
}
