package right

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestTheKeyIsGone deletes it, and takes the bucket back to a state before it, or before its last writes.
func TestTheKeyIsGone(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, s fakeServer, early, late *fakeState){
		"deleted": func(t *testing.T, s fakeServer, _, _ *fakeState) {
			t.Helper()
			if _, err := s.Put(keyOf("g", "a"), nil, s.Get(keyOf("g", "a")).Revision); err != nil {
				t.Error(err)
			}
		},
		"bucket lost":      func(_ *testing.T, s fakeServer, early, _ *fakeState) { s.GoBack(early) },
		"bucket went back": func(_ *testing.T, s fakeServer, _, late *fakeState) { s.GoBack(late) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeServer(t)
				early := s.State()
				p := start(t, s, "a", nil)
				defer p.end()
				time.Sleep(time.Second)
				late := s.State()
				time.Sleep(time.Second)
				do(t, s, early, late)
				mustEnd(t, p.r, p.r.Holder(), "gone")
				if rec := s.key(t, "a"); rec.Incarnation != p.r.Incarnation() || rec.Deposed == nil {
					t.Errorf("key %+v", rec)
				}
			})
		})
	}
}

// TestASucceededLeaderEndsNothing answers the reads that follow a lost reply from before the last writes, or from before there
// was a key at all.
func TestASucceededLeaderEndsNothing(t *testing.T) {
	for _, long := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServer(t)
			early := s.State()
			p := start(t, s, "a", nil)
			defer p.end()
			for _, old := range []*fakeState{early, s.State()} {
				time.Sleep(time.Second)
				sent := make(chan struct{}, 9999)
				p.client.Set(func(f *faults) { f.Lose, f.Stale, f.Put = 1, old, func(string) { sent <- struct{}{} } })
				<-sent // its reply is lost
				<-sent // this one is refused
				time.Sleep(4 * latency)
				if long {
					time.Sleep(5 * time.Second)
				}
				p.client.Set(func(f *faults) { f.Stale, f.Put = nil, nil })
				if long {
					time.Sleep(Trust)
				}
				watchHolds(2*time.Second, func() {
					if !p.r.Holds() || p.r.Deposed().Err() != nil {
						t.Fatalf("holds %v, ended with %v", p.r.Holds(), context.Cause(p.r.Deposed()))
					}
				})
			}
		})
	}
}

// TestAKeyThatCannotBeRead is not written over, and ends the right of whoever had it.
func TestAKeyThatCannotBeRead(t *testing.T) {
	for value, version := range map[string]int{`{"v":2,"node":7}`: 2, `{"v":1,`: 0} {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServer(t)
			p := start(t, s, "a", nil)
			defer p.end()
			key := keyOf("g", "a")
			if _, err := s.Put(key, []byte(value), s.Get(key).Revision); err != nil {
				t.Fatal(err)
			}
			mustEnd(t, p.r, "", key)
			_, err := Open(t.Context(), p.client, p.cfg)
			later, isLater := errors.AsType[*VersionError](err)
			if err == nil || isLater != (version > 0) || isLater && later.Version != version {
				t.Errorf("Open: %v", err)
			}
			if got := string(s.Get(key).Value); got != value {
				t.Errorf("it was written over: %s", got)
			}
		})
	}
}
