package owner

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// awaitExpired waits until an item is no longer in the engine.
func (s *shop) awaitExpired(customer, id string) {
	s.t.Helper()
	late := time.After(time.Minute)
	for {
		wait := s.changed.wait()
		if !s.holds(customer, id) {
			return
		}
		select {
		case <-wait:
		case <-late:
			s.t.Fatalf("%s has not gone", id)
		}
	}
}

// holds says whether the engine holds an item, expired or not.
func (s *shop) holds(customer, id string) bool {
	s.t.Helper()
	snap := s.engine.Snapshot()
	defer snap.Close()
	_, there, err := snap.Get(s.key(customer), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return there
}

// TestExpiry_GoesOnWhereOneItemFitsIntoNoCommit: an order expires that counts in four customers of
// 1.9 MB each, which together are more than a commit takes; it is the first of those whose time
// has passed in every round.
func TestExpiry_GoesOnWhereOneItemFitsIntoNoCommit(t *testing.T) {
	s := newShop(t, ruled(totals(), true, true))
	expiring := func(id, customer string, ttl int) {
		body := order(id, customer, 1, 100)
		s.do(customer, create(fmt.Sprintf(`%s,"ttl":%d}`, body[:len(body)-1], ttl)))
	}
	expiring("o1", "c", 1)
	for i := range 3 {
		expiring(fmt.Sprintf("p%d", i), "d", 2+i)
	}
	fill := strings.Repeat("x", 1_900_000)
	for i := range 4 {
		s.do("c", create(fmt.Sprintf(`{"id":"c%d","customerId":"c","type":"customer","fill":%q}`, i, fill)))
	}
	s.w.clock.Add(time.Hour.Milliseconds())
	for i := range 3 {
		s.awaitExpired("d", fmt.Sprintf("p%d", i))
	}
	if !s.holds("c", "o1") {
		t.Fatal("o1 has gone, so its delete fitted")
	}
	// Once its targets are few enough it goes, when it is tried again.
	for i := range 3 {
		s.do("c", remove(fmt.Sprintf("c%d", i)))
	}
	s.w.clock.Add(2 * expiryPause.Milliseconds())
	s.awaitExpired("c", "o1")
	var count int
	for _, c := range s.w.commits() {
		for i := range c.Transactions {
			for j := range c.Transactions[i].Changes {
				if c.Transactions[i].Changes[j].Op == feed.OpExpire {
					count++
				}
			}
		}
	}
	if count != 4 {
		t.Errorf("%d expiries are in the log, not 4", count)
	}
}

// TestExpiry_IsForGood raises the time to live while items that have expired are still in the
// engine. Copies have passed them over since; they do not live again.
func TestExpiry_IsForGood(t *testing.T) {
	const items = expiryMax + 500
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/customerId"}, TTL: 60})
	n := w.open(t.TempDir())
	n.cfg.ExpiryInterval = time.Hour // nobody else deletes them
	if err := n.open(t.Context(), w.info.Partitions[0].Log); err != nil {
		t.Fatal(err)
	}
	n.serve()
	s := &shop{n, t}
	for i := range items {
		s.do("d", create(fmt.Sprintf(`{"id":"i%d","customerId":"d"}`, i)))
	}
	s.w.clock.Add(time.Minute.Milliseconds())
	s.do("d", create(`{"id":"young","customerId":"d"}`))
	w.info.Spec.TTL = 3600
	w.info.Revision++
	if err := s.reconcileSettings(t.Context(), &w.info); err != nil {
		t.Fatal(err)
	}
	r := s.ask(&store.Request{Count: &store.Scope{}})
	if r.Err != nil || r.Count != 1 {
		t.Errorf("%d items are there, want the young one: %v", r.Count, r.Err)
	}
	s.w.clock.Add(time.Hour.Milliseconds() - 1)
	if body := s.read(s.key("d"), "young"); body == "" {
		t.Error("the young item has gone")
	}
}

// TestExpiry_WaitsWithANewTimeToLive: while deletes are refused, as on a disk that is nearly full, the
// time to live stays as it is, and it is told why.
func TestExpiry_WaitsWithANewTimeToLive(t *testing.T) {
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/customerId"}, TTL: 60})
	s := &shop{w.start(t.TempDir()), t}
	s.do("d", create(`{"id":"old","customerId":"d"}`))
	why := store.Refuse(store.StatusInsufficientDisk, "the disk is nearly full")
	s.trouble.Store(why)
	s.w.clock.Add(time.Minute.Milliseconds())
	w.info.Spec.TTL = 3600
	w.info.Revision++
	if err := s.reconcileSettings(t.Context(), &w.info); !errors.Is(err, store.ErrDiskFull) {
		t.Errorf("the settings are put in force: %v", err)
	}
	s.trouble.Store(nil)
	if err := s.reconcileSettings(t.Context(), &w.info); err != nil {
		t.Fatal(err)
	}
	if r := s.ask(&store.Request{Count: &store.Scope{}}); r.Err != nil || r.Count != 0 {
		t.Errorf("%d items are there: %v", r.Count, r.Err)
	}
}
