package feed

import "testing"

// A commit that comes between a tail's look for it and its wait is not waited for.
func TestTailCache_WhatComesBetweenLookAndWait(t *testing.T) {
	t.Parallel()
	cache, id := NewTailCache(), NewLogID()
	owner, tail := cache.hold(id), cache.hold(id).follow(5)
	owner.add(4, []byte("four"))
	for lsn := LSN(5); lsn < 9; lsn++ {
		if data := tail.get(); data != nil {
			t.Fatalf("%q is here before it is appended", data)
		}
		owner.add(lsn, []byte("more"))
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
	owner.stop()
	select {
	case <-appended:
	default:
		t.Error("the tail waits for an owner that has stopped")
	}
	if _, still := tail.await(); !follows || still {
		t.Errorf("follows %t, and behind the end %t", follows, still)
	}
}
