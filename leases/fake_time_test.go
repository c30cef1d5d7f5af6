package leases

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// fakeServer is a key-value store in memory, for tests under synctest.
type fakeServer struct {
	mu       sync.Mutex
	revision uint64
	keys     map[string]bucket.Entry
	watches  map[*fakeWatch]bool
	puts     int
}

func newFakeServer() *fakeServer {
	return &fakeServer{keys: map[string]bucket.Entry{}, watches: map[*fakeWatch]bool{}}
}

// latency is what one way to the server takes.
const latency = time.Millisecond

// fakeClient is one process's way to a fakeServer, with faults.
type fakeClient struct {
	*fakeServer
	mu    sync.Mutex
	down  bool          // nothing arrives, nothing comes back
	lose  int           // replies of the next puts that are lost
	delay time.Duration // by which puts arrive late, unless down
	mute  bool          // watches deliver nothing, now or later
	late  *fakeState    // what new watches deliver at first, as from a replica that lags
	put   func(key string)
	loses func(key string) bool // whether a put's reply is lost too
}

func (s *fakeServer) client() *fakeClient { return &fakeClient{fakeServer: s} }

// set changes the faults.
func (c *fakeClient) set(change func(c *fakeClient)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
	c.fakeServer.mu.Lock()
	defer c.fakeServer.mu.Unlock()
	for w := range c.watches {
		w.notify()
	}
}

func (c *fakeClient) isDown() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down
}

func (c *fakeClient) isMute() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mute || c.down
}

