package pipelines_test

import (
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"
)

// TestAuditorTellsWhatItFinds lets a continuous verification find a planted fault,
// and prove all equal when it is repaired.
func TestAuditorTellsWhatItFinds(t *testing.T) {
	reader := metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	before := otel.GetMeterProvider()
	otel.SetMeterProvider(provider)
	t.Cleanup(func() { otel.SetMeterProvider(before) })

	m := newMartVerified(t, verify.ContinuousConfig{SharePercent: 100, Interval: 50 * time.Millisecond, UnchangedInterval: 50 * time.Millisecond})
	m.fill(t, 5, 6)
	began := time.Now()
	gauge := func(name, pipeline string) float64 {
		var rm metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &rm); err != nil {
			t.Fatal(err)
		}
		for _, scope := range rm.ScopeMetrics {
			for _, one := range scope.Metrics {
				if one.Name != "millrace.verify."+name {
					continue
				}
				switch data := one.Data.(type) {
				case metricdata.Gauge[float64]:
					for _, p := range data.DataPoints {
						if v, _ := p.Attributes.Value("pipeline"); v.AsString() == pipeline {
							return p.Value
						}
					}
				case metricdata.Gauge[int64]:
					for _, p := range data.DataPoints {
						if v, _ := p.Attributes.Value("pipeline"); v.AsString() == pipeline {
							return float64(p.Value)
						}
					}
				}
			}
		}
		return -1
	}
	proved := func() {
		t.Helper()
		since := time.Now()
		poll.Until(t, func() error {
			for _, name := range []string{"totals", "days", "lines", "files"} {
				coverage, age, drift := gauge("coverage", name), gauge("position_age", name), gauge("drift", name)
				if coverage != 1 || drift != 0 || age < 0 || age > time.Since(since).Seconds() {
					return fmt.Errorf("%s: coverage %g, age %g, drift %g", name, coverage, age, drift)
				}
			}
			return nil
		})
	}
	proved()
	m.plantItem(t, "line", "o1-2", "0", "", "")
	poll.Until(t, func() error {
		if coverage, drift := gauge("coverage", "lines"), gauge("drift", "lines"); drift != 1 || coverage >= 1 || coverage < 0.9 {
			return fmt.Errorf("coverage %g, drift %g", coverage, drift)
		}
		return nil
	})
	if age := gauge("position_age", "lines"); age > time.Since(began).Seconds() {
		t.Errorf("the last verification is %g s old", age)
	}
	poll.Until(t, func() error {
		switch found := m.status(t, "lines").Verified; {
		case found == nil || found.Drift != 1 || found.Verdict != verify.VerdictDrift:
			return fmt.Errorf("status tells of %+v", found)
		case found.Equal.IsZero() || len(found.EqualAt) != 2 || found.Coverage() >= 1:
			return fmt.Errorf("status tells of no verification: %+v", found)
		}
		return nil
	})
	if _, by := m.repair(t, verify.Config{}); by["lines"].Repaired != 1 {
		t.Errorf("repaired: %+v", by["lines"])
	}
	proved()
	poll.Until(t, func() error {
		if found := m.status(t, "lines").Verified; found.Drift != 0 || found.Verdict != verify.VerdictEqual {
			return fmt.Errorf("status tells of %+v", found)
		}
		return nil
	})
	if err := m.registry.Delete(t.Context(), "default", "lines"); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		if drift := gauge("drift", "lines"); drift != -1 {
			return fmt.Errorf("it is gone, and the metric tells of %g", drift)
		}
		return nil
	})
}

// TestAuditorRestsWhereNothingChanges lets a continuous verification find one pipeline
// different, at which it looks again and again, and the others equal. These it leaves alone
// until something is written that they copy.
func TestAuditorRestsWhereNothingChanges(t *testing.T) {
	m := newMartVerified(t, verify.ContinuousConfig{SharePercent: 100, Interval: 10 * time.Millisecond, UnchangedInterval: time.Hour})
	m.fill(t, 2, 2)
	m.idle(t)
	m.plantItem(t, "line", "o1-1", "0", "", "")
	// A pass may have found it equal before, and no log tells of what was planted.
	m.put(t, "sale", martOrder(0, 1, 7))
	m.idle(t)
	passes := func(name string, than time.Time) (at time.Time) {
		t.Helper()
		poll.Until(t, func() error {
			found := m.status(t, name).Verified
			if found == nil || !found.At.After(than) {
				return fmt.Errorf("%s: no pass since %v: %+v", name, than, found)
			}
			at = found.At
			return nil
		})
		return at
	}
	rest := []string{"totals", "days", "files"}
	// A first pass may have seen them behind, and what it found is saved after a round.
	poll.Until(t, func() error {
		for _, name := range rest {
			if found := m.status(t, name).Verified; found == nil || found.Verdict != verify.VerdictEqual {
				return fmt.Errorf("%s: %+v", name, found)
			}
		}
		return nil
	})
	several := func() {
		var at time.Time
		for range 4 {
			at = passes("lines", at)
		}
	}
	before := map[string]time.Time{}
	// On a busy machine an owner may lose its lease meanwhile and begin a term, which is a
	// commit. So it is tried until there is a time in which nothing was written.
	poll.Until(t, func() error {
		several()
		for _, name := range rest {
			before[name] = m.status(t, name).Verified.At
		}
		several()
		for _, name := range rest {
			if at := m.status(t, name).Verified.At; !at.Equal(before[name]) {
				return fmt.Errorf("%s: looked at again at %v, after %v, though nothing was written", name, at, before[name])
			}
		}
		return nil
	})
	m.fill(t, 2, 3)
	for _, name := range rest {
		passes(name, before[name])
	}
}

func TestAuditConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  verify.ContinuousConfig
		on   bool
		want string
	}{
		{cfg: verify.ContinuousConfig{}, on: true},
		{cfg: verify.ContinuousConfig{Continuous: "off", SharePercent: 1}},
		{cfg: verify.ContinuousConfig{Continuous: "false"}},
		{cfg: verify.ContinuousConfig{Continuous: "maybe"}, on: true, want: `verify.continuous is "maybe"; on or off is expected`},
		{cfg: verify.ContinuousConfig{Continuous: "on", SharePercent: 200}, on: true, want: "verify.sharePercent is 200; 1 to 100 are expected"},
		{cfg: verify.ContinuousConfig{Interval: -1}, on: true, want: "verify.interval, verify.unchangedInterval and verify.bytesMax must not be negative"},
	} {
		got := ""
		if err := c.cfg.Check(); err != nil {
			got = err.Error()
		}
		if got != c.want || c.cfg.On() != c.on {
			t.Errorf("%+v: %q, on %t", c.cfg, got, c.cfg.On())
		}
	}
}

// status returns where one pipeline stands.
func (n *node) status(t testing.TB, name string) *status.Pipeline {
	t.Helper()
	s, err := n.monitor.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Pipelines {
		if s.Pipelines[i].Name == name {
			return &s.Pipelines[i]
		}
	}
	t.Fatalf("status tells nothing of %s", name)
	return nil
}
