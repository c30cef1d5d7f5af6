package node

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/millrace/millrace/pipelines/status"
)

// instruments tell where pipelines stand as a whole; their processors tell of
// themselves.
type instruments struct {
	lag, jobs, parked, stuck metric.Int64Gauge
	lagSeconds               metric.Float64Gauge
	copies                   metric.Int64Gauge
}

var meters = func() *instruments {
	m := otel.Meter("github.com/millrace/millrace/cmd/millrace/node")
	i := &instruments{}
	// The API returns no error for names that are constants.
	i.lag, _ = m.Int64Gauge("millrace.pipeline.lag", metric.WithUnit("{commit}"),
		metric.WithDescription("Commits that the pipeline has not processed, of all partitions."))
	i.lagSeconds, _ = m.Float64Gauge("millrace.pipeline.lag.duration", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest change or fan-out that is not finished; 0 if there is none."))
	i.jobs, _ = m.Int64Gauge("millrace.pipeline.fan_outs", metric.WithUnit("{fan-out}"),
		metric.WithDescription("Fan-outs that are open."))
	i.parked, _ = m.Int64Gauge("millrace.pipeline.parked", metric.WithUnit("{item}"),
		metric.WithDescription("Items whose newest state was given up and lies in the dead letters."))
	i.stuck, _ = m.Int64Gauge("millrace.pipeline.stuck",
		metric.WithDescription("1 if the pipeline has something to do and makes no progress, or has halted."))
	i.copies, _ = m.Int64Gauge("millrace.pipeline.copies", metric.WithUnit("{copy}"),
		metric.WithDescription("Copies changed, or rows written, since the pipeline's generation began."))
	return i
}()

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
