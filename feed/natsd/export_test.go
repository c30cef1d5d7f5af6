package natsd

// KeepFolder is keepFolder.
const KeepFolder = keepFolder

// MonitorAddress is where monitoring is served.
func MonitorAddress(s *Server) string {
	s.life.Lock()
	defer s.life.Unlock()
	return s.monitor.listener.Addr().String()
}

// BeforeRestore has the next start call f when the server accepts connections, and before it
// restores streams.
func BeforeRestore(s *Server, f func()) {
	s.life.Lock()
	defer s.life.Unlock()
	s.beforeRestore = f
}
