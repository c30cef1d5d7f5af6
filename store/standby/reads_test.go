package standby_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

// askStandby asks whatever standby listens, as a client over NATS does.
func (c *cluster) askStandby(r *store.Request, atLeast feed.LSN) (*store.Response, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	m, err := c.srv.NC.RequestMsgWithContext(ctx, &nats.Msg{
		Subject: store.StandbySubject(r.Partition), Data: store.AppendRequest(nil, r),
		Header: nats.Header{store.HeaderAtLeast: {strconv.FormatUint(uint64(atLeast), 10)}},
	})
	if err != nil {
		return nil, err
	}
	return store.DecodeResponse(m.Data)
}

func readOf(id feed.Partition, key feed.PartitionKey, item string) *store.Request {
	return &store.Request{Partition: id, Transact: &store.Transact{Key: key, Ops: []store.Operation{{Kind: store.OpRead, ID: item}}}}
}

// TestI2_AStandbyAnswersASessionThatItHolds reads while the partition's owner is dead and its lease is still held.
func TestI2_AStandbyAnswersASessionThatItHolds(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.ttl = 10 * time.Minute // nobody takes over
	ct, id, a := c.things()
	scribble(t, ct, rand.New(rand.NewPCG(7, 7)), 40)
	key := pk(t, "k1")
	item, err := ct.Upsert(t.Context(), []byte(`{"id":"mine","k":"k1","n":41,"u":"mine"}`))
	if err != nil {
		t.Fatal(err)
	}
	b := c.start("b", t.TempDir())
	b.ready(id)
	a.kill()

	session := ct.InSession(map[uint32]feed.LSN{id.Number: item.ETag.LSN})
	got, err := session.Read(t.Context(), key, "mine")
	if err != nil || got.ETag != item.ETag || string(got.Body) != string(item.Body) {
		t.Fatalf("read %s %s, %v; want %s %s", got.ETag, got.Body, err, item.ETag, item.Body)
	}
	if _, err := session.Read(t.Context(), key, "nobody's"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an item that is not there: %v", err)
	}
	page, err := session.Query(t.Context(), store.QueryRequest{Text: "SELECT VALUE c.id FROM c WHERE c.n = 41 AND c.u = 'mine'"})
	if err != nil || len(page.Rows) != 1 || string(page.Rows[0]) != `"mine"` {
		t.Errorf("the query gave %+v, %v", page, err)
	}
	if got, err := ct.Eventual().Read(t.Context(), key, "mine"); err != nil || got.ETag != item.ETag {
		t.Errorf("an eventual read gave %s, %v", got.ETag, err)
	}

	// What the copy does not hold, and what nobody allowed it, nobody answers.
	for what, ct := range map[string]*store.Container{
		"a session that has seen more":  ct.InSession(map[uint32]feed.LSN{id.Number: c.end(id) + 1}),
		"a session of other partitions": ct.InSession(map[uint32]feed.LSN{id.Number + 1: 1}),
		"no session":                    ct,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if got, err := ct.Read(ctx, key, "mine"); err == nil {
			t.Errorf("%s: read %s", what, got.ETag)
		}
		cancel()
	}
}

