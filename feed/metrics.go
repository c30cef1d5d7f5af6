package feed

import (
	"go.opentelemetry.io/otel/metric"

	"github.com/millrace/millrace/feed/meter"
)

// instruments are this package's. They count what heals by itself, so that an
// operator sees it; commits and delivery are measured by those who own them.
type instruments struct {
	retries  metric.Int64Counter
	restarts metric.Int64Counter
}

var meters = newInstruments(meter.Of("github.com/millrace/millrace/feed"))

func newInstruments(m meter.Meter) *instruments {
	return &instruments{
		retries:  m.Counter("millrace.log.append.retries", "{attempt}", "Appends sent again because no answer came, or one that decided nothing."),
		restarts: m.Counter("millrace.tail.restarts", "{restart}", "Consumers made anew because they broke, fell silent or lost a message."),
	}
}
