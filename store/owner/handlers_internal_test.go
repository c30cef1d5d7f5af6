package owner

import (
	"testing"

	"github.com/millrace/millrace/store"
)

// TestHandlers_EachKindHasOne, and each handler can answer: it reads, or it decides and can
// say what for.
func TestHandlers_EachKindHasOne(t *testing.T) {
	for k := range store.Kind(255) {
		known := k.String() != "unknown"
		switch {
		case !known && int(k) < len(handlers) && handlers[k] != nil:
			t.Errorf("kind %d is unknown and has a handler", k)
		case !known:
		case int(k) >= len(handlers) || handlers[k] == nil:
			t.Errorf("kind %d %q has no handler", k, k)
		case handlers[k].read == nil && handlers[k].decide == nil:
			t.Errorf("kind %d %q neither reads nor decides", k, k)
		case (handlers[k].decide == nil) != (handlers[k].about == nil):
			t.Errorf("kind %d %q decides and cannot say what, or the other way round", k, k)
		case handlers[k].paged && handlers[k].decide == nil:
			t.Errorf("kind %d %q is queued and not decided", k, k)
		}
	}
}
