package owner

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/snapshot"
)

// waiting is a context that tells when somebody is about to wait for its end.
type waiting struct {
	context.Context //nolint:containedctx // it is one
	asked           chan struct{}
	once            sync.Once
}

func (w *waiting) Done() <-chan struct{} {
	w.once.Do(func() { close(w.asked) })
	return w.Context.Done()
}

// TestI3_ViewsHoldWholeCommits: one commit creates an item and drops an index, which is applied in
// parts. Who scans or copies the partition meanwhile, and goes on in the log behind the LSN that
// the view names, must not find the item in the view and in the log again.
func TestI3_ViewsHoldWholeCommits(t *testing.T) {
	spec := byA
	spec.Indexes = []string{"/n"}
	w := newWorld(t, spec)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	n.mustOne(k, create(`{"id":"1","a":"x","n":1}`))
	n.cfg.snapshots = snapshot.Directory(t.TempDir())
	server := &Server{cfg: n.cfg}

	// Between the parts, on the committer's goroutine: both begin, and each gets its view or waits.
	var lsn feed.LSN
	results := make(chan error, 2)
	look := func(what string, f func(ctx context.Context) (at feed.LSN, holds bool, err error)) {
		ctx := &waiting{Context: t.Context(), asked: make(chan struct{})}
		done := make(chan struct{})
		go func() {
			defer close(done)
			at, holds, err := f(ctx)
			if err == nil && holds != (at >= lsn) {
				err = fmt.Errorf("%s of LSN %d holds the item of LSN %d: %t", what, at, lsn, holds)
			}
			results <- err
		}()
		select {
		case <-ctx.asked:
		case <-done:
		case <-time.After(time.Minute):
			t.Errorf("%s neither waits nor ends", what)
		}
	}
	between := func() {
		lsn = n.state.Load().lsn + 1
		look("a scan", func(ctx context.Context) (feed.LSN, bool, error) {
			r := n.Handle(ctx, &store.Request{Partition: n.id, Scan: &store.Scan{ItemsMax: 100}})
			if r.Err != nil {
				return 0, false, r.Err
			}
			return r.Scan.LSN, len(r.Scan.Items) == 3, nil
		})
		look("a snapshot", func(ctx context.Context) (feed.LSN, bool, error) {
			// The committer stands between the parts, so what the engine shows now is in the copy
			// of one that does not wait.
			m, err := server.writeSnapshot(ctx, n.Partition, func() error { return nil })
			if err != nil {
				return 0, false, err
			}
			return m.LSN, true, nil
		})
	}
	set := make(chan struct{})
	n.committerTasks <- func(c *committer) {
		c.applier.hide = func(s *schema) {
			c.applier.hide = n.showSchema
			n.showSchema(s)
			between()
		}
		close(set)
	}
	<-set

	// While another append is held, both are decided into the commit behind it.
	arrived, release := n.log.hold()
	answers := make(chan error, 3)
	write := func(id string) {
		_, err := n.one(k, create(fmt.Sprintf(`{"id":%q,"a":"x"}`, id)))
		answers <- err
	}
	go write("2")
	<-arrived
	go write("3")
	n.decided(1)
	info := w.info
	info.Spec.Indexes = nil
	info.Revision++
	go func() { answers <- n.reconcileSettings(t.Context(), &info) }()
	for both := false; !both; {
		if !n.onDecider(t.Context(), func(d *decider) { both = len(d.draft.txns) == 2 }) {
			t.Fatal("the partition stopped")
		}
	}
	release()
	for range 3 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		select {
		case err := <-results:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("a view is not taken when the commit is applied")
		}
	}
}
