//go:build !linux

package natsd

// dropCached does nothing: only Linux is known to forget on request.
func dropCached(string) {}
