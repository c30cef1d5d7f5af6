package standby_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	replicas "github.com/millrace/millrace/store/digest"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/owner"
)

// What comes between the order of a digest and what is told of it. A hand stands in the place of the owner, so that it comes
// there: a wrong digest is told where none must be compared, and the right one where one must.

const hasTheSame = "has the digest of what its owner holds"

// hand has the lease of a partition, answers nobody, and writes to its log what a test says.
type hand struct {
	c    *cluster
	id   feed.Partition
	log  *feed.Log
	lets func() // the lease go
}

// hand takes the lease of a partition that nobody has.
func (c *cluster) hand(id feed.Partition) *hand {
	c.t.Helper()
	nc := c.srv.Connect(c.t)
	js, err := jetstream.New(nc)
	if err != nil {
		c.t.Fatal(err)
	}
	m, err := leases.Open(c.t.Context(), js, leases.Config{
		Group: "store", Node: "hand", TTL: c.ttl, RenewInterval: 1400 * time.Millisecond, DrainTimeout: time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	m.SetResources([]string{owner.LeaseResource(id)}, nil)
	h := &hand{c: c, id: id}
	ctx, cancel := context.WithCancel(context.Background())
	has := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		if err := m.Run(ctx, func(ctx context.Context, _ *leases.Held) error {
			close(has)
			<-ctx.Done()
			return nil
		}); err != nil {
			c.t.Error(err)
		}
	})
	h.lets = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		h.log.Close()
	})
	if h.log, err = feed.OpenLog(c.t.Context(), js, id, feed.LogConfig{}); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(h.lets)
	select {
	case <-has:
	case <-time.After(time.Minute):
		c.t.Fatal("nobody gives the lease away")
	}
	return h
}

// end is the last commit of the log.
func (h *hand) end() *feed.Commit {
	h.c.t.Helper()
	_, last, err := h.log.Bounds(h.c.t.Context())
	if err != nil {
		h.c.t.Fatal(err)
	}
	c, err := h.log.Read(h.c.t.Context(), last)
	if err != nil {
		h.c.t.Fatal(err)
	}
	return c
}

// append appends a commit behind the last one, under its epoch or a later one.
func (h *hand) append(later uint64, tx feed.Transaction) feed.LSN {
	h.c.t.Helper()
	last := h.end()
	c := &feed.Commit{
		ID: feed.NewCommitID(), Log: h.log.ID(), Prev: last.Sum, Epoch: last.Epoch + later, Owner: fmt.Sprint("hand/", last.Epoch+later),
		Time: last.Time, Trimmed: last.Trimmed, Transactions: []feed.Transaction{tx},
	}
	lsn, err := h.log.Append(h.c.t.Context(), last.LSN, c.ID, feed.AppendCommit(nil, c))
	if err != nil {
		h.c.t.Fatal(err)
	}
	return lsn
}

func (h *hand) says(c *feed.Control) feed.LSN { return h.append(0, feed.Transaction{Control: c}) }
func (h *hand) orders() feed.LSN              { return h.says(replicas.Order()) }

// lies tells a digest as of an LSN that no replica has.
func (h *hand) lies(of feed.LSN) { h.says(replicas.Digest{LSN: of}.Tell()) }

// tells tells the digest of what the whole log makes up to an LSN.
func (h *hand) tells(of feed.LSN) {
	h.c.t.Helper()
	h.c.replay(h.id, of, func(_ *engine.Partition, r *owner.Replayer) {
		d, err := r.Digest(h.c.t.Context(), r.View())
		if err != nil {
			h.c.t.Fatal(err)
		}
		h.says(d.Tell())
	})
}

// writes creates an item.
func (h *hand) writes(id string) {
	h.c.t.Helper()
	last := h.end()
	h.append(0, feed.Transaction{Changes: []feed.Change{{
		Op: feed.OpCreate, Key: pk(h.c.t, id), ID: id, After: fmt.Appendf(nil, `{"id":%q,"k":%q,"u":%q}`, id, id, id), Modified: last.Time, Written: last.LSN + 1,
	}}})
}

// takesOver is what the next owner says first.
func (h *hand) takesOver() {
	h.c.t.Helper()
	epoch := h.end().Epoch + 1
	data, err := json.Marshal(map[string]any{"owner": fmt.Sprint("hand/", epoch), "epoch": epoch})
	if err != nil {
		h.c.t.Fatal(err)
	}
	h.append(1, feed.Transaction{Control: &feed.Control{Kind: store.ControlTakeover, Data: data}})
}

// compared waits until a copy was compared as of an LSN.
func (p *process) compared(id feed.Partition, lsn feed.LSN) {
	p.c.t.Helper()
	p.says(fmt.Sprintf("%s\" partition=%s lsn=%d\n", hasTheSame, id, uint64(lsn)))
}

// ordered is a partition that a hand owns and the store b follows. No owner orders digests by itself.
func ordered(t *testing.T) (c *cluster, h *hand, b *process) {
	t.Helper()
	c = newCluster(t)
	c.ttl = 5 * time.Second // a hand that is gone counts as one that follows for so long
	c.cfg.DigestInterval = -1
	ct, id, a := c.things()
	scribble(t, ct, rand.New(rand.NewPCG(21, 21)), 40)
	a.stop()
	h = c.hand(id)
	b = c.start("b", t.TempDir())
	b.ready(id)
	return c, h, b
}

