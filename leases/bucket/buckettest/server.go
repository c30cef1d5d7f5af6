// Package buckettest has a key-value store in memory that stands for a bucket in tests under testing/synctest, whose clock
// a real server would keep from moving. Each process of a test has a [Client] of its own, with faults on its way.
//
// It is no API: tests of leases are made of it.
package buckettest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// Latency is what one way to the server takes.
const Latency = time.Millisecond

// Server is the store. All processes of a test have clients of one.
type Server struct {
	mu       sync.Mutex // guards what follows, and the watches
	onStored func(e bucket.Entry)
	revision uint64
	keys     map[string]bucket.Entry
	watches  map[*Watch]bool
	puts     int

	flights sync.WaitGroup
}

// NewServer returns an empty store.
func NewServer(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{keys: map[string]bucket.Entry{}, watches: map[*Watch]bool{}}
	tb.Cleanup(s.flights.Wait) // what has left arrives, also when nobody is there any more
	return s
}

// Put is a conditional write at the server; a nil value deletes.
func (s *Server) Put(key string, value []byte, last uint64) (uint64, error) {
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
		if w.Misses == "" || !strings.HasPrefix(key, w.Misses) {
			w.offer(bucket.Update{Entry: e})
		}
	}
	if s.onStored != nil {
		s.onStored(e)
	}
	return s.revision, nil
}

// OnStored has f called with each entry that is stored from now on, while nobody else writes.
func (s *Server) OnStored(f func(e bucket.Entry)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onStored = f
}

// Still calls f while nothing is stored, as for what the function looks at that is called with each entry.
func (s *Server) Still(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Get returns what is stored under a key, the zero entry if nothing ever was.
func (s *Server) Get(key string) bucket.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[key]
}

// Set changes what is stored, without a new revision and without a word to anybody.
func (s *Server) Set(e bucket.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[e.Key] = e
}

// Puts returns how many writes were stored.
func (s *Server) Puts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.puts
}

// State is what a Server had at some moment.
type State struct {
	Revision uint64
	Keys     map[string]bucket.Entry
}

// State returns the present one.
func (s *Server) State() *State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &State{Revision: s.revision, Keys: maps.Clone(s.keys)}
}

// GoBack makes then, an earlier state, the present one. As with JetStream the watches that there are go on behind the last
// revision that they know.
func (s *Server) GoBack(then *State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		w.from = max(w.from, s.revision)
	}
	s.revision, s.keys = then.Revision, maps.Clone(then.Keys)
}

// byRevision returns entries in the order in which they were stored.
func byRevision(keys map[string]bucket.Entry) []bucket.Entry {
	return slices.SortedFunc(maps.Values(keys), func(a, b bucket.Entry) int { return int(a.Revision) - int(b.Revision) })
}
