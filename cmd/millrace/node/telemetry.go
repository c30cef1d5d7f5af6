package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// flushTimeout bounds the sending of what is left at the end.
const flushTimeout = 5 * time.Second

// Telemetry is the OpenTelemetry SDK of the process. The packages of Millrace use
// the API, which is silent without it.
type Telemetry struct {
	metrics *metric.MeterProvider
	traces  *trace.TracerProvider // nil if no exporter is asked for
	prom    *prometheus.Registry
}

// OpenTelemetry sets up the SDK for the whole process. Metrics can be scraped from
// Handler. Traces and metrics are pushed by OTLP if the standard variables say
// so: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER and
// those beside them. Without any of them nothing leaves the process.
func OpenTelemetry(ctx context.Context, version string) (*Telemetry, error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		slog.Warn("telemetry could not be sent", "error", err)
	}))
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	self, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "millrace"), attribute.String("service.version", version)),
		resource.WithHost(), resource.WithProcessPID(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("telemetry: describe this process: %w", err)
	}
	t := &Telemetry{prom: prometheus.NewRegistry()}
	t.prom.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	scrape, err := promexporter.New(promexporter.WithRegisterer(t.prom))
	if err != nil {
		return nil, fmt.Errorf("telemetry: prometheus: %w", err)
	}
	options := []metric.Option{metric.WithResource(self), metric.WithReader(scrape)}
	if asked("METRICS") {
		reader, err := autoexport.NewMetricReader(ctx)
		if err != nil {
			return nil, fmt.Errorf("telemetry: metrics: %w", err)
		}
		options = append(options, metric.WithReader(reader))
	}
	t.metrics = metric.NewMeterProvider(options...)
	otel.SetMeterProvider(t.metrics)
	if asked("TRACES") {
		exporter, err := autoexport.NewSpanExporter(ctx)
		if err != nil {
			return nil, fmt.Errorf("telemetry: traces: %w", err)
		}
		t.traces = trace.NewTracerProvider(trace.WithResource(self), trace.WithBatcher(exporter))
		otel.SetTracerProvider(t.traces)
	}
	return t, nil
}

// asked says whether the standard variables ask to push a signal.
func asked(signal string) bool {
	for _, name := range []string{
		"OTEL_" + signal + "_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT",
	} {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// Handler answers Prometheus.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.prom, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// Close sends what is left, for at most five seconds.
func (t *Telemetry) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	var errs []error
	if t.traces != nil {
		errs = append(errs, t.traces.Shutdown(ctx))
	}
	errs = append(errs, t.metrics.Shutdown(ctx))
	return errors.Join(errs...)
}
