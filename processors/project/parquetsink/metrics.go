package parquetsink

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/feed/meter"
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

var meters = newInstruments(meter.Of(instrumentation))

func newInstruments(m meter.Meter) *instruments {
	return &instruments{
		commitDuration: m.Durations("millrace.parquet.commit.duration", "Time to write and commit what the writers hold.",
			.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30),
		rows:      m.Counter("millrace.parquet.rows", "{row}", "Rows and rejects that were put or dropped by commits."),
		rewritten: m.Counter("millrace.parquet.rewritten", "{row}", "Rows written again because their file was touched or merged."),
		files:     m.Counter("millrace.parquet.files", "{file}", "Files written by commits."),
		conflicts: m.Counter("millrace.parquet.conflicts", "{attempt}", "Commits begun anew because another process committed first."),
	}
}
