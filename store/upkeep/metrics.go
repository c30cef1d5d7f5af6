package upkeep

import (
	"context"

	"go.opentelemetry.io/otel/metric"

	"github.com/millrace/millrace/feed/meter"
)

// instruments tell of replicas.
type instruments struct{ missing, offline metric.Int64Gauge }

var meters = newInstruments(meter.Of("github.com/millrace/millrace/store/upkeep"))

func newInstruments(m meter.Meter) *instruments {
	return &instruments{
		missing: m.Gauge("millrace.replicas.missing", "{replica}", "Replicas that streams and buckets are to have and are not configured with."),
		offline: m.Gauge("millrace.replicas.offline", "{replica}", "Replicas of streams and buckets whose NATS server cannot be reached."),
	}
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
