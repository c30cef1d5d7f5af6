package leases_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
)

// TestGone_ConnectionOfADeadProcessEnds: the server tells at once that nobody has a connection under a name any more, so
// leases that would live for ten minutes are taken.
func TestGone_ConnectionOfADeadProcessEnds(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	config := func(node string) leases.Config {
		cfg := fast(node)
		cfg.TTL, cfg.RenewInterval, cfg.Fenced = 10*time.Minute, 2*time.Second, true
		return cfg
	}
	resources := names(8)
	js, nc := connect(t, s)
	a := start(t, js, config("a"), resources...)
	js, _ = connect(t, s)
	b := start(t, js, config("b"), resources...)
	a.waitCount(t, 4)
	b.waitCount(t, 4)
	// Some times: when a is asked again, b knows that it has answered, unless the answer came too late.
	_, spy := connect(t, s)
	asked, err := spy.SubscribeSync("millrace.lease.store." + strings.Replace(a.m.Holder(), "/", ".", 1))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), poll.Most)
	defer cancel()
	for range 6 {
		if _, err := asked.NextMsgWithContext(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := asked.Unsubscribe(); err != nil { // or it would be there in place of a
		t.Fatal(err)
	}
	nc.Close() // as by kill -9: a does not hand over
	b.waitCount(t, 8)
	for _, resource := range resources {
		if held := b.get(resource); held == nil || held.Epoch() == 0 {
			t.Errorf("b does not hold %s", resource)
		}
	}
	b.end(t)
}
