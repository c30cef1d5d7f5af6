package signals_test

import (
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/metric"
)

// instrument is one that was registered, as its package declares it.
type instrument struct{ name, kind, unit, description string }

// prometheus is the name under which /metrics has it: units that are words are left out,
// and counters end in total.
func (i *instrument) prometheus() string {
	name := strings.ReplaceAll(i.name, ".", "_")
	suffix := ""
	switch {
	case i.unit == "s":
		suffix = "_seconds"
	case i.unit == "By":
		suffix = "_bytes"
	case i.unit == "1" && i.kind == kindGauge:
		suffix = "_ratio"
	}
	if !strings.HasSuffix(name, suffix) {
		name += suffix
	}
	if i.kind == kindCounter {
		name += "_total"
	}
	return name
}

// The kinds of instruments, as the page names them.
const (
	kindCounter   = "counter"
	kindUpDown    = "up-down counter"
	kindGauge     = "gauge"
	kindHistogram = "histogram"
)

// book notes what is registered, and hands all on to a real provider.
type book struct {
	metric.MeterProvider
	mu  sync.Mutex
	all map[string]instrument
}

// Meter implements metric.MeterProvider. The packages' instruments were made before any
// provider was set, and are made anew of this one when it is.
func (b *book) Meter(name string, opts ...metric.MeterOption) metric.Meter {
	return &noting{b.MeterProvider.Meter(name, opts...), b, strings.HasPrefix(name, module)}
}

func (b *book) note(name, kind, unit, description string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all[name] = instrument{name, kind, unit, description}
}

// registered returns what was noted, by name.
func (b *book) registered() []instrument {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []instrument
	for _, i := range b.all {
		all = append(all, i)
	}
	slices.SortFunc(all, func(x, y instrument) int { return strings.Compare(x.name, y.name) })
	return all
}

// noting is a meter that notes what is made of it.
type noting struct {
	metric.Meter
	book *book
	ours bool
}

func (n *noting) note(name, kind, unit, description string) {
	if n.ours {
		n.book.note(name, kind, unit, description)
	}
}

func (n *noting) Int64Counter(name string, o ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	c := metric.NewInt64CounterConfig(o...)
	n.note(name, kindCounter, c.Unit(), c.Description())
	return n.Meter.Int64Counter(name, o...)
}

func (n *noting) Float64Counter(name string, o ...metric.Float64CounterOption) (metric.Float64Counter, error) {
	c := metric.NewFloat64CounterConfig(o...)
	n.note(name, kindCounter, c.Unit(), c.Description())
	return n.Meter.Float64Counter(name, o...)
}

func (n *noting) Int64UpDownCounter(name string, o ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	c := metric.NewInt64UpDownCounterConfig(o...)
	n.note(name, kindUpDown, c.Unit(), c.Description())
	return n.Meter.Int64UpDownCounter(name, o...)
}

func (n *noting) Int64Gauge(name string, o ...metric.Int64GaugeOption) (metric.Int64Gauge, error) {
	c := metric.NewInt64GaugeConfig(o...)
	n.note(name, kindGauge, c.Unit(), c.Description())
	return n.Meter.Int64Gauge(name, o...)
}

func (n *noting) Float64Gauge(name string, o ...metric.Float64GaugeOption) (metric.Float64Gauge, error) {
	c := metric.NewFloat64GaugeConfig(o...)
	n.note(name, kindGauge, c.Unit(), c.Description())
	return n.Meter.Float64Gauge(name, o...)
}

func (n *noting) Int64Histogram(name string, o ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	c := metric.NewInt64HistogramConfig(o...)
	n.note(name, kindHistogram, c.Unit(), c.Description())
	return n.Meter.Int64Histogram(name, o...)
}

func (n *noting) Float64Histogram(name string, o ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	c := metric.NewFloat64HistogramConfig(o...)
	n.note(name, kindHistogram, c.Unit(), c.Description())
	return n.Meter.Float64Histogram(name, o...)
}

func (n *noting) Int64ObservableGauge(name string, o ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	c := metric.NewInt64ObservableGaugeConfig(o...)
	n.note(name, kindGauge, c.Unit(), c.Description())
	return n.Meter.Int64ObservableGauge(name, o...)
}

func (n *noting) Float64ObservableGauge(name string, o ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	c := metric.NewFloat64ObservableGaugeConfig(o...)
	n.note(name, kindGauge, c.Unit(), c.Description())
	return n.Meter.Float64ObservableGauge(name, o...)
}
