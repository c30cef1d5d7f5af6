package pgsink

import "time"

// SetStepsMax bounds the steps of the transactions of a sink that nobody uses now.
func (s *Sink) SetStepsMax(most time.Duration) { s.stepsMax = most }
