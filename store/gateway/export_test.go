package gateway

import (
	"time"

	"github.com/millrace/millrace/store"
)

// RepeatKey makes every write one that was asked for before, if there was one.
func (s *Server) RepeatKey(key string) { s.newKey = func() string { return key } }

// StallAfter sets after how long of nothing taken an answer may be cut off, in place of five seconds.
func StallAfter(l *Listener, d time.Duration) {
	s := l.server.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stall = d
}

// Stalled counts the answers of which their clients have taken nothing for so long.
func Stalled(l *Listener) (n int) {
	s := l.server.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.awaiting.Front(); e != nil; e = e.Next() {
		if time.Since(e.Value.(*slot).since) >= s.stall {
			n++
		}
	}
	return n
}

// Bodies returns the bytes that all bodies have reserved.
func Bodies(l *Listener) int64 { return l.server.bodies.taken.Load() }

// TakeResourceQueries takes the places of all queries over databases and containers, until release.
func (s *Server) TakeResourceQueries() (release func()) { return fill(s.resourceQueries) }

// TakePages takes the places of all pages of feeds that are made, until release.
func (s *Server) TakePages() (release func()) { return fill(s.pages) }

func fill(places chan struct{}) (empty func()) {
	for range cap(places) {
		places <- struct{}{}
	}
	return func() {
		for range cap(places) {
			<-places
		}
	}
}

// Believe has the server take the catalog to be as it was once, as while its watch lags.
func (s *Server) Believe(infos []store.ContainerInfo) { s.directory.applyCatalog(infos) }

// Knows reports whether the server has a container from the catalog that it follows.
func (s *Server) Knows(database, name string) bool { return s.directory.cached(database, name) != nil }

// Operations lists all operations, each as its noun and the method, or what else tells it from others of the noun.
func (s *Server) Operations() (all []string) {
	for of, operations := range s.table {
		for method := range operations {
			all = append(all, of.String()+" "+method)
		}
	}
	return all
}
