package gateway

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/store"
)

// What nobody could carry out is unavailable, and a client asks again. What may have been carried out is not
// said to be undone.
func TestTranslate_TroubleWithJetStream(t *testing.T) {
	noLeader := &jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "JetStream system temporarily unavailable"}
	for _, c := range []struct {
		err    error
		status int
		again  bool
	}{
		{nats.ErrNoResponders, 503, true},
		{jetstream.ErrNoStreamResponse, 503, true},
		{jetstream.ErrJetStreamNotEnabled, 503, true},
		{noLeader, 503, true},
		{&jetstream.APIError{Code: 500, ErrorCode: 10047, Description: "insufficient storage resources available"}, 500, false},
		{fmt.Errorf("%w: %w", store.ErrUnknown, noLeader), 408, false},
		{errors.New("something else"), 500, false},
	} {
		f := translate(fmt.Errorf("read container shop/things from the catalog: %w", c.err))
		if f.status != c.status || f.retryAfter > 0 != c.again {
			t.Errorf("%v: status %d, again after %v; want %d, %v", c.err, f.status, f.retryAfter, c.status, c.again)
		}
	}
}
