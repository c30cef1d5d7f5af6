package buckettest

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// Faults are those of one process's way to the server.
type Faults struct {
	Down  bool                  // nothing arrives, nothing comes back
	Lose  int                   // replies of the next puts that are lost
	Loses func(key string) bool // whether a put's reply is lost too
	Delay time.Duration         // by which puts arrive late, unless Down
	Mute  bool                  // watches deliver nothing, now or later
	Late  *State                // what new watches deliver at first, as from a replica that lags
	Stale *State                // what reads are answered from, as by a leader that was succeeded
	Put   func(key string)      // called when a put leaves
}

// Client is one process's way to a Server. It is a bucket.Store.
type Client struct {
	s      *Server
	mu     sync.Mutex // guards what follows
	faults Faults
	paused chan struct{} // closed when the process goes on; nil: it runs
}

var _ bucket.Store = (*Client)(nil)

// Client returns a way without faults.
func (s *Server) Client() *Client { return &Client{s: s} }

// Set changes the faults.
func (c *Client) Set(change func(f *Faults)) {
	c.mu.Lock()
	change(&c.faults)
	c.mu.Unlock()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for w := range c.s.watches {
		w.notify()
	}
}

// Faults returns the present ones.
func (c *Client) Faults() Faults {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.faults
}

// Pause stops the process: nothing leaves it, and it does not come to read what arrives. Its clock goes on.
func (c *Client) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused == nil {
		c.paused = make(chan struct{})
	}
}

// Resume lets the process go on, if it is stopped.
func (c *Client) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused != nil {
		close(c.paused)
		c.paused = nil
	}
}

// runs waits while the process is stopped.
func (c *Client) runs() {
	c.mu.Lock()
	paused := c.paused
	c.mu.Unlock()
	if paused != nil {
		<-paused
	}
}

// Travel takes as long as the way to the server and back. It returns when ctx ends where that is Down.
func (c *Client) Travel(ctx context.Context) error {
	select {
	case <-time.After(2 * Latency):
	case <-ctx.Done():
	}
	if c.Faults().Down {
		<-ctx.Done()
	}
	return ctx.Err()
}

// Get is bucket.Store's.
func (c *Client) Get(ctx context.Context, key string) (bucket.Entry, error) {
	c.runs()
	defer c.runs()
	if err := c.Travel(ctx); err != nil {
		return bucket.Entry{}, err
	}
	stale := c.Faults().Stale
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	keys := c.s.keys
	if stale != nil {
		keys = stale.Keys
	}
	e, ok := keys[key]
	if !ok {
		return bucket.Entry{}, bucket.ErrNotFound
	}
	return e, nil
}

// Put is bucket.Store's.
func (c *Client) Put(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	c.runs()
	c.mu.Lock()
	f := c.faults
	c.faults.Lose = max(c.faults.Lose-1, 0)
	c.mu.Unlock()
	if f.Put != nil {
		f.Put(key)
	}
	lose := f.Loses != nil && f.Loses(key) || f.Lose > 0
	type result struct {
		revision uint64
		err      error
	}
	replied := make(chan result, 1)
	if c.Faults().Down {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	c.s.flights.Go(func() {
		// What has left arrives, whatever becomes of the sender.
		time.Sleep(Latency + f.Delay) //nolint:forbidigo // the time of a bubble
		revision, err := c.s.Put(key, value, last)
		time.Sleep(Latency) //nolint:forbidigo // the time of a bubble
		if !lose && !c.Faults().Down {
			replied <- result{revision, err}
		}
	})
	select {
	case r := <-replied:
		c.runs() // it has come, and nobody reads it
		return r.revision, r.err
	case <-ctx.Done():
	}
	c.runs()
	select {
	case r := <-replied: // meanwhile
		return r.revision, r.err
	default:
		return 0, ctx.Err()
	}
}

// Delete deletes a key if its revision is last; 0 means whatever it is.
func (c *Client) Delete(ctx context.Context, key string, last uint64) error {
	if err := c.Travel(ctx); err != nil {
		return err
	}
	if last == 0 {
		last = c.s.Get(key).Revision
	}
	_, err := c.s.Put(key, nil, last)
	return err
}
