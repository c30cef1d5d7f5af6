package verify

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// observeFindings publishes what a continuous verification has found, which each tells
// whenever it is asked for, until forget is called.
func observeFindings(each func(f func(one *Finding))) (forget func(), err error) {
	m := otel.Meter(instrumentation)
	coverage, err := m.Float64ObservableGauge("millrace.verify.coverage", metric.WithUnit("1"),
		metric.WithDescription("Share of copies that the continuous verification found equal in its last pass."))
	if err != nil {
		return nil, err
	}
	position, err := m.Int64ObservableGauge("millrace.verify.position", metric.WithUnit("{lsn}"),
		metric.WithDescription("LSN of a source's partition up to which the continuous verification last found all changes to be copied."))
	if err != nil {
		return nil, err
	}
	age, err := m.Float64ObservableGauge("millrace.verify.position_age", metric.WithUnit("s"),
		metric.WithDescription("Age of the state of which the continuous verification last found all copies equal."))
	if err != nil {
		return nil, err
	}
	drift, err := m.Int64ObservableGauge("millrace.verify.drift", metric.WithUnit("{copy}"),
		metric.WithDescription("Copies that the continuous verification found to differ for no reason in its last pass."))
	if err != nil {
		return nil, err
	}
	registration, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		each(func(one *Finding) {
			which := []attribute.KeyValue{attribute.String("database", one.Database), attribute.String("pipeline", one.Name)}
			set := metric.WithAttributes(which...)
			o.ObserveFloat64(coverage, one.Coverage(), set)
			o.ObserveFloat64(age, one.age(), set)
			o.ObserveInt64(drift, one.Drift, set)
			for _, at := range one.EqualAt {
				partition := attribute.String("partition", strconv.FormatUint(uint64(at.Partition), 10))
				o.ObserveInt64(position, int64(at.After.LSN), metric.WithAttributes(append(which[:2:2], partition)...))
			}
		})
		return nil
	}, coverage, position, age, drift)
	if err != nil {
		return nil, err
	}
	return func() { _ = registration.Unregister() }, nil // fails only where nothing is registered
}
