package processors

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// ErrLost says that what a retry needs is not to be had any more, so that no retry of the dead
// letter will ever succeed: the change that was given up, or those of its item that came later.
var ErrLost = errors.New("processors: the log was trimmed, and the dead letter does not keep it")

// Bounds of one page of the log in which later changes are looked for.
const (
	laterCommitsMax = 256
	laterBytesMax   = 4 << 20
)

// laterLog is what readLater needs of a feed.Log.
type laterLog interface {
	Bounds(ctx context.Context) (first, last feed.LSN, err error)
	ReadPage(ctx context.Context, from feed.LSN, commitsMax, bytesMax int) ([]*feed.Commit, error)
}

// readLater calls each with the changes of an item that the log holds behind one of it, in order.
// It reads all of the log from there on, however long that is, and calls progress after each page.
func readLater(ctx context.Context, log laterLog, p *Parked, progress func(), each func(*feed.Change) error) error {
	ref, err := store.ParseItemRef(p.Item)
	if err != nil {
		return Reject(err)
	}
	first, last, err := log.Bounds(ctx)
	if err != nil {
		return fmt.Errorf("read what came later than change %s: %w", p.At, err)
	}
	// What a walk showed is as of the end of its commit.
	next := p.At.LSN
	if _, walked := p.At.Walked(); walked {
		next++
	}
	if next < first {
		return Reject(fmt.Errorf("what came later than change %s of its item: %w", p.At, ErrLost))
	}
	for next <= last {
		page, err := log.ReadPage(ctx, next, laterCommitsMax, laterBytesMax)
		if err != nil {
			return fmt.Errorf("read what came later than change %s: %w", p.At, err)
		}
		if len(page) == 0 {
			return store.Refuse(store.StatusUnavailable, "the log answers with nothing from %s on; try again", next)
		}
		for _, c := range page {
			if err := eachOf(c, ref, p.At, each); err != nil {
				return err
			}
		}
		next = page[len(page)-1].LSN + 1
		progress()
	}
	return nil
}

// eachOf calls each with the changes of an item in a commit, behind a position.
func eachOf(c *feed.Commit, ref store.ItemRef, after feed.Position, each func(*feed.Change) error) error {
	at := feed.Position{LSN: c.LSN}
	for i := range c.Transactions {
		for j := range c.Transactions[i].Changes {
			ch := &c.Transactions[i].Changes[j]
			if after.Before(at) && ch.ID == ref.ID && ch.Key == ref.Key {
				if err := each(ch); err != nil {
					return err
				}
			}
			at.Index++
		}
	}
	return nil
}
