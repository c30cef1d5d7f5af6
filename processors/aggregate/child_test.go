package aggregate_test

import (
	"encoding/json"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
)

// The reader of a partition that came by a split is a producer of which no target knows a position, and begins behind commits
// that its parent has folded: the first interval that it sends is taken, and has nothing of what was before.
func TestSplit_AChildIsANewProducer(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.cfg.RecordInterval = -1 // so that nothing is recorded before
	s.put(s.cfg.Target, map[string]any{"id": "c", "customerId": "c", "type": "customer"})
	s.start(s.cfg).Stop()
	s.order("o1", "c", 1, 10)
	begin := map[processors.Resource][]byte{}
	for r := range s.Checkpoints() {
		log, err := feed.OpenLog(t.Context(), s.JS, r.Partition, feed.LogConfig{})
		if err != nil {
			t.Fatal(err)
		}
		_, last, err := log.Bounds(t.Context())
		log.Close()
		if err != nil {
			t.Fatal(err)
		}
		cp := processors.Checkpoint{Position: feed.Position{LSN: last}, Log: log.ID(), Parent: &processors.Parent{Number: 9, Generation: 1, Last: last}}
		begin[r] = cp.Encode()
	}
	s.SetBack(begin)
	k := s.start(s.cfg)
	s.order("o2", "c", 1, 20)
	s.order("o1", "c", 1, 15) // folded as the difference to what the parent has folded
	s.Quiet(k)
	item, err := s.cfg.Target.Read(t.Context(), keyOf(t, "c"), "c")
	if err != nil {
		t.Fatal(err)
	}
	var is said
	if err := json.Unmarshal(item.Body, &is); err != nil {
		t.Fatal(err)
	}
	if is.Orders != 1 || is.Total != 25 {
		t.Errorf("the target says %+v, want one order of 20 and a difference of 5: %s", is, item.Body)
	}
}
