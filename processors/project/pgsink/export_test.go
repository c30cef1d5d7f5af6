package pgsink

import "time"

// SetWriteMax bounds the transactions of a sink that nobody uses now.
func (s *Sink) SetWriteMax(most time.Duration) { s.writeMax = most }