// travel is one way to the server or back.
func (c *fakeClient) travel(ctx context.Context, d time.Duration) error {
	sleep(ctx, d)
	if c.isDown() {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (c *fakeClient) Get(ctx context.Context, key string) (bucket.Entry, error) {
	if err := c.travel(ctx, 2*latency); err != nil {
		return bucket.Entry{}, err
	}
	c.fakeServer.mu.Lock()
	defer c.fakeServer.mu.Unlock()
	e, ok := c.keys[key]
	if !ok {
		return bucket.Entry{}, bucket.ErrNotFound
	}
	return e, nil
}

func (c *fakeClient) Put(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	c.mu.Lock()
	delay, lose := c.delay, c.lose > 0
	if lose {
		c.lose--
	}
	if c.put != nil {
		c.put(key)
	}
	lose = lose || c.loses != nil && c.loses(key)
	c.mu.Unlock()
	type result struct {
		revision uint64
		err      error
	}
	replied := make(chan result, 1)
	if c.isDown() {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	go func() {
		// What has left arrives, whatever becomes of the sender.
		time.Sleep(latency + delay)
		revision, err := c.store(key, value, last)
		time.Sleep(latency)
		if !lose && !c.isDown() {
			replied <- result{revision, err}
		}
	}()
	select {
	case r := <-replied:
		return r.revision, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// store is a conditional write at the server; a nil value deletes.
func (s *fakeServer) store(key string, value []byte, last uint64) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	present := s.keys[key]
	if present.Deleted && last == 0 {
		last = present.Revision
	}
	if present.Revision != last {
		return 0, fmt.Errorf("put %s: %w", key, bucket.ErrMismatch)
	}
	s.revision++
	s.puts++
	e := bucket.Entry{Key: key, Value: value, Revision: s.revision, Created: time.Now(), Deleted: value == nil}
	s.keys[key] = e
	for w := range s.watches {
		if w.misses == "" || !strings.HasPrefix(key, w.misses) {
			w.offer(bucket.Update{Entry: e})
		}
	}
	return s.revision, nil
}

func (c *fakeClient) Delete(ctx context.Context, key string, last uint64) error {
	if err := c.travel(ctx, 2*latency); err != nil {
		return err
	}
	if last == 0 { // whatever it is
		c.fakeServer.mu.Lock()
		last = c.keys[key].Revision
		c.fakeServer.mu.Unlock()
	}
	_, err := c.store(key, nil, last)
	return err
}

// fakeWatch is one watch; queue is guarded by the server's mutex.
type fakeWatch struct {
	client   *fakeClient
	dead     bool   // delivers nothing any more, and does not say so
	broken   bool   // ends, and says so
	misses   string // changes of keys that begin so are not delivered
	from     uint64 // changes up to this revision are not delivered
	patterns []string
	queue    []bucket.Update
	wake     chan struct{}
}

func (w *fakeWatch) offer(u bucket.Update) {
	if u.Revision <= w.from {
		return
	}
	if slices.ContainsFunc(w.patterns, func(p string) bool {
		return strings.HasPrefix(u.Key, strings.TrimSuffix(p, ">"))
	}) {
		w.queue = append(w.queue, u)
		w.notify()
	}
}

func (w *fakeWatch) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (c *fakeClient) Watch(ctx context.Context, patterns ...string) (<-chan bucket.Update, error) {
	if err := c.travel(ctx, 2*latency); err != nil {
		return nil, err
	}
	w := &fakeWatch{client: c, patterns: patterns, wake: make(chan struct{}, 1)}
	c.mu.Lock()
	late := c.late
	c.mu.Unlock()
	c.fakeServer.mu.Lock()
	first := c.keys
	if late != nil {
		first = late.keys
	}
	for _, key := range slices.Sorted(maps.Keys(first)) {
		w.offer(bucket.Update{Entry: first[key]})
	}
	w.queue = append(w.queue, bucket.Update{Ready: true})
	for _, key := range slices.Sorted(maps.Keys(c.keys)) {
		if late != nil && c.keys[key].Revision > late.revision {
			w.offer(bucket.Update{Entry: c.keys[key]})
		}
	}
	w.notify()
	c.watches[w] = true
	c.fakeServer.mu.Unlock()
	out := make(chan bucket.Update)
	go func() {
		defer close(out)
		defer func() {
			c.fakeServer.mu.Lock()
			delete(c.watches, w)
			c.fakeServer.mu.Unlock()
		}()
		for {
			select {
			case <-w.wake:
			case <-ctx.Done():
				return
			}
			sleep(ctx, latency)
			for !c.isMute() {
				c.fakeServer.mu.Lock()
				if w.broken {
					c.fakeServer.mu.Unlock()
					return
				}
				if len(w.queue) == 0 || w.dead {
					c.fakeServer.mu.Unlock()
					break
				}
				u := w.queue[0]
				w.queue = w.queue[1:]
				c.fakeServer.mu.Unlock()
				select {
				case out <- u:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return out, nil
}

// deafen makes the client's present watches silent for good.
func (c *fakeClient) deafen() {
	c.fakeServer.mu.Lock()
	defer c.fakeServer.mu.Unlock()
	for w := range c.watches {
		w.dead = w.dead || w.client == c
	}
}

// miss lets the client's present watches miss the changes of keys that begin with prefix, or no more if it is empty.
func (c *fakeClient) miss(prefix string) {
	c.fakeServer.mu.Lock()
	defer c.fakeServer.mu.Unlock()
	for w := range c.watches {
		if w.client == c {
			w.misses = prefix
		}
	}
}

// breakWatches ends the client's present watches, which notices.
func (c *fakeClient) breakWatches() {
	c.fakeServer.mu.Lock()
	defer c.fakeServer.mu.Unlock()
	for w := range c.watches {
		w.broken = w.broken || w.client == c
		w.notify()
	}
}

// fakeState is what a fakeServer had at some moment.
type fakeState struct {
	revision uint64
	keys     map[string]bucket.Entry
}

func (s *fakeServer) state() *fakeState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &fakeState{revision: s.revision, keys: maps.Clone(s.keys)}
}

// goBack makes then, an earlier state, the present one. As with JetStream the watches that there are go on behind the
// last revision that they know.
func (s *fakeServer) goBack(then *fakeState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		w.from = max(w.from, s.revision)
	}
	s.revision, s.keys = then.revision, maps.Clone(then.keys)
}

var errNoLease = errors.New("no such lease")

// lease returns what is stored of a lease in group "g".
func (s *fakeServer) lease(resource string) (leaseRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.keys[leaseKey("g", resource)]
	if !ok || e.Deleted {
		return leaseRecord{}, errNoLease
	}
	r, err := decodeLease(e.Key, e.Value)
	if err != nil {
		return leaseRecord{}, err
	}
	return *r, nil
}

// count returns how many writes were stored.
func (s *fakeServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.puts
}
