package owner

import (
	"testing"

	"github.com/millrace/millrace/store"
)

// TestCount_LooksAtTheLeaseAfterItsView: the lease is lost between the look that lets a request in
// and the view from which it is counted; another owner may have written by then.
func TestCount_LooksAtTheLeaseAfterItsView(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	n.mustOne(pk(t, "x"), create(`{"id":"1","a":"x"}`))
	if r := n.count(&store.Scope{}); r.Err != nil || r.Count != 1 {
		t.Errorf("with the lease: %+v", r)
	}
	n.lease.valid.Store(false)
	if r := n.count(&store.Scope{}); r.Err == nil || r.Err.Status != store.StatusGone {
		t.Errorf("without it: %+v", r)
	}
}
