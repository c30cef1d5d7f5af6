package standby

import (
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/digest"
)

// What is applied at once is bounded by number and by memory, and ends at what is said of digests. Who has all that has
// come knows that.
func TestGather(t *testing.T) {
	t.Parallel()
	says := func(c *feed.Control) *feed.Commit {
		return &feed.Commit{Transactions: []feed.Transaction{{Control: c}}}
	}
	small := func() *feed.Commit { return says(&feed.Control{Kind: store.ControlTakeover}) }
	large := says(&feed.Control{Kind: store.ControlState, Data: make([]byte, atOnceBytesMax/2)})
	many := make([]*feed.Commit, 2*atOnceMax)
	for i := range many {
		many[i] = small()
	}
	for _, tt := range []struct {
		name string
		come []*feed.Commit
		want int
		more bool
	}{
		{"one", []*feed.Commit{small()}, 1, false},
		{"all that have come", many[:5], 5, false},
		{"many", many, atOnceMax, true},
		{"large ones", []*feed.Commit{large, large, large, large}, 2, true},
		{"an order among others", []*feed.Commit{small(), says(digest.Order()), small()}, 2, true},
		{"a digest first", []*feed.Commit{says(digest.Digest{LSN: 7}.Tell()), small()}, 1, true},
	} {
		rest := tt.come[1:]
		got, more := gather([]*feed.Commit{tt.come[0]}, func() *feed.Commit {
			if len(rest) == 0 {
				return nil
			}
			c := rest[0]
			rest = rest[1:]
			return c
		})
		if len(got) != tt.want || more != tt.more {
			t.Errorf("%s: %d are applied at once, more may have come: %t; want %d, %t", tt.name, len(got), more, tt.want, tt.more)
		}
	}
}
