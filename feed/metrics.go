package feed

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
)

// instruments are this package's. They count what heals by itself, so that an
// operator sees it; commits and delivery are measured by those who own them.
type instruments struct {
	retries  metric.Int64Counter
	restarts metric.Int64Counter
}

var meters = newInstruments(otel.Meter("github.com/millrace/millrace/feed"))

func newInstruments(m metric.Meter) *instruments {
	i := &instruments{}
	i.retries, _ = m.Int64Counter("millrace.log.append.retries", metric.WithUnit("{attempt}"),
		metric.WithDescription("Appends sent again because no answer came, or one that decided nothing."))
	i.restarts, _ = m.Int64Counter("millrace.tail.restarts", metric.WithUnit("{restart}"),
		metric.WithDescription("Consumers made anew because they broke, fell silent or lost a message."))
	return i
}
