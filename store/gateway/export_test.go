package gateway

import "time"

// RepeatKey makes every write one that was asked for before, if there was one.
func (s *Server) RepeatKey(key string) { s.newKey = func() string { return key } }

// DrainWithin bounds how long l finishes requests at its end, in place of five seconds.
func DrainWithin(l *Listener, d time.Duration) { l.drainMax = d }
