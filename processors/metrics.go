package processors

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
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

var meters = newInstruments(otel.Meter(instrumentation))

func newInstruments(m metric.Meter) *instruments {
	i := &instruments{}
	i.batchItems, _ = m.Int64Histogram("millrace.processor.batch.changes", metric.WithUnit("{change}"),
		metric.WithDescription("Changes in one batch of a processor."),
		metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000))
	i.batchDuration, _ = m.Float64Histogram("millrace.processor.batch.duration", metric.WithUnit("s"),
		metric.WithDescription("Time to process one batch, retries included."),
		metric.WithExplicitBucketBoundaries(.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 5, 30))
	i.lag, _ = m.Int64Gauge("millrace.processor.lag", metric.WithUnit("{commit}"),
		metric.WithDescription("Commits in the log that the processor has not processed."))
	i.lagSeconds, _ = m.Float64Gauge("millrace.processor.lag.duration", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest change or job that is not finished; 0 if there is none."))
	i.retries, _ = m.Int64Counter("millrace.processor.retries", metric.WithUnit("{attempt}"),
		metric.WithDescription("Attempts that failed and are made again."))
	i.deadLetters, _ = m.Int64Counter("millrace.processor.dead_letters", metric.WithUnit("{letter}"),
		metric.WithDescription("Changes and copies given up."))
	i.parked, _ = m.Int64Gauge("millrace.processor.parked", metric.WithUnit("{item}"),
		metric.WithDescription("Items whose newest state has not been processed because it was given up."))
	i.jobs, _ = m.Int64Gauge("millrace.processor.jobs", metric.WithUnit("{job}"),
		metric.WithDescription("Jobs, such as fan-outs, that are open."))
	i.fenced, _ = m.Int64Counter("millrace.processor.fenced_writes", metric.WithUnit("{write}"),
		metric.WithDescription("Writes refused because the processor's lease had passed on."))
	i.checkpoints, _ = m.Float64Histogram("millrace.processor.checkpoint.duration", metric.WithUnit("s"),
		metric.WithDescription("Time to write one checkpoint."),
		metric.WithExplicitBucketBoundaries(.0005, .001, .002, .005, .01, .02, .05, .1, .5, 1))
	return i
}

// attributes are those of every instrument: few and bounded.
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
