package natsd

// KeepFolder is keepFolder.
const KeepFolder = keepFolder

// MonitorAddress is where monitoring is served.
func MonitorAddress(s *Server) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.monitor.listener.Addr().String()
}
