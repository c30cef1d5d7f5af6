package gateway

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/millrace/millrace/feed/meter"
)

const instrumentation = "github.com/millrace/millrace/store/gateway"

// tracer follows the provider that the process sets, also later.
var tracer = otel.Tracer(instrumentation)

// instruments are this package's.
type instruments struct {
	requestDuration metric.Float64Histogram
	inFlight        metric.Int64UpDownCounter
	connections     metric.Int64UpDownCounter
	evicted         metric.Int64Counter
	answersCut      metric.Int64Counter

	outcomes sync.Map // the []metric.RecordOption of each outcome that there was: some statuses of each operation
}

var meters = newInstruments(meter.Of(instrumentation))

func newInstruments(m meter.Meter) *instruments {
	return &instruments{
		requestDuration: m.Durations("millrace.gateway.request.duration", "From the end of a request's headers to the end of its answer, by operation and status."),
		inFlight:        m.UpDownCounter("millrace.gateway.requests", "{request}", "Requests that are being carried out."),
		connections:     m.UpDownCounter("millrace.gateway.connections", "{connection}", "Connections that are open."),
		evicted:         m.Counter("millrace.gateway.connections.evicted", "{connection}", "Connections closed because of gateway.connectionsMax: idle ones for new ones, or new ones."),
		answersCut:      m.Counter("millrace.gateway.answers.cut", "{answer}", "Answers cut off because of gateway.requestsMax or gateway.answersMax: their clients had taken nothing for five seconds while others asked."),
	}
}

// record counts one request.
func record(ctx context.Context, x *exchange, took time.Duration) {
	at := outcome{x.name(), x.status}
	as, known := meters.outcomes.Load(at)
	if !known {
		as, _ = meters.outcomes.LoadOrStore(at, []metric.RecordOption{metric.WithAttributeSet(
			attribute.NewSet(attribute.String("operation", at.operation), attribute.Int("status", at.status)))})
	}
	meters.requestDuration.Record(ctx, took.Seconds(), as.([]metric.RecordOption)...)
}

// outcome is what a request is counted by.
type outcome struct {
	operation string
	status    int
}
