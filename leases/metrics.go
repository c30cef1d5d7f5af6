package leases

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/millrace/millrace/feed/meter"
)

// instruments are this package's.
type instruments struct {
	handovers metric.Int64Counter
	ended     metric.Int64Counter
	held      metric.Int64UpDownCounter
	renewals  metric.Float64Histogram
}

var meters = newInstruments(meter.Of("github.com/millrace/millrace/leases"))

func newInstruments(m meter.Meter) *instruments {
	return &instruments{
		handovers: m.Counter("millrace.lease.handovers", "{lease}", "Leases taken by this process, by how: free, expired, of a holder that is gone or was deposed, or reclaimed from an earlier incarnation."),
		ended:     m.Counter("millrace.lease.ended", "{lease}", "Leases that ended in this process, by cause."),
		held:      m.UpDownCounter("millrace.lease.held", "{lease}", "Leases held by this process."),
		renewals:  m.Durations("millrace.lease.renewal.duration", "Duration of a renewal or checkpoint, tries included, by outcome."),
	}
}

func groupAttr(name string) attribute.KeyValue { return attribute.String("group", name) }

// took and gave count the same lease, so held is their difference.
func (i *instruments) took(ctx context.Context, groupName, how string) {
	i.handovers.Add(ctx, 1, metric.WithAttributes(groupAttr(groupName), attribute.String("how", how)))
	i.held.Add(ctx, 1, metric.WithAttributes(groupAttr(groupName)))
}

func (i *instruments) gave(ctx context.Context, groupName, cause string) {
	i.ended.Add(ctx, 1, metric.WithAttributes(groupAttr(groupName), attribute.String("cause", cause)))
	i.held.Add(ctx, -1, metric.WithAttributes(groupAttr(groupName)))
}

func (i *instruments) renewed(ctx context.Context, groupName string, took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	i.renewals.Record(ctx, took.Seconds(),
		metric.WithAttributes(groupAttr(groupName), attribute.String("outcome", outcome)))
}

// causeName returns the value of the attribute "cause". The values are few and fixed, so that
// the metric has few series.
func causeName(cause error) string {
	switch {
	case cause == nil:
		return "returned"
	case errors.Is(cause, ErrLost):
		return "lost"
	case errors.Is(cause, ErrStalled):
		return "stalled"
	case errors.Is(cause, ErrDraining):
		return "draining"
	case errors.Is(cause, ErrMoved):
		return "moved"
	case errors.Is(cause, ErrWithdrawn):
		return "withdrawn"
	default:
		return "failed"
	}
}
