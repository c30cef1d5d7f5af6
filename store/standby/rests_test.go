package standby_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
)

// A follower that has come to the log's end rests between two batches: it has one request at the server, which ends with what it
// brings. Before, it reads ahead by two.
func TestAFollowerRests(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ct, id, _ := c.things()
	b := c.start("b", t.TempDir())
	b.ready(id)
	var last feed.LSN
	for n := range 600 { // more than it has asked for ahead
		item, err := ct.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","k":"k1","n":1,"u":"%d"}`, n%50, n%50))
		if err != nil {
			t.Fatal(err)
		}
		last = item.ETag.LSN
	}
	stream, err := c.srv.JS.Stream(t.Context(), id.Stream())
	if err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		if reached := c.warm(id)[b.node()]; reached < last {
			return fmt.Errorf("the copy holds LSN %d of %d", reached, last)
		}
		var waiting []int
		for consumer := range stream.ListConsumers(t.Context()).Info() {
			waiting = append(waiting, consumer.NumWaiting)
		}
		if len(waiting) != 1 || waiting[0] != 1 {
			return fmt.Errorf("the consumers have %d requests, want one of one", waiting)
		}
		return nil
	})
}
