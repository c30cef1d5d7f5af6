// Package meter makes the instruments of a package's metrics.go, each in one call
// with its name, unit and description:
//
//	var meters = newInstruments(meter.Of("github.com/millrace/millrace/feed"))
//
//	func newInstruments(m meter.Meter) *instruments {
//		return &instruments{
//			retries: m.Counter("millrace.log.append.retries", "{attempt}", "Appends that were sent again."),
//		}
//	}
//
// Instruments are package variables, made before any provider is set: they delegate
// to whichever one the program sets first, and cost next to nothing without one.
//
// A call panics if OpenTelemetry refuses the name or the unit. Both are constants of
// the source, so that is a mistake of the programmer: to drop the error, as the API
// allows, loses a metric without a word. A name that is refused only when the provider
// is set fails TestInstruments_AreAccepted of cmd/millrace/node.
//
// Both feed and leases stand on this package, which imports nothing of ours.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package meter

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
)

// Meter makes the instruments of one package.
type Meter struct{ meter metric.Meter }

// Of returns the meter of a package, named by its import path.
func Of(path string) Meter { return Meter{otel.Meter(path)} }

// Counter returns what only grows.
func (m Meter) Counter(name, unit, description string) metric.Int64Counter {
	return must(m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description)))
}

// DurationCounter returns a time, in seconds, that only grows.
func (m Meter) DurationCounter(name, description string) metric.Float64Counter {
	return must(m.meter.Float64Counter(name, metric.WithUnit("s"), metric.WithDescription(description)))
}

// UpDownCounter returns what is added to and taken from.
func (m Meter) UpDownCounter(name, unit, description string) metric.Int64UpDownCounter {
	return must(m.meter.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description)))
}

// Gauge returns what is read now and then.
func (m Meter) Gauge(name, unit, description string) metric.Int64Gauge {
	return must(m.meter.Int64Gauge(name, metric.WithUnit(unit), metric.WithDescription(description)))
}

// DurationGauge returns a time, in seconds, that is read now and then.
func (m Meter) DurationGauge(name, description string) metric.Float64Gauge {
	return must(m.meter.Float64Gauge(name, metric.WithUnit("s"), metric.WithDescription(description)))
}

// Histogram returns the distribution of a number. Without bounds the provider
// chooses them.
func (m Meter) Histogram(name, unit, description string, bounds ...float64) metric.Int64Histogram {
	options := []metric.Int64HistogramOption{metric.WithUnit(unit), metric.WithDescription(description)}
	if bounds != nil {
		options = append(options, metric.WithExplicitBucketBoundaries(bounds...))
	}
	return must(m.meter.Int64Histogram(name, options...))
}

// Durations returns the distribution of a time, in seconds. Without bounds the
// provider chooses them.
func (m Meter) Durations(name, description string, bounds ...float64) metric.Float64Histogram {
	options := []metric.Float64HistogramOption{metric.WithUnit("s"), metric.WithDescription(description)}
	if bounds != nil {
		options = append(options, metric.WithExplicitBucketBoundaries(bounds...))
	}
	return must(m.meter.Float64Histogram(name, options...))
}

func must[T any](instrument T, err error) T {
	if err != nil {
		panic("meter: " + err.Error())
	}
	return instrument
}
