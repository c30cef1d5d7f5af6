package standby

import (
	"context"
	"log/slog"
	"testing"

	"github.com/millrace/millrace/feed"
)

// TestAnOwnersCopyIsNotDropped ends a follower as unwanted when an owner in this process has asked for the copy. To
// drop it, the follower would use owners that were never made.
func TestAnOwnersCopyIsNotDropped(t *testing.T) {
	t.Parallel()
	id := feed.Partition{Container: "abcdefgh"}
	s := &Standbys{followers: map[feed.Partition]*follower{}, owned: map[feed.Partition]int{}}
	back, err := s.Yield(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer back()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errUnwanted)
	f := &follower{s: s, id: id, log: slog.New(slog.DiscardHandler)}
	f.run(ctx)
}
