//go:build !linux || (!amd64 && !arm64)

package mapguard

// Supported says whether Install guards on this system.
const Supported = false

// Install does nothing here.
func Install() error { return nil }

// Count is 0 here.
func Count() uint64 { return 0 }

// Met returns nothing here.
func Met() Faults { return Faults{} }

type slot struct{}

func watch(int) (*slot, bool) { return nil, false }

func unwatch(*slot) {}

func rewatch(*slot) {}
