package owner

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/millrace/millrace/feed"
)

const instrumentation = "github.com/millrace/millrace/store/owner"

// tracer follows the provider that the process sets, also later.
var tracer = otel.Tracer(instrumentation)

var (
	meter = otel.Meter(instrumentation)

	commitDuration = must(meter.Float64Histogram("millrace.commit.duration",
		metric.WithUnit("s"), metric.WithDescription("From the first byte encoded to the answer: append, sync and apply of one commit.")))
	appendDuration = must(meter.Float64Histogram("millrace.commit.append.duration",
		metric.WithUnit("s"), metric.WithDescription("Append of one commit to the log, with its sync.")))
	commitRequests = must(meter.Int64Histogram("millrace.commit.requests",
		metric.WithUnit("{request}"), metric.WithDescription("Requests answered by one commit.")))
	commitBytes = must(meter.Int64Histogram("millrace.commit.size",
		metric.WithUnit("By"), metric.WithDescription("Encoded size of one commit.")))
	changesTotal = must(meter.Int64Counter("millrace.changes",
		metric.WithUnit("{change}"), metric.WithDescription("Changes committed, by cause: client, pipeline or expiry, and by container: its heat.")))
	fencedTotal = must(meter.Int64Counter("millrace.fenced",
		metric.WithUnit("{write}"), metric.WithDescription("Writes refused because their writer had lost its lease: appends of an owner, and pipelines' writes of an older epoch.")))
	heldTotal = must(meter.Int64Counter("millrace.decider.held",
		metric.WithUnit("{event}"), metric.WithDescription("How often one thing held all writes of a partition for more than a second; the log says what.")))
	heldDuration = must(meter.Float64Gauge("millrace.decider.held.duration",
		metric.WithUnit("s"), metric.WithDescription("For how long one thing has held all writes of a partition; the longest of this process, 0 below a second.")))
	diskFree = must(meter.Int64Gauge("millrace.disk.free",
		metric.WithUnit("By"), metric.WithDescription("Free space on the disk of the data directory, or on that of the embedded server's logs if it is less.")))
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // a name or unit of this file is malformed
	}
	return v
}

// record counts one commit.
func record(ctx context.Context, c *feed.Commit, size, requests int, start, appended time.Time) {
	commitDuration.Record(ctx, time.Since(start).Seconds())
	appendDuration.Record(ctx, appended.Sub(start).Seconds())
	commitRequests.Record(ctx, int64(requests))
	commitBytes.Record(ctx, int64(size))
	var client, pipeline int64
	for i := range c.Transactions {
		if c.Transactions[i].Effect != nil {
			pipeline += int64(len(c.Transactions[i].Changes))
		} else {
			client += int64(len(c.Transactions[i].Changes))
		}
	}
	if client > 0 {
		changesTotal.Add(ctx, client, byClient)
	}
	if pipeline > 0 {
		changesTotal.Add(ctx, pipeline, byPipeline)
	}
}

var (
	byClient   = metric.WithAttributeSet(attribute.NewSet(attribute.String("cause", "client")))
	byPipeline = metric.WithAttributeSet(attribute.NewSet(attribute.String("cause", "pipeline")))
)