// TestAStandbyAnswersReadsAlone asks a standby for all that it must leave to the owner.
func TestAStandbyAnswersReadsAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ct, id, _ := c.things()
	key := pk(t, "k1")
	item, err := ct.Upsert(t.Context(), []byte(`{"id":"x","k":"k1","n":1,"u":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	c.start("b", t.TempDir()).ready(id)
	end := c.end(id)

	if resp, err := c.askStandby(readOf(id, key, "x"), item.ETag.LSN); err != nil || resp.Err != nil || resp.Transact.Results[0].Item.ETag != item.ETag || resp.Transact.LSN < item.ETag.LSN {
		t.Errorf("a read was answered by %+v, %v", resp, err)
	}
	refs := []store.ItemRef{{Key: key, ID: "x"}}
	for what, r := range map[string]struct {
		request *store.Request
		atLeast feed.LSN
		status  store.Status
	}{
		"a later state":        {readOf(id, key, "x"), end + 1000, store.StatusUnavailable},
		"a read with barrier":  {&store.Request{Partition: id, Read: &store.ReadItems{Barrier: true, Refs: refs}}, 0, store.StatusUnavailable},
		"settled versions":     {&store.Request{Partition: id, Versions: &store.ReadVersions{Refs: refs}}, 0, store.StatusUnavailable},
		"the owner's state":    {&store.Request{Partition: id, Status: &store.StatusRequest{}}, 0, store.StatusUnavailable},
		"another partition":    {readOf(feed.Partition{Container: id.Container, Number: 9}, key, "x"), 0, 0},
		"a write":              {&store.Request{Partition: id, Transact: &store.Transact{Key: key, Ops: []store.Operation{{Kind: store.OpDelete, ID: "x"}}}}, 0, store.StatusForbidden},
		"two reads in a batch": {&store.Request{Partition: id, Transact: &store.Transact{Key: key, Batch: true, Ops: []store.Operation{{Kind: store.OpRead, ID: "x"}, {Kind: store.OpRead, ID: "x"}}}}, 0, store.StatusUnavailable},
	} {
		resp, err := c.askStandby(r.request, r.atLeast)
		if r.status == 0 {
			if !errors.Is(err, nats.ErrNoResponders) {
				t.Errorf("%s: %+v, %v; want no answer", what, resp, err)
			}
			continue
		}
		if err != nil || resp.Err == nil || resp.Err.Status != r.status {
			t.Errorf("%s: %+v, %v; want %d", what, resp, err, r.status)
		}
	}
	if got, err := ct.Read(t.Context(), key, "x"); err != nil || got.ETag != item.ETag || c.end(id) != end {
		t.Errorf("afterwards the item is %s, %v, and the log ends at %d; before, %s and %d", got.ETag, err, c.end(id), item.ETag, end)
	}
}

// TestAStandbyThatIsSilentHoldsNobodyUp has somebody listen as a standby and say nothing: an eventual read has time left
// for the owner.
func TestAStandbyThatIsSilentHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ct, id, _ := c.things()
	item, err := ct.Upsert(t.Context(), []byte(`{"id":"x","k":"k1","u":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	if _, err := c.srv.NC.Subscribe(store.StandbySubject(id), func(*nats.Msg) { asked.Add(1) }); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		got, err := ct.Eventual().Read(ctx, pk(t, "k1"), "x")
		cancel()
		if err != nil || got.ETag != item.ETag {
			t.Fatalf("read %s, %v", got.ETag, err)
		}
	}
	if n := asked.Load(); n == 0 {
		t.Error("nobody asked the standby")
	}
}

// TestI2_ASessionKnowsThatAnItemWasGone has a session learn by a 404 that somebody has deleted its item: a copy from
// before must not bring it back.
func TestI2_ASessionKnowsThatAnItemWasGone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ct, id, _ := c.things()
	key := pk(t, "k1")
	if _, err := ct.Upsert(t.Context(), []byte(`{"id":"x","k":"k1","u":"x"}`)); err != nil {
		t.Fatal(err)
	}
	if err := ct.Delete(t.Context(), key, "x"); err != nil {
		t.Fatal(err)
	}
	_, err := ct.Read(t.Context(), key, "x")
	gone, ok := errors.AsType[*store.Error](err)
	if !ok || gone.Status != store.StatusNotFound || gone.LSN != c.end(id) {
		t.Errorf("the read says %+v (%v), want the LSN %d", gone, err, c.end(id))
	}
}

