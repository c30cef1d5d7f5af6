package doctor

import (
	"context"

	"github.com/millrace/millrace/feed"
)

// FixBetween is Fix with something that happens behind its look.
func (d *Doctor) FixBetween(ctx context.Context, names map[feed.ResourceID]Name, between func()) (*Report, error) {
	f, err := d.begin(ctx, names)
	if err != nil {
		return nil, err
	}
	between()
	return f.run(ctx)
}
