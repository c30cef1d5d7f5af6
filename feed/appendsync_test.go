package feed_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed"
)

// TestI2_AnAppendWhoseSyncFailedIsNotSaidNotToHaveHappened stands for a server whose
// file store wrote a commit, could not sync it, and has it when it is opened anew.
func TestI2_AnAppendWhoseSyncFailedIsNotSaidNotToHaveHappened(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	l := b.log(t)
	c := &feed.Commit{ID: feed.NewCommitID(), Log: b.id, Owner: "one", Epoch: 1}
	data := feed.AppendCommit(nil, c)
	if err := b.js.DeleteStream(t.Context(), b.p.Stream()); err != nil {
		t.Fatal(err)
	}
	stored := make(chan error, 1)
	var sub *nats.Subscription
	sub, err := b.nc.Subscribe(b.p.Subject(), func(m *nats.Msg) {
		if m.Reply == "" {
			return
		}
		err := sub.Unsubscribe()
		if err == nil {
			err = feed.CreateLog(t.Context(), b.js, b.p, b.id, feed.LogConfig{})
		}
		if err == nil {
			_, err = b.js.Publish(t.Context(), b.p.Subject(), m.Data)
		}
		if err == nil {
			err = m.Respond([]byte(`{"error":{"code":503,"err_code":10077,"description":"sync 1.blk: input/output error"}}`))
		}
		stored <- err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	lsn, err := l.Append(t.Context(), 0, c.ID, data)
	if err != nil || lsn != 1 {
		t.Errorf("LSN %d, %v", lsn, err)
	}
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
	if _, last, err := l.Bounds(t.Context()); err != nil || last != 1 {
		t.Errorf("the log ends at %d, %v", last, err)
	}
}
