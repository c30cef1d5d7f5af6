package standby

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/millrace/millrace/feed/meter"
)

// instruments are this package's.
type instruments struct {
	partitions metric.Int64Gauge

	commits, yielded, failed, compared metric.Int64Counter
}

var meters = newInstruments(meter.Of("github.com/millrace/millrace/store/standby"))

func newInstruments(m meter.Meter) *instruments {
	return &instruments{
		partitions: m.Gauge("millrace.standby.partitions", "{partition}", "Partitions of other stores that this process keeps a copy of, by state: warm, or loading until it has reached the log's end, and while it is more than ten seconds behind."),
		commits:    m.Counter("millrace.standby.commits", "{commit}", "Commits that were applied to copies of other stores' partitions."),
		yielded:    m.Counter("millrace.standby.yielded", "{partition}", "Warm copies of which this process became the owner, so that nothing was loaded."),
		failed:     m.Counter("millrace.standby.failed", "{event}", "How often the following of a partition ended with an error and was begun anew; the log says why."),
		compared:   m.Counter("millrace.standby.compared", "{digest}", "How often the digest of a copy was compared with that of the partition's owner, by outcome: equal or different; the log says what differs."),
	}
}

var (
	isWarm    = metric.WithAttributeSet(attribute.NewSet(attribute.String("state", "warm")))
	isLoading = metric.WithAttributeSet(attribute.NewSet(attribute.String("state", "loading")))
)

var (
	isEqual     = metric.WithAttributeSet(attribute.NewSet(attribute.String("outcome", "equal")))
	isDifferent = metric.WithAttributeSet(attribute.NewSet(attribute.String("outcome", "different")))
)

func (i *instruments) follows(ctx context.Context, warm, loading int) {
	i.partitions.Record(ctx, int64(warm), isWarm)
	i.partitions.Record(ctx, int64(loading), isLoading)
}

// compares has the counter of comparisons begin at 0: the increase of one that begins at 1 is 0, and the first difference
// would raise no alert.
func (i *instruments) compares(ctx context.Context) {
	i.compared.Add(ctx, 0, isEqual)
	i.compared.Add(ctx, 0, isDifferent)
}
