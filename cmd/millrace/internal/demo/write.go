package demo

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/cmd/millrace/internal/ingest"
)

// liveEvery is the time between two reports of a step's progress.
const liveEvery = 100 * time.Millisecond

// patience is how long a write is tried again while the store cannot take it.
const patience = time.Minute

// op is one write. To do it twice is to do it once, so it may be tried again when its
// answer was lost. Writes with the same id are done in order.
type op struct {
	id string
	do func(ctx context.Context) error
}

func (d *demo) put(it item) op {
	ct := d.container(it.container)
	return op{id: it.id, do: func(ctx context.Context) error {
		if _, err := ct.Upsert(ctx, it.body); err != nil {
			return fmt.Errorf("write %s to %s: %w", it.id, it.container, err)
		}
		return nil
	}}
}

var seed = maphash.MakeSeed()

// run does all writes by cfg.Writers goroutines and calls live now and then.
func (d *demo) run(ctx context.Context, ops []op, live func(done int)) error {
	g, ctx := errgroup.WithContext(ctx)
	var done atomic.Int64
	// Each writer has a queue of its own, and an id always goes to the same queue: that
	// keeps the order of an id's writes, a rename and the next one of the same category.
	queues := make([]chan op, d.cfg.Writers)
	for i := range queues {
		queues[i] = make(chan op, 8)
		g.Go(func() error {
			for o := range queues[i] {
				if ctx.Err() != nil {
					continue // empty the queue: whoever fills it sees ctx too, and closes it
				}
				if err := ingest.Retry(ctx, patience, func() error { return o.do(ctx) }); err != nil {
					return err
				}
				done.Add(1)
			}
			return nil
		})
	}
	finished := make(chan struct{})
	g.Go(func() error {
		defer func() {
			for _, q := range queues {
				close(q)
			}
		}()
		for _, o := range ops {
			select {
			case queues[maphash.String(seed, o.id)%uint64(len(queues))] <- o:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	result := make(chan error, 1)
	go func() {
		result <- g.Wait()
		close(finished)
	}()
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	for {
		select {
		case <-finished:
			return <-result
		case <-tick.C:
			live(int(done.Load()))
		}
	}
}
