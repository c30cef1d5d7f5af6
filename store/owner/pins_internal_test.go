package owner

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/snapshot"
)

// slowLook is a store that reads the pointer at once and answers when the test lets it, once.
type slowLook struct {
	snapshot.Store
	slow       atomic.Bool
	read, goOn chan struct{}
}

func (s *slowLook) Look(ctx context.Context, name string) ([]byte, snapshot.Revision, error) {
	data, revision, err := s.Store.Look(ctx, name)
	if s.slow.CompareAndSwap(true, false) {
		close(s.read)
		<-s.goOn
	}
	return data, revision, err
}

// TestPin_AnOlderLookHidesNoRelease: the pins that were read before a release, and arrive
// after what was read behind it, are not those of the partition.
func TestPin_AnOlderLookHidesNoRelease(t *testing.T) {
	w := newWorld(t, byA)
	n, err := w.openFrom(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	x := n.trims(keeping(0))
	n.mustOne(pk(t, "x"), create(`{"id":"1","a":"x"}`))
	m := x.snapshot()
	look := &slowLook{Store: n.cfg.snapshots, read: make(chan struct{}), goOn: make(chan struct{})}
	n.cfg.snapshots = look
	n.pins.asked = make(chan struct{}, 1)
	if _, err := snapshot.PinSnapshot(t.Context(), look, m, "h", 1, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	look.slow.Store(true)
	late := make(chan error, 1)
	go func() { late <- n.notePins(context.WithoutCancel(t.Context())) }()
	<-look.read
	if resp := n.pin(t.Context(), &store.PinSnapshot{Holder: "h", Release: true}); resp.Err != nil {
		t.Fatal(resp.Err)
	}
	close(look.goOn)
	if err := <-late; err != nil {
		t.Fatal(err)
	}
	if pins := n.pins.last(); len(pins) != 0 {
		t.Errorf("pinned still: %+v", pins)
	}
}
