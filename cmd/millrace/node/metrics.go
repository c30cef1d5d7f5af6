package node

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/millrace/millrace/feed/meter"
	"github.com/millrace/millrace/pipelines/status"
)

// instruments tell where pipelines stand as a whole, whose processors tell of
// themselves, and of the connections of http.listen.
type instruments struct {
	lag, jobs, parked, stuck metric.Int64Gauge
	lagSeconds               metric.Float64Gauge
	copies                   metric.Int64Gauge
	connections              metric.Int64UpDownCounter
	evicted                  metric.Int64Counter
}

var meters = newInstruments(meter.Of("github.com/millrace/millrace/cmd/millrace/node"))

func newInstruments(m meter.Meter) *instruments {
	return &instruments{
		lag:        m.Gauge("millrace.pipeline.lag", "{commit}", "Commits that the pipeline has not processed, of all partitions."),
		lagSeconds: m.DurationGauge("millrace.pipeline.lag.duration", "Age of the oldest change or fan-out that is not finished; 0 if there is none."),
		jobs:       m.Gauge("millrace.pipeline.fan_outs", "{fan-out}", "Fan-outs that are open."),
		parked:     m.Gauge("millrace.pipeline.parked", "{item}", "Items whose newest state was given up and lies in the dead letters."),
		stuck:      m.Gauge("millrace.pipeline.stuck", "", "1 if the pipeline has something to do and makes no progress, or has halted."),
		copies:     m.Gauge("millrace.pipeline.copies", "{copy}", "Copies changed, or rows written, since the pipeline's generation began."),

		connections: m.UpDownCounter("millrace.http.connections", "{connection}", "Connections of http.listen that are open."),
		evicted:     m.Counter("millrace.http.connections.evicted", "{connection}", "Connections closed because of http.connectionsMax: idle ones for new ones, or new ones."),
	}
}

func recordStatus(ctx context.Context, s *status.Status) {
	for i := range s.Pipelines {
		p := &s.Pipelines[i]
		which := metric.WithAttributeSet(attribute.NewSet(
			attribute.String("database", p.Database), attribute.String("pipeline", p.Name)))
		stuck := int64(0)
		if p.State.Unwell() {
			stuck = 1
		}
		meters.lag.Record(ctx, int64(p.Lag.Commits), which)
		meters.lagSeconds.Record(ctx, p.Lag.Seconds, which)
		meters.jobs.Record(ctx, int64(len(p.FanOuts)), which)
		meters.parked.Record(ctx, int64(p.Parked), which)
		meters.stuck.Record(ctx, stuck, which)
		meters.copies.Record(ctx, p.Counts.Copies+p.Counts.Rows, which)
	}
}
