package project_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/sinktest"
	"github.com/millrace/millrace/store"
)

// A change of an item is given up, and tried again when the item is gone or there again: with
// keep the rows that it had when it expired stay, and those of an item that was deleted do not.
func TestI6_ARetryKeepsTheRowsOfAnExpiredItem(t *testing.T) {
	t.Parallel()
	const refused = "refused"
	first, bad, last := orderItem("o1", day, "a", "b", "c"), orderItem("o1", day, refused, "b"), orderItem("o1", day, refused, "z")
	expire, remove := set{id: "o1", op: feed.OpExpire}, set{id: "o1"}
	for name, c := range map[string]struct {
		later []set
		want  string
		there bool // the item is there in the end, as want
	}{
		"it expired":                         {[]set{expire}, bad, false},
		"it changed and expired":             {[]set{{id: "o1", body: last}, expire}, last, false},
		"it was deleted":                     {[]set{remove}, "", false},
		"it was deleted, made and expired":   {[]set{remove, {id: "o1", body: first}, expire}, first, false},
		"it expired, was made and deleted":   {[]set{expire, {id: "o1", body: bad}, remove}, "", false},
		"it expired and was made once more":  {[]set{expire, {id: "o1", body: last}}, last, true},
		"it is there and has not gone since": {[]set{{id: "o1", body: last}}, last, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			cfg := analytics(t)
			cfg.Source = s.container(t, "customer", 1, "/customerId") // holds the items as they are in the end
			var refuse atomic.Bool
			refuse.Store(true)
			cfg.Sink = &tap{Memory: sinktest.NewMemory(sinktest.NewDisk(), false), write: func(b *project.Batch) error {
				for _, r := range b.Put {
					if refuse.Load() && r.Table == 2 && r.Values[2].Text() == refused {
						return processors.Reject(errors.New("not now"))
					}
				}
				return nil
			}}
			p := compile(t, cfg)
			l := newLease()
			s.append(set{id: "o1", body: first}, set{id: "o2", body: orderItem("o2", day, "x")})
			s.append(set{id: "o1", body: bad})
			s.run(l, p)
			s.done(l)
			refuse.Store(false)
			for _, change := range c.later {
				s.append(change)
			}
			s.done(l)
			if c.there {
				if _, err := cfg.Source.Create(t.Context(), []byte(c.want)); err != nil {
					t.Fatal(err)
				}
			}
			deadLetters, err := s.letters.List(t.Context(), "analytics", 10)
			if err != nil || len(deadLetters) != 1 {
				t.Fatalf("dead letters: %+v, %v", deadLetters, err)
			}
			if err := s.letters.Retry(t.Context(), "analytics", deadLetters[0].ID); err != nil {
				t.Fatal(err)
			}
			s.gone(l, deadLetters[0].ID)
			if s.items["o1"] = c.want; c.want == "" {
				delete(s.items, "o1")
			}
			s.equal(p)
		})
	}
}

// What a backfill gave up of an item is tried again when the item has expired: with keep its rows stay. The backfill knew
// of nothing that was before the item's last change, which its dead letter names.
func TestI6_ARetryOfABackfillKeepsTheRowsOfAnExpiredItem(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := analytics(t)
	cfg.Source = s.container(t, "customer", 1, "/customerId") // the item is gone
	cfg.Sink = sinktest.NewMemory(sinktest.NewDisk(), false)
	p := compile(t, cfg)
	l := newLease()
	last := orderItem("o1", day, "a", "z")
	s.append(set{id: "o1", body: orderItem("o1", day, "a", "b")})
	s.append(set{id: "o1", body: last})
	refused := processors.DeadLetterOf(p.Resource(s.partition), &processors.Job{
		Source: store.ItemRef{Key: key(t, "c1"), ID: "o1"}.String(), Position: feed.Position{LSN: s.last}, LastError: "no room",
	})
	refused.Target = "row [o1] of orders"
	s.run(l, p)
	s.append(set{id: "o1", op: feed.OpExpire})
	s.done(l)
	if err := s.letters.Write(t.Context(), &refused); err != nil {
		t.Fatal(err)
	}
	deadLetters, err := s.letters.List(t.Context(), "analytics", 10)
	if err != nil || len(deadLetters) != 1 {
		t.Fatalf("dead letters: %+v, %v", deadLetters, err)
	}
	if err := s.letters.Retry(t.Context(), "analytics", deadLetters[0].ID); err != nil {
		t.Fatal(err)
	}
	s.gone(l, deadLetters[0].ID)
	s.items["o1"] = last
	s.equal(p)
}

