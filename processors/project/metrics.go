package project

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
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

var meters = newInstruments(otel.Meter(instrumentation))

func newInstruments(m metric.Meter) *instruments {
	i := &instruments{}
	i.rows, _ = m.Int64Counter("millrace.project.rows", metric.WithUnit("{row}"),
		metric.WithDescription("Rows written to a sink, by cause: put or drop."))
	i.rejects, _ = m.Int64Counter("millrace.project.rejects", metric.WithUnit("{row}"),
		metric.WithDescription("Rows that could not take their place, by cause: value or claim."))
	i.skipped, _ = m.Int64Counter("millrace.project.skipped", metric.WithUnit("{batch}"),
		metric.WithDescription("Batches that a sink had recorded already."))
	i.writeRows, _ = m.Int64Histogram("millrace.project.write.rows", metric.WithUnit("{row}"),
		metric.WithDescription("Rows and rejects in one write to a sink."),
		metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000))
	i.writeDuration, _ = m.Float64Histogram("millrace.project.write.duration", metric.WithUnit("s"),
		metric.WithDescription("Time of one write to a sink."),
		metric.WithExplicitBucketBoundaries(.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 5, 30))
	i.flushDuration, _ = m.Float64Histogram("millrace.project.flush.duration", metric.WithUnit("s"),
		metric.WithDescription("Time in which a sink that buffers made its rows durable."),
		metric.WithExplicitBucketBoundaries(.001, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60))
	return i
}

// measured are the attributes of every instrument: few and bounded.
func (p *Projection) measured(cause string) metric.MeasurementOption {
	attributes := []attribute.KeyValue{attribute.String("pipeline", p.cfg.Pipeline)}
	if cause != "" {
		attributes = append(attributes, attribute.String("cause", cause))
	}
	return metric.WithAttributeSet(attribute.NewSet(attributes...))
}
