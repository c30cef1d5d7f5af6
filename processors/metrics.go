package processors

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/feed/meter"
)

const instrumentation = "github.com/millrace/millrace/processors"

func tracer() trace.Tracer { return otel.Tracer(instrumentation) }

// instruments are this package's. They delegate to whatever provider the program
// sets, even later.
type instruments struct {
	batchItems    metric.Int64Histogram
	batchDuration metric.Float64Histogram
	lag           metric.Int64Gauge
	lagSeconds    metric.Float64Gauge
	retries       metric.Int64Counter
	deadLetters   metric.Int64Counter
	parked        metric.Int64Gauge
	jobs          metric.Int64Gauge
	fenced        metric.Int64Counter
	checkpoints   metric.Float64Histogram
}

var meters = newInstruments(meter.Of(instrumentation))

func newInstruments(m meter.Meter) *instruments {
	return &instruments{
		batchItems: m.Histogram("millrace.processor.batch.changes", "{change}", "Changes in one batch of a processor.",
			1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000),
		batchDuration: m.Durations("millrace.processor.batch.duration", "Time to process one batch, retries included.",
			.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 5, 30),
		lag:         m.Gauge("millrace.processor.lag", "{commit}", "Commits in the log that the processor has not processed."),
		lagSeconds:  m.DurationGauge("millrace.processor.lag.duration", "Age of the oldest change or job that is not finished; 0 if there is none."),
		retries:     m.Counter("millrace.processor.retries", "{attempt}", "Attempts that failed and are made again."),
		deadLetters: m.Counter("millrace.processor.dead_letters", "{letter}", "Changes and copies given up."),
		parked:      m.Gauge("millrace.processor.parked", "{item}", "Items whose newest state has not been processed because it was given up."),
		jobs:        m.Gauge("millrace.processor.jobs", "{job}", "Jobs, such as fan-outs, that are open."),
		fenced:      m.Counter("millrace.processor.fenced_writes", "{write}", "Writes refused because the processor's lease had passed on."),
		checkpoints: m.Durations("millrace.processor.checkpoint.duration", "Time to write one checkpoint.",
			.0005, .001, .002, .005, .01, .02, .05, .1, .5, 1),
	}
}

// attributes are those of every instrument. Each set of values is a series that whoever collects has to
// keep, so they are few and bounded: no item's id and no key is among them.
func (r Resource) attributes() metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(
		attribute.String("pipeline", r.Pipeline), attribute.String("role", string(r.Role)),
		attribute.Int64("partition", int64(r.Partition.Number)),
	))
}

func countDeadLetter(ctx context.Context, r Resource) { meters.deadLetters.Add(ctx, 1, r.attributes()) }

// CountRetry counts an attempt of r that failed and is made again.
func CountRetry(ctx context.Context, r Resource) { meters.retries.Add(ctx, 1, r.attributes()) }

// CountFenced counts a write of r that was refused because its lease had passed
// on.
func CountFenced(ctx context.Context, r Resource) { meters.fenced.Add(ctx, 1, r.attributes()) }
