package owner

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/meter"
	"github.com/millrace/millrace/store/heat"
)

const instrumentation = "github.com/millrace/millrace/store/owner"

// tracer follows the provider that the process sets, also later.
var tracer = otel.Tracer(instrumentation)

// instruments are this package's.
type instruments struct {
	commitDuration metric.Float64Histogram
	appendDuration metric.Float64Histogram
	commitRequests metric.Int64Histogram
	commitBytes    metric.Int64Histogram
	changes        metric.Int64Counter
	fenced         metric.Int64Counter
	held           metric.Int64Counter
	heldDuration   metric.Float64Gauge
	diskFree       metric.Int64Gauge

	snapshots, snapshotsFailed, snapshotsLoaded, snapshotBytes metric.Int64Counter

	trims, trimsFailed, trimmedBytes metric.Int64Counter

	requests, requestBytes metric.Int64Counter
	requestTime            metric.Float64Counter

	standbyReads metric.Int64Counter
}

var meters = newInstruments(meter.Of(instrumentation))

func newInstruments(m meter.Meter) *instruments {
	return &instruments{
		commitDuration:  m.Durations("millrace.commit.duration", "From the first byte encoded to the answer: append, sync and apply of one commit."),
		appendDuration:  m.Durations("millrace.commit.append.duration", "Append of one commit to the log, with its sync."),
		commitRequests:  m.Histogram("millrace.commit.requests", "{request}", "Requests answered by one commit."),
		commitBytes:     m.Histogram("millrace.commit.size", "By", "Size of one commit as the log stores it, compressed if it is."),
		changes:         m.Counter("millrace.changes", "{change}", "Changes committed, by cause: client or pipeline."),
		fenced:          m.Counter("millrace.fenced", "{write}", "Writes refused because their writer had lost its lease: appends of an owner, and pipelines' writes of an older epoch."),
		held:            m.Counter("millrace.decider.held", "{event}", "How often one thing held all writes of a partition for more than a second; the log says what."),
		heldDuration:    m.DurationGauge("millrace.decider.held.duration", "For how long one thing has held all writes of a partition; the longest of this process, 0 below a second."),
		snapshots:       m.Counter("millrace.snapshots.taken", "{snapshot}", "Snapshots of partitions that were taken and read back."),
		snapshotsFailed: m.Counter("millrace.snapshots.failed", "{snapshot}", "Snapshots that could not be taken; the log says why."),
		snapshotsLoaded: m.Counter("millrace.snapshots.loaded", "{snapshot}", "Snapshots from which an engine's partition was made."),
		snapshotBytes:   m.Counter("millrace.snapshots.size", "By", "What snapshots took in their store, compressed."),
		trims:           m.Counter("millrace.trims", "{trim}", "How often the beginning of a partition's log was trimmed."),
		trimsFailed:     m.Counter("millrace.trims.failed", "{trim}", "Trims that failed and are tried again; the log says why."),
		trimmedBytes:    m.Counter("millrace.trims.size", "By", "What was trimmed from logs."),

		requests:     m.Counter("millrace.partition.requests", "{request}", "Requests that a physical partition answered, by database, container, partition and operation: read or write."),
		requestBytes: m.Counter("millrace.partition.size", "By", "Bytes of items that a physical partition answered, and of changes that it wrote to its log."),
		requestTime:  m.DurationCounter("millrace.partition.duration", "Time of the readers and of the decider of a physical partition, estimated from a sample of the requests."),

		standbyReads: m.Counter("millrace.standby.reads", "{request}", "Reads that were answered by this process's copies of other stores' partitions."),

		diskFree: m.Gauge("millrace.disk.free", "By", "Free space on the disk of the data directory, or on that of the embedded server's logs if it is less."),
	}
}

// record counts one commit.
func record(ctx context.Context, c *feed.Commit, size, requests int, start, appended time.Time) {
	meters.commitDuration.Record(ctx, time.Since(start).Seconds())
	meters.appendDuration.Record(ctx, appended.Sub(start).Seconds())
	meters.commitRequests.Record(ctx, int64(requests))
	meters.commitBytes.Record(ctx, int64(size))
	var client, pipeline int64
	for i := range c.Transactions {
		if c.Transactions[i].Effect != nil {
			pipeline += int64(len(c.Transactions[i].Changes))
		} else {
			client += int64(len(c.Transactions[i].Changes))
		}
	}
	if client > 0 {
		meters.changes.Add(ctx, client, byClient)
	}
	if pipeline > 0 {
		meters.changes.Add(ctx, pipeline, byPipeline)
	}
}

var (
	byClient   = metric.WithAttributeSet(attribute.NewSet(attribute.String("cause", "client")))
	byPipeline = metric.WithAttributeSet(attribute.NewSet(attribute.String("cause", "pipeline")))
)

// heatInterval is the time between two counts of what partitions were asked for.
const heatInterval = 5 * time.Second

// heatLoop counts what the partitions were asked for.
func (s *Server) heatLoop(ctx context.Context) {
	t := time.NewTicker(heatInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			for _, p := range s.partitions() {
				s.countHeat(ctx, p)
			}
		}
	}
}

// operations are the values of the attribute operation.
var operations = map[heat.Class]string{heat.Read: "read", heat.Write: "write"}

// countHeat counts what a partition was asked for since the last time. By keys nothing is counted:
// they are data, and more than a metric has room for.
func (s *Server) countHeat(ctx context.Context, p *Partition) {
	s.mu.Lock()
	info := s.containers[p.id.Container]
	s.mu.Unlock()
	for class, operation := range operations {
		load := p.heat.Take(class)                 // since the last time: a counter only adds
		if load.Requests == 0 || info.Name == "" { // its container was deleted
			continue
		}
		of := metric.WithAttributeSet(attribute.NewSet(
			attribute.String("database", info.Database), attribute.String("container", info.Name),
			attribute.String("partition", strconv.FormatUint(uint64(p.id.Number), 10)), attribute.String("operation", operation)))
		meters.requests.Add(ctx, int64(load.Requests), of)
		meters.requestBytes.Add(ctx, int64(load.Bytes), of)
		meters.requestTime.Add(ctx, load.Time.Seconds(), of)
	}
}