// An item expires while it is repaired: with keep the rows that were written of it stay.
func TestI6_ARepairKeepsTheRowsOfAnExpiredItem(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if _, err := n.Client.Catalog().Create(t.Context(), "default", "sessions", store.ContainerSpec{PartitionKey: []string{"/customerId"}, TTL: -1}); err != nil {
		t.Fatal(err)
	}
	source, err := n.Client.Container(t.Context(), "default", "sessions")
	if err != nil {
		t.Fatal(err)
	}
	gone := func() error {
		items, err := source.ReadMany(t.Context(), []store.ItemRef{ref(t, "c1", "o1")}, true)
		if err != nil {
			return err
		}
		return poll.Unless(items[0].ETag == (store.ETag{}), "the item is still there")
	}
	body := orderItem("o1", day, "a", "b")
	cfg := analytics(t)
	cfg.Source = source
	cfg.Sink = &tap{Memory: sinktest.NewMemory(sinktest.NewDisk(), true), write: func(*project.Batch) error {
		if gone() == nil {
			return nil
		}
		if _, err := source.Upsert(t.Context(), []byte(strings.Replace(body, "{", `{"ttl":1,`, 1))); err != nil {
			t.Error(err)
		}
		poll.Until(t, gone)
		return nil
	}}
	p := compile(t, cfg)
	producer := p.Resource(partition).Producer()
	producer.Source = "repair"
	w, at, err := cfg.Sink.Open(t.Context(), p.Schema(), project.Term{Producer: producer, Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := source.Create(t.Context(), []byte(body)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Repair(t.Context(), w, at, []project.ItemToRepair{{ItemRef: ref(t, "c1", "o1")}}); err != nil {
		t.Fatal(err)
	}
	sinktest.Equal(t, p, []store.Item{{Key: key(t, "c1"), ID: "o1", Body: []byte(body)}})
}

// Two retries between the same changes have positions of their own, whatever became of the first:
// some partitions of a container may have recorded it, and would pass over the second.
func TestI6_ARetryBehindOneThatFailedHasAnotherPosition(t *testing.T) {
	t.Parallel()
	const refused = "refused"
	s := newStage(t)
	cfg := analytics(t)
	cfg.Source = s.container(t, "customer", 1, "/customerId")
	var mu sync.Mutex
	retrying, positions := false, []feed.Position(nil)
	cfg.Sink = &tap{Memory: sinktest.NewMemory(sinktest.NewDisk(), false), write: func(b *project.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range b.Put {
			if r.Table != 2 || r.Values[2].Text() != refused {
				continue
			}
			if !retrying {
				return processors.Reject(errors.New("not now"))
			}
			if positions = append(positions, b.UpTo); len(positions) == 1 {
				return store.Refuse(store.StatusUnavailable, "a partition is away")
			}
			break
		}
		return nil
	}}
	p := compile(t, cfg)
	l := newLease()
	for _, id := range []string{"o1", "o2"} {
		s.append(set{id: id, body: orderItem(id, day, refused)})
		if _, err := cfg.Source.Create(t.Context(), []byte(orderItem(id, day, refused))); err != nil {
			t.Fatal(err)
		}
	}
	s.run(l, p)
	s.done(l)
	deadLetters, err := s.letters.List(t.Context(), "analytics", 10)
	if err != nil || len(deadLetters) != 2 {
		t.Fatalf("dead letters: %+v, %v", deadLetters, err)
	}
	mu.Lock()
	retrying = true
	mu.Unlock()
	for i := range deadLetters {
		if err := s.letters.Retry(t.Context(), "analytics", deadLetters[i].ID); err != nil {
			t.Fatal(err)
		}
		poll.Until(t, func() error { // it was tried: it is gone, or not asked for any more
			now, err := s.letters.Get(t.Context(), "analytics", deadLetters[i].ID)
			return poll.Unless(errors.Is(err, store.ErrNotFound) || err == nil && !now.Asked(), "it was not tried yet")
		})
	}
	mu.Lock()
	defer mu.Unlock()
	if len(positions) != 2 || !positions[0].Before(positions[1]) {
		t.Errorf("the retries have the positions %v; want two, the second behind the first", positions)
	}
	// At the position of a change that was given up it would count as processed after a crash.
	if given := (feed.Position{LSN: s.last}); !given.Before(positions[0]) {
		t.Errorf("a retry has the position %s, and the change at %s was given up", positions[0], given)
	}
}
