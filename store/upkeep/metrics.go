package upkeep

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
)

// instruments tell of replicas.
type instruments struct{ missing, offline metric.Int64Gauge }

func newInstruments() *instruments {
	m := otel.Meter("github.com/millrace/millrace/store/upkeep")
	i := &instruments{}
	// The API returns no error for names that are constants.
	i.missing, _ = m.Int64Gauge("millrace.replicas.missing", metric.WithUnit("{replica}"),
		metric.WithDescription("Replicas that streams and buckets are to have and are not configured with."))
	i.offline, _ = m.Int64Gauge("millrace.replicas.offline", metric.WithUnit("{replica}"),
		metric.WithDescription("Replicas of streams and buckets whose NATS server cannot be reached."))
	return i
}

func (i *instruments) record(ctx context.Context, r *Report) {
	missing, offline := 0, 0
	for j := range r.Streams {
		missing += max(r.Streams[j].Wanted-r.Streams[j].Actual, 0)
		offline += len(r.Streams[j].Offline)
	}
	i.missing.Record(ctx, int64(missing))
	i.offline.Record(ctx, int64(offline))
}
