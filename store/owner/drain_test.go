package owner

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/store"
)

// TestDrain_AWriteIsAnsweredWhileAppendsAreAtHand asks an owner on its way out, whose
// last append the log does not answer: it says at once that nothing happened, and the
// next owner carries the write out. Without that the write waits as long as the log.
func TestDrain_AWriteIsAnsweredWhileAppendsAreAtHand(t *testing.T) {
	w := newWorld(t, byA)
	first := w.start(t.TempDir())
	k := pk(t, "x")
	arrived, release := first.log.hold()
	defer release()
	held := make(chan error, 1)
	go func() {
		_, err := first.one(k, create(`{"id":"1","a":"x"}`))
		held <- err
	}()
	<-arrived
	decided := make(chan error, 1) // one that the drain finds decided, behind the append
	go func() {
		_, err := first.one(k, create(`{"id":"2","a":"x"}`))
		decided <- err
	}()
	first.decided(1)
	first.cancel()

	// The gate is shut until each of them has its answer.
	if err := <-decided; !errors.Is(err, store.ErrNotOwner) {
		t.Errorf("a write that was decided behind the append: %v", err)
	}
	if _, err := first.one(k, create(`{"id":"3","a":"x"}`)); !errors.Is(err, store.ErrNotOwner) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("a write that comes during the drain: %v", err)
	}
	var local store.Local
	local.Add(first.id, first.Partition)
	ask := func(timeout time.Duration) error {
		client := store.NewClient(nil, w.catalog, store.ClientConfig{Local: &local, Timeout: timeout})
		things, err := client.Open(w.info)
		if err != nil {
			return err
		}
		_, err = things.Create(t.Context(), []byte(`{"id":"4","a":"x"}`))
		return err
	}
	// A client waits for the next owner, and says at the end of its time what it waited for.
	if err := ask(500 * time.Millisecond); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "between two owners") || !strings.Contains(err.Error(), "node-1 hands partition") {
		t.Errorf("a client whose time is over during the drain: %v", err)
	}
	if got := first.read(k, "1"); got != "" {
		t.Errorf("the append at hand is read before the log has answered: %s", got)
	}

	waiting := make(chan error, 1)
	go func() { waiting <- ask(time.Minute) }()
	release()
	if err := <-held; err != nil {
		t.Errorf("the append at hand: %v", err)
	}
	if err := first.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	second := w.start(t.TempDir())
	local.Add(second.id, second.Partition)
	if err := <-waiting; err != nil {
		t.Errorf("a client that waited for the next owner: %v", err)
	}
	for id, there := range map[string]bool{"1": true, "2": false, "3": false, "4": true} {
		if got := second.read(k, id); (got != "") != there {
			t.Errorf("item %s is %q at the next owner", id, got)
		}
	}
}
