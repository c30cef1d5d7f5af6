package gateway

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const instrumentation = "github.com/millrace/millrace/store/gateway"

// tracer follows the provider that the process sets, also later.
var tracer = otel.Tracer(instrumentation)

var (
	meter = otel.Meter(instrumentation)

	requestDuration = must(meter.Float64Histogram("millrace.gateway.request.duration",
		metric.WithUnit("s"), metric.WithDescription("From the end of a request's headers to the end of its answer, by operation and status.")))
	inFlight = must(meter.Int64UpDownCounter("millrace.gateway.requests",
		metric.WithUnit("{request}"), metric.WithDescription("Requests that are being carried out.")))
	connections = must(meter.Int64UpDownCounter("millrace.gateway.connections",
		metric.WithUnit("{connection}"), metric.WithDescription("Connections that are open.")))
	connectionsEvicted = must(meter.Int64Counter("millrace.gateway.connections.evicted",
		metric.WithUnit("{connection}"), metric.WithDescription("Connections closed because of gateway.connectionsMax: idle ones for new ones, or new ones.")))
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // a name or unit of this file is malformed
	}
	return v
}

// record counts one request.
func record(ctx context.Context, x *exchange, took time.Duration) {
	requestDuration.Record(ctx, took.Seconds(), metric.WithAttributes(
		attribute.String("operation", x.name()), attribute.Int("status", x.status)))
}
