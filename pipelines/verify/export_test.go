package verify

import (
	"context"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// History shows the items of a partition, and then the changes up to the end of its
// log, as a verification sees them.
func (v *Verifier) History(ctx context.Context, c *store.Container, p feed.Partition, itemsMax int, items func([]store.Item) error, change func(feed.Position, *feed.Change) error) error {
	h := (&verification{Verifier: v}).history(c, p)
	defer h.close()
	visit := func(e *event) error { return change(e.at, e.Change) }
	if err := h.scan(ctx, itemsMax, items, visit); err != nil {
		return err
	}
	end, err := h.logEnd(ctx)
	if err != nil {
		return err
	}
	return h.follow(ctx, end, visit)
}
