package parquetsink

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

const instrumentation = "github.com/millrace/millrace/processors/project/parquetsink"

func tracer() trace.Tracer { return otel.Tracer(instrumentation) }

// instruments are this package's. They delegate to whatever provider the program
// sets, even later.
type instruments struct {
	commitDuration metric.Float64Histogram
	rows           metric.Int64Counter
	rewritten      metric.Int64Counter
	files          metric.Int64Counter
	conflicts      metric.Int64Counter
}

var meters = newInstruments(otel.Meter(instrumentation))

func newInstruments(m metric.Meter) *instruments {
	i := &instruments{}
	i.commitDuration, _ = m.Float64Histogram("millrace.parquet.commit.duration", metric.WithUnit("s"),
		metric.WithDescription("Time to stage and commit what the writers hold."),
		metric.WithExplicitBucketBoundaries(.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30))
	i.rows, _ = m.Int64Counter("millrace.parquet.rows", metric.WithUnit("{row}"),
		metric.WithDescription("Rows and rejects that were put or dropped by commits."))
	i.rewritten, _ = m.Int64Counter("millrace.parquet.rewritten", metric.WithUnit("{row}"),
		metric.WithDescription("Rows written again because their file was touched or merged."))
	i.files, _ = m.Int64Counter("millrace.parquet.files", metric.WithUnit("{file}"),
		metric.WithDescription("Files written by commits."))
	i.conflicts, _ = m.Int64Counter("millrace.parquet.conflicts", metric.WithUnit("{attempt}"),
		metric.WithDescription("Commits begun anew because another process committed first."))
	return i
}
