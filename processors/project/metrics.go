package project

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/feed/meter"
)

const instrumentation = "github.com/millrace/millrace/processors/project"

func tracer() trace.Tracer { return otel.Tracer(instrumentation) }

type instruments struct {
	rows          metric.Int64Counter
	rejects       metric.Int64Counter
	skipped       metric.Int64Counter
	writeRows     metric.Int64Histogram
	writeDuration metric.Float64Histogram
	flushDuration metric.Float64Histogram
}

var meters = newInstruments(meter.Of(instrumentation))

func newInstruments(m meter.Meter) *instruments {
	return &instruments{
		rows:    m.Counter("millrace.project.rows", "{row}", "Rows written to a sink, by cause: put or drop."),
		rejects: m.Counter("millrace.project.rejects", "{row}", "Rows that could not take their place, by cause: value or claim."),
		skipped: m.Counter("millrace.project.skipped", "{batch}", "Batches that a sink had recorded already."),
		writeRows: m.Histogram("millrace.project.write.rows", "{row}", "Rows and rejects in one write to a sink.",
			1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000),
		writeDuration: m.Durations("millrace.project.write.duration", "Time of one write to a sink.",
			.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 5, 30),
		flushDuration: m.Durations("millrace.project.flush.duration", "Time in which a sink that buffers made its rows durable.",
			.001, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60),
	}
}

// measured are the attributes of every instrument: few and bounded.
func (p *Projection) measured(cause string) metric.MeasurementOption {
	attributes := []attribute.KeyValue{attribute.String("pipeline", p.cfg.Pipeline)}
	if cause != "" {
		attributes = append(attributes, attribute.String("cause", cause))
	}
	return metric.WithAttributeSet(attribute.NewSet(attributes...))
}
