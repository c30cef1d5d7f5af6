package gateway

import "time"

// RepeatKey makes every write one that was asked for before, if there was one.
func (s *Server) RepeatKey(key string) { s.newKey = func() string { return key } }

// DrainWithin bounds how long l finishes requests at its end, in place of five seconds.
func DrainWithin(l *Listener, d time.Duration) { l.drainMax = d }

// TakeResourceQueries takes the places of all queries over databases and containers, until release.
func (s *Server) TakeResourceQueries() (release func()) {
	for range cap(s.resourceQueries) {
		s.resourceQueries <- struct{}{}
	}
	return func() {
		for range cap(s.resourceQueries) {
			<-s.resourceQueries
		}
	}
}
