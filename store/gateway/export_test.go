package gateway

// RepeatKey makes every write one that was asked for before, if there was one.
func (s *Server) RepeatKey(key string) { s.newKey = func() string { return key } }