// equal fails if a store has found anything that differs.
func (p *process) equal() {
	p.c.t.Helper()
	if p.log.count(differsSaid) > 0 {
		p.c.t.Errorf("the copy of %s differs, and nobody has damaged it", p.node())
	}
}

// An owner is gone before it has told the digest that it ordered. Its successor tells its own.
func TestADigestThatIsNeverToldIsForgotten(t *testing.T) {
	t.Parallel()
	_, h, b := ordered(t)
	never := h.orders()
	h.writes("before")
	h.takesOver()
	h.writes("behind")
	b.ready(h.id)
	next := h.orders()
	h.writes("later")
	h.tells(next)
	b.compared(h.id, next)
	h.lies(never) // nobody waits for it any more
	third := h.orders()
	h.tells(third)
	b.compared(h.id, third)
	b.equal()
	// A copy is compared indeed.
	last := h.orders()
	h.lies(last)
	b.says(differsSaid)
}

// The log goes on in a new stream between the order and what is told: LSNs stay, so that is compared.
func TestADigestIsComparedWhereTheLogGoesOn(t *testing.T) {
	t.Parallel()
	c, h, b := ordered(t)
	stream, err := feed.StreamOf(t.Context(), c.srv.JS, h.id)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.DenyPurge = true
	if _, err := c.srv.JS.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	of := h.orders()
	m, err := h.log.BeginMove(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for left := uint64(1); left > 0; {
		if left, err = m.Step(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(m.Data())
	if err != nil {
		t.Fatal(err)
	}
	h.says(&feed.Control{Kind: feed.ControlMove, Data: data})
	if moved, err := h.log.FinishMove(t.Context()); err != nil || !moved {
		t.Fatalf("the log has gone on: %t, %v", moved, err)
	}
	h.takesOver()
	h.tells(of)
	b.compared(h.id, of)
	b.equal()
}

// The standby itself takes over while a digest is ordered. It tells none of what was ordered, its successor as a standby meets
// the order in the log and nothing more, and the next digest is compared.
func TestAStandbyTakesOverWhileADigestIsOrdered(t *testing.T) {
	t.Parallel()
	c, h, b := ordered(t)
	b.stop()
	c.cfg.DigestInterval = 50 * time.Millisecond
	b = c.start("b", t.TempDir())
	b.ready(h.id)
	of := h.orders()
	b.ready(h.id)
	h.lets()
	b.owns(h.id)
	next := c.start("c", t.TempDir())
	next.ready(h.id)
	next.says(hasTheSame)
	next.equal()
	if b.equal(); b.log.count(loadSaid) > 0 {
		t.Error("the copy was not opened as it was")
	}
	for _, d := range c.tellings(h.id) {
		if d.LSN <= of {
			t.Errorf("the digest of LSN %d is told, and who ordered it is gone", d.LSN)
		}
	}
}

// A partition is split whose owner is gone before it has told the digest that it ordered.
func TestASplitWhileADigestIsOrdered(t *testing.T) {
	t.Parallel()
	c, h, b := ordered(t)
	b.stop()
	c.cfg.DigestInterval = 50 * time.Millisecond
	c.cfg.Snapshots = owner.SnapshotConfig{Store: owner.SnapshotsStream}
	stores := []*process{c.start("b", t.TempDir())}
	stores[0].ready(h.id)
	h.orders()
	if _, err := c.catalog.PlanSplit(t.Context(), "default", "things", h.id.Number, feed.EvenRanges(2)[1].Min, false); err != nil {
		t.Fatal(err)
	}
	h.orders()
	h.lets()
	stores = append(stores, c.start("c", t.TempDir()))
	children := c.children(2)
	for _, child := range children {
		poll.Until(t, func() error { return poll.Unless(len(c.tellings(child)) > 0, "no digest is told") })
	}
	for _, p := range stores {
		p.equal()
	}
}

// A standby comes back behind whose copy the log was trimmed, the order of a digest included. It begins with a snapshot, and
// what is told of that order then is nothing that it can compare.
func TestADigestOfWhatWasTrimmedIsNotCompared(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.ttl = 5 * time.Second
	c.cfg = trimming
	c.cfg.DigestInterval = -1
	spec := followed
	spec.ChangeFeed.Retention = new(store.Retention(0))
	ct := c.container("things", spec)
	id := ct.Partitions()[0]
	a, dirs := c.start("a", t.TempDir()), []string{t.TempDir(), t.TempDir()}
	a.owns(id)
	r := rand.New(rand.NewPCG(22, 22))
	scribble(t, ct, r, 20)
	b := c.start("b", dirs[1])
	b.ready(id)
	b.stop()
	a.stop()
	h := c.hand(id)
	of := h.orders()
	h.lets()
	a = c.start("a", dirs[0])
	a.owns(id)
	c.trimmed(ct, r, id, of)
	a.stop()
	h = c.hand(id)
	b = c.start("b", dirs[1])
	b.ready(id)
	if b.log.count(loadSaid) == 0 {
		t.Fatal("the copy was brought forward without what was trimmed")
	}
	h.lies(of)
	b.ready(id)
	b.equal()
	next := h.orders()
	h.lies(next)
	b.says(fmt.Sprintf("%s\" partition=%s lsn=%d ", differsSaid, id, uint64(next)))
	if n := b.log.count(differsSaid); n != 1 {
		t.Errorf("the copy differs %d times", n)
	}
}
