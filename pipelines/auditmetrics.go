package pipelines

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// observeAudits publishes what a continuous verification has found, which each tells
// whenever it is asked for, until forget is called.
func observeAudits(each func(f func(title string, coverage, age float64, drift int64))) (forget func(), err error) {
	m := otel.Meter(instrumentation)
	coverage, err := m.Float64ObservableGauge("millrace.verify.coverage", metric.WithUnit("1"),
		metric.WithDescription("Share of copies that the continuous verification proved equal in its last pass."))
	if err != nil {
		return nil, err
	}
	age, err := m.Float64ObservableGauge("millrace.verify.position_age", metric.WithUnit("s"),
		metric.WithDescription("Age of the state of which the continuous verification last proved all copies equal."))
	if err != nil {
		return nil, err
	}
	drift, err := m.Int64ObservableGauge("millrace.verify.drift", metric.WithUnit("{copy}"),
		metric.WithDescription("Copies that the continuous verification found to differ for no reason in its last pass."))
	if err != nil {
		return nil, err
	}
	registration, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		each(func(title string, c, a float64, d int64) {
			pipeline := metric.WithAttributes(attribute.String("pipeline", title))
			o.ObserveFloat64(coverage, c, pipeline)
			o.ObserveFloat64(age, a, pipeline)
			o.ObserveInt64(drift, d, pipeline)
		})
		return nil
	}, coverage, age, drift)
	if err != nil {
		return nil, err
	}
	return func() { _ = registration.Unregister() }, nil // fails only where nothing is registered
}
