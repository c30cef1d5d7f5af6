package buckettest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// Watch is one watch of a Client, with faults.
type Watch struct {
	Dead   bool   // delivers nothing any more, and does not say so
	Broken bool   // ends, and says so
	Misses string // changes of keys that begin so are not delivered; "": all are

	client   *Client
	wake     chan struct{}
	patterns []string
	queue    []bucket.Update
	from     uint64 // changes up to this revision are not delivered
}

func (w *Watch) offer(u bucket.Update) {
	if u.Revision > w.from && slices.ContainsFunc(w.patterns, func(p string) bool {
		return strings.HasPrefix(u.Key, strings.TrimSuffix(p, ">"))
	}) {
		w.queue = append(w.queue, u)
		w.notify()
	}
}

func (w *Watch) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// next returns what is to be delivered next, and whether the watch goes on.
func (w *Watch) next() (u bucket.Update, ok, on bool) {
	f := w.client.Faults()
	w.client.s.mu.Lock()
	defer w.client.s.mu.Unlock()
	switch {
	case w.Broken:
		return bucket.Update{}, false, false
	case len(w.queue) == 0 || w.Dead || f.Mute || f.Down:
		return bucket.Update{}, false, true
	}
	u, w.queue = w.queue[0], w.queue[1:]
	return u, true, true
}

// Watch is bucket.Store's.
func (c *Client) Watch(ctx context.Context, patterns ...string) (<-chan bucket.Update, error) {
	c.runs()
	if err := c.Travel(ctx); err != nil {
		return nil, err
	}
	w := &Watch{client: c, patterns: patterns, wake: make(chan struct{}, 1)}
	late := c.Faults().Late
	c.s.mu.Lock()
	first := c.s.keys
	if late != nil {
		first = late.Keys
	}
	for _, e := range byRevision(first) {
		w.offer(bucket.Update{Entry: e})
	}
	w.queue = append(w.queue, bucket.Update{Ready: true})
	for _, e := range byRevision(c.s.keys) {
		if late != nil && e.Revision > late.Revision {
			w.offer(bucket.Update{Entry: e})
		}
	}
	w.notify()
	c.s.watches[w] = true
	c.s.mu.Unlock()
	out := make(chan bucket.Update)
	go w.deliver(ctx, out)
	return out, nil
}

func (w *Watch) deliver(ctx context.Context, out chan<- bucket.Update) {
	c := w.client
	defer close(out)
	defer func() {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		delete(c.s.watches, w)
	}()
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(Latency):
		case <-ctx.Done():
		}
		for {
			c.runs()
			u, ok, on := w.next()
			if !on {
				return
			}
			if !ok {
				break
			}
			c.runs()
			select {
			case out <- u:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Spoil changes the client's present watches.
func (c *Client) Spoil(change func(w *Watch)) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for w := range c.s.watches {
		if w.client == c {
			change(w)
			w.notify()
		}
	}
}
