package owner

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
)

// TestGivesUp_LessOftenEachTime: a lease that comes back to a store without room is kept for longer,
// so that stores of which none has room do not hand it to and fro.
func TestGivesUp_LessOftenEachTime(t *testing.T) {
	id := feed.Partition{Container: "aaaaaaaa"}
	s := &Server{lacking: map[feed.Partition]int{}}
	tries := func() (n int) {
		for n = 1; !s.givesUp(id, n); n++ {
		}
		return n
	}
	var got []int
	for range 5 {
		got = append(got, tries())
	}
	s.endLack(id)
	got = append(got, tries())
	if diff := cmp.Diff([]int{2, 8, 32, 128, 128, 2}, got); diff != "" {
		t.Error(diff)
	}
	s.cfg.Alone = true
	if s.givesUp(id, 1_000_000) {
		t.Error("a store that is alone leaves its partition to nobody")
	}
}
