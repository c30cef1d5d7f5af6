package leases

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics are the instruments of one Manager.
type metrics struct {
	handovers metric.Int64Counter
	ended     metric.Int64Counter
	held      metric.Int64UpDownCounter
	renewals  metric.Float64Histogram
}

func newMetrics() (*metrics, error) {
	meter := otel.Meter("github.com/millrace/millrace/leases")
	var m metrics
	var errs [4]error
	m.handovers, errs[0] = meter.Int64Counter("millrace.lease.handovers", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases taken by this process, by how: free, expired or reclaimed from an earlier incarnation."))
	m.ended, errs[1] = meter.Int64Counter("millrace.lease.ended", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that ended in this process, by cause."))
	m.held, errs[2] = meter.Int64UpDownCounter("millrace.lease.held", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases held by this process."))
	m.renewals, errs[3] = meter.Float64Histogram("millrace.lease.renewal.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of a renewal or checkpoint, tries included, by outcome."))
	return &m, errors.Join(errs[:]...)
}

func groupAttr(name string) attribute.KeyValue { return attribute.String("group", name) }

func (m *metrics) took(ctx context.Context, groupName, how string) {
	m.handovers.Add(ctx, 1, metric.WithAttributes(groupAttr(groupName), attribute.String("how", how)))
	m.held.Add(ctx, 1, metric.WithAttributes(groupAttr(groupName)))
}

func (m *metrics) gave(ctx context.Context, groupName, cause string) {
	m.ended.Add(ctx, 1, metric.WithAttributes(groupAttr(groupName), attribute.String("cause", cause)))
	m.held.Add(ctx, -1, metric.WithAttributes(groupAttr(groupName)))
}

func (m *metrics) renewed(ctx context.Context, groupName string, took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	m.renewals.Record(ctx, took.Seconds(),
		metric.WithAttributes(groupAttr(groupName), attribute.String("outcome", outcome)))
}

// causeName is the attribute for the end of a lease.
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
