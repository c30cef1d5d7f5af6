package owner

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// lapsedNode serves a partition with one item under a lease that lasts, by a process whose right has run out.
func lapsedNode(t *testing.T) (n *node, k feed.PartitionKey) {
	t.Helper()
	n = newWorld(t, byA).start(t.TempDir())
	k = pk(t, "x")
	n.mustOne(k, create(`{"id":"1","a":"x"}`))
	n.doubtMax = time.Hour // nobody asks before
	n.lease.lapsed.Store(true)
	return n, k
}

// TestI2_AnAppendNeedsNoRight: what is in the log is proof enough that nobody has taken over, for a write and for what was
// refused in its commit.
func TestI2_AnAppendNeedsNoRight(t *testing.T) {
	n, k := lapsedNode(t)
	n.mustOne(k, create(`{"id":"2","a":"x"}`))
	if n.lease.extended.Load() == 0 {
		t.Error("the append did not extend the right")
	}
	n.lease.lapsed.Store(false)
	if n.read(k, "2") == "" {
		t.Error("what was written is not read")
	}
}

// TestI2_WhatIsNotAppendedNeedsTheRight: a refusal for which nothing is appended waits, and holds up no other draft.
func TestI2_WhatIsNotAppendedNeedsTheRight(t *testing.T) {
	for _, kept := range []bool{true, false} {
		n, k := lapsedNode(t)
		c := newCall(&store.Request{Transact: &store.Transact{Key: k, Ops: []store.Operation{create(`{"id":"1","a":"x"}`)}}}, &transactHandler)
		conflict := &store.Response{Err: store.Refuse(store.StatusConflict, "it exists")}
		newCommitter(n.Partition).answerUnappended(t.Context(), &draft{replies: []reply{{call: c, resp: conflict}}})
		n.mustOne(k, create(`{"id":"2","a":"x"}`))
		select {
		case resp := <-c.done:
			t.Fatalf("answered without the right: %v", resp.Err)
		default:
		}
		if kept {
			n.lease.lapsed.Store(false)
		} else {
			n.lease.cancel(errStopped)
		}
		if resp := <-c.done; kept && resp != conflict || !kept && !errors.Is(resp.Err, store.ErrNotOwner) {
			t.Errorf("right kept %t: %v", kept, resp.Err)
		}
	}
}

// TestI2_AReadNeedsTheRight: a read waits for it, as long as that may take, and is then to be asked of whoever owns the
// partition.
func TestI2_AReadNeedsTheRight(t *testing.T) {
	n, k := lapsedNode(t)
	n.doubtMax = time.Millisecond
	read := store.Operation{Kind: store.OpRead, ID: "1"}
	if _, err := n.one(k, read); !errors.Is(err, store.ErrNotOwner) {
		t.Errorf("read without the right: %v", err)
	}
	if r := n.count(&store.Scope{}); !errors.Is(r.Err, store.ErrNotOwner) {
		t.Errorf("count without the right: %v", r.Err)
	}
	n.lease.lapsed.Store(false)
	if _, err := n.one(k, read); err != nil {
		t.Errorf("read with it: %v", err)
	}
}

// TestI2_NothingHappenedIsForTheOwnerToSay: who may have been succeeded refuses no write by what it knows alone, because
// the next owner may have got the same request, and carried it out.
func TestI2_NothingHappenedIsForTheOwnerToSay(t *testing.T) {
	n, k := lapsedNode(t)
	n.closedFor.Store(&store.Error{Status: store.StatusUnavailable, Message: "the disk is full; nothing was changed"})
	write := create(`{"id":"2","a":"x"}`)
	if _, err := n.one(k, write); !errors.Is(err, store.ErrNotOwner) {
		t.Errorf("without the right: %v", err)
	}
	n.lease.lapsed.Store(false)
	refused := new(store.Error)
	if _, err := n.one(k, write); !errors.As(err, &refused) || refused.Status != store.StatusUnavailable {
		t.Errorf("with it: %v", err)
	}
}
