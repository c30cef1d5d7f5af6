package feed

import "testing"

// A commit that comes between a tail's look for it and its wait is not waited for.
func TestTailCache_WhatComesBetweenLookAndWait(t *testing.T) {
	t.Parallel()
	cache, id := NewTailCache(), NewLogID()
	log, owner, tail := new(Log), cache.hold(id), cache.hold(id).follow(5)
	owner.add(log, 4, []byte("four"))
	for lsn := LSN(5); lsn < 9; lsn++ {
		if data := tail.get(); data != nil {
			t.Fatalf("%q is here before it is appended", data)
		}
		owner.add(log, lsn, []byte("more"))
		appended, follows := tail.await()
		select {
		case <-appended:
		default:
			t.Fatal("the tail waits for what is here")
		}
		if data := tail.get(); !follows || string(data) != "more" {
			t.Fatalf("follows %t, %q", follows, data)
		}
		tail.move(lsn + 1)
	}
	appended, follows := tail.await()
	owner.stop(log)
	select {
	case <-appended:
	default:
		t.Error("the tail waits for an owner that has stopped")
	}
	if _, still := tail.await(); !follows || still {
		t.Errorf("follows %t, and behind the end %t", follows, still)
	}
}

// Of two owners in one process, the one that was succeeded changes nothing any more: neither by an append of which it hears late,
// nor by its end.
func TestTailCache_WhoWasSucceededChangesNothing(t *testing.T) {
	t.Parallel()
	cache, id := NewTailCache(), NewLogID()
	former, owner, held, tail := new(Log), new(Log), cache.hold(id), cache.hold(id).follow(7)
	held.add(former, 5, []byte("five"))
	held.add(owner, 7, []byte("seven"))
	held.add(former, 6, []byte("six"))
	held.stop(former)
	if data := tail.get(); string(data) != "seven" {
		t.Errorf("%q is at LSN 7", data)
	}
	tail.move(8)
	if _, follows := tail.await(); !follows {
		t.Error("the tail does not expect what the owner appends next")
	}
	held.stop(owner)
	if _, follows := tail.await(); follows {
		t.Error("the tail waits for an owner that has stopped")
	}
}
