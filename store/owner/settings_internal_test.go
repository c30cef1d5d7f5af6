package owner

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// Settings that the log did not take, because its disk was full for a moment,
// are said not to be in force, and can be asked for again.
func TestSettingsThatTheLogDidNotTake(t *testing.T) {
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/a"}, Partitions: 1})
	n := w.start(t.TempDir())
	wish := w.info
	wish.Spec.Indexes = []string{"/b"}
	n.log.fault(func(context.Context, func() (feed.LSN, error)) (feed.LSN, error) { return 0, feed.ErrStorage })
	if err := n.reconcileSettings(t.Context(), &wish); !errors.Is(err, errNotAppended) {
		t.Fatalf("the append failed, want answers %v", err)
	}
	if err := n.reconcileSettings(t.Context(), &wish); err != nil {
		t.Fatal(err)
	}
	resp := n.ask(&store.Request{Status: &store.StatusRequest{}})
	if resp.Err != nil || fmt.Sprint(resp.Status.Indexes) != "[{/b true}]" {
		t.Errorf("%v %+v", resp.Err, resp.Status)
	}
}

// A settled read that waits for an append which does not happen is answered then,
// and not with the next commit.
func TestSettledReadOfAnAppendThatDidNotHappen(t *testing.T) {
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/a"}, Partitions: 1})
	n := w.start(t.TempDir())
	arrived, fail := make(chan struct{}), make(chan struct{})
	n.log.fault(func(context.Context, func() (feed.LSN, error)) (feed.LSN, error) {
		close(arrived)
		<-fail
		return 0, feed.ErrStorage
	})
	written := make(chan error, 1)
	go func() {
		_, err := n.one(pk(t, "x"), create(`{"id":"1","a":"x"}`))
		written <- err
	}()
	<-arrived
	read := make(chan *store.Response, 1)
	go func() {
		read <- n.ask(&store.Request{Read: &store.ReadItems{Refs: []store.ItemRef{{Key: pk(t, "x"), ID: "1"}}, Barrier: true}})
	}()
	select {
	case resp := <-read:
		t.Fatalf("the read did not wait: %+v", resp)
	case <-time.After(20 * time.Millisecond):
	}
	close(fail)
	if refusal, ok := errors.AsType[*store.Error](<-written); !ok {
		t.Errorf("the write was answered %v", refusal)
	}
	select {
	case resp := <-read:
		if resp.Err != nil || len(resp.Read) != 1 || resp.Read[0].ETag != (store.ETag{}) {
			t.Errorf("%v %+v", resp.Err, resp.Read)
		}
	case <-time.After(time.Minute):
		t.Error("the read still waits")
	}
}

// I6: an index that is built while the decider holds a snapshot is built without a
// commit. The first page that uses it, in the very commit that says it is ready,
// sees all that is in it.
func TestI6_AnIndexIsSeenWholeByTheCommitThatMakesItReady(t *testing.T) {
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/a"}, Partitions: 1})
	n := w.start(t.TempDir())
	for i := range 5 {
		if _, err := n.one(pk(t, "x"), create(fmt.Sprintf(`{"id":"%d","a":"x","b":"y"}`, i))); err != nil {
			t.Fatal(err)
		}
	}
	wish := w.info
	wish.Spec.Indexes = []string{"/b"}
	settings, err := n.putSettings(t.Context(), func(s store.Settings) (store.Settings, bool) { return s.Wish(&wish) })
	if err != nil {
		t.Fatal(err)
	}
	number := settings.Indexes[0].Number
	seen := 0
	n.onDecider(t.Context(), func(d *decider) {
		d.view() // holds a snapshot as new as the last commit
		if _, err = n.engine.BuildIndexStep(&d.schema.engine, number, nil, 100); err != nil {
			return
		}
		next, _ := d.schema.settings.IndexReady(number)
		d.decideSettings(next)
		for _, e := range d.view().snap.IndexItems(number, []byte(`"y"`), nil) {
			if err = e; err != nil {
				return
			}
			seen++
		}
	})
	if err != nil || seen != 5 {
		t.Errorf("the index shows %d items, %v; want 5", seen, err)
	}
}
