package aggregate_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/feed"
)

// Two changes of one partition are given up, the second is the last thing that happens. Both
// are tried again, the older one first.
func TestI5_TwoGivenUpAndRetried(t *testing.T) {
	s := newShop(t)
	k := s.start(s.cfg)
	allow := refuse(k, "bad")
	// Two orders that lie in one partition of the source.
	var ids []string
	parts := map[feed.Partition][]string{}
	for i := 0; len(ids) == 0; i++ {
		id := fmt.Sprint("o", i)
		p := s.cfg.Source.PartitionFor(keyOf(t, id))
		if parts[p] = append(parts[p], id); len(parts[p]) == 2 {
			ids = parts[p]
		}
	}
	for i, id := range ids {
		s.order(id, "bad", i+1, 10)
		s.deadLetter(fmt.Sprintf(`["%s"]/%s`, id, id))
		parked(t, k, i+1)
	}
	s.Quiet(k)
	allow()
	for _, id := range ids {
		s.retry(fmt.Sprintf(`["%s"]/%s`, id, id))
	}
	parked(t, k, 0)
	s.Quiet(k)
	s.order("later"+ids[0], "other", 1, 1)
	s.Quiet(k)
	s.check("both tried again")
}