// TestI2_ASessionKnowsWhyItsWriteWasRefused has a session learn of others' writes by refusals, and then the owner dies: a
// copy from before those writes must not answer it.
func TestI2_ASessionKnowsWhyItsWriteWasRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.ttl = 10 * time.Minute // nobody takes over
	ct, id, a := c.things()
	key := pk(t, "k1")
	before, err := ct.Upsert(t.Context(), []byte(`{"id":"x","k":"k1","n":1,"u":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	// The copy: it stays at the state of this moment.
	resp, err := ct.Do(t.Context(), readOf(id, key, "x"))
	if err != nil {
		t.Fatal(err)
	}
	old, at := store.EncodeResponse(resp, readOf(id, key, "x")), resp.Transact.LSN
	if _, err := c.srv.NC.Subscribe(store.StandbySubject(id), func(m *nats.Msg) {
		answer := old
		if n, err := strconv.ParseUint(m.Header.Get(store.HeaderAtLeast), 10, 64); err != nil || feed.LSN(n) > at {
			answer = store.EncodeResponse(&store.Response{Err: store.Refuse(store.StatusUnavailable, "has not come to LSN %d yet", n)}, readOf(id, key, "x"))
		}
		_ = m.Respond(answer)
	}); err != nil {
		t.Fatal(err)
	}

	seen := map[string]feed.LSN{}
	refused := func(what string, status store.Status, err error) {
		t.Helper()
		refusal, ok := errors.AsType[*store.Error](err)
		if !ok || refusal.Status != status || refusal.LSN != c.end(id) {
			t.Errorf("%s: %+v (%v); want %d with the LSN %d", what, refusal, err, status, c.end(id))
			return
		}
		seen[what] = refusal.LSN
	}
	if _, err := ct.Upsert(t.Context(), []byte(`{"id":"x","k":"k1","n":2,"u":"x"}`)); err != nil {
		t.Fatal(err)
	}
	_, err = ct.Replace(t.Context(), "x", []byte(`{"id":"x","k":"k1","n":3,"u":"x"}`), store.WriteOptions{IfMatch: before.ETag})
	refused("another version", store.StatusPreconditionFailed, err)
	if _, err := ct.Create(t.Context(), []byte(`{"id":"y","k":"k1","u":"y"}`)); err != nil {
		t.Fatal(err)
	}
	_, err = ct.Create(t.Context(), []byte(`{"id":"y","k":"k1","u":"z"}`))
	refused("an id that is taken", store.StatusConflict, err)
	if err := ct.Delete(t.Context(), key, "x"); err != nil {
		t.Fatal(err)
	}
	refused("an item that is gone", store.StatusNotFound, ct.Delete(t.Context(), key, "x"))
	a.kill()

	got, err := ct.InSession(map[uint32]feed.LSN{id.Number: at}).Read(t.Context(), key, "x")
	if err != nil || got.ETag != before.ETag {
		t.Errorf("a session of before read %s, %v; want %s", got.ETag, err, before.ETag)
	}
	for what, lsn := range seen {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if got, err := ct.InSession(map[uint32]feed.LSN{id.Number: lsn}).Read(ctx, key, "x"); err == nil {
			t.Errorf("%s: a session that was told of it read %s", what, got.Body)
		}
		cancel()
	}
}

// TestACopyThatIsOpenedAnswersNoMore has the standby become the owner: whoever asks for a standby finds none.
func TestACopyThatIsOpenedAnswersNoMore(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.ttl = 5 * time.Second
	ct, id, a := c.things()
	scribble(t, ct, rand.New(rand.NewPCG(8, 8)), 20)
	b := c.start("b", t.TempDir())
	b.ready(id)
	a.kill()
	b.owns(id)
	if resp, err := c.askStandby(readOf(id, pk(t, "k1"), "x"), 0); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a standby of a partition that this store owns answered %+v, %v", resp, err)
	}
	// It is the owner that answers now.
	if _, err := ct.Eventual().Read(t.Context(), pk(t, "k1"), "nobody's"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an eventual read: %v", err)
	}
}

// TestI2_SessionsSeeWhatTheyWroteThroughATakeOver has sessions write and read while the owner dies and the standby takes
// over: whoever answers, what was acknowledged to a session is there for it.
func TestI2_SessionsSeeWhatTheyWroteThroughATakeOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.ttl = 5 * time.Second
	ct, id, a := c.things()
	b := c.start("b", t.TempDir())
	b.ready(id)

	var sessions sync.WaitGroup
	var over atomic.Bool
	var turns [3]atomic.Int64
	for n := range turns {
		sessions.Go(func() { wanders(t, ct, n, &turns[n], &over) })
	}
	// Some turns with the old owner, some without any, and some with the new one.
	pass := func(more int64) {
		t.Helper()
		for n := range turns {
			from := turns[n].Load()
			poll.Until(t, func() error {
				return poll.Unless(turns[n].Load() >= from+more || t.Failed(), "the session makes no turns")
			})
		}
	}
	pass(20)
	a.kill()
	pass(3)
	b.owns(id)
	pass(20)
	over.Store(true)
	sessions.Wait()
}

// wanders creates items and reads what was acknowledged, in a session, until it is over.
func wanders(t *testing.T, ct *store.Container, n int, turns *atomic.Int64, over *atomic.Bool) {
	t.Helper()
	key := pk(t, "k1")
	var seen feed.LSN // of the session
	last := ""        // of the acknowledged items
	for sent := 0; !over.Load(); sent++ {
		id := fmt.Sprintf("s%d-%d", n, sent)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		item, err := ct.Create(ctx, fmt.Appendf(nil, `{"id":%q,"k":"k1","u":%q}`, id, id))
		cancel()
		if err == nil {
			last, seen = id, max(seen, item.ETag.LSN)
		}
		if last == "" {
			continue
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		item, err = ct.InSession(map[uint32]feed.LSN{0: seen}).Read(ctx, key, last)
		cancel()
		if err != nil || item.ID != last {
			t.Errorf("session %d, which has seen LSN %d, read %q in place of %s: %v", n, seen, item.ID, last, err)
			return
		}
		turns.Add(1)
	}
}
