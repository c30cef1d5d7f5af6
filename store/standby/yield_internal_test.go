package standby

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store/owner"
)

var partition = feed.Partition{Container: "abcdefgh"}

func standbysOf(file string, log *strings.Builder) *Standbys {
	s := &Standbys{
		cfg: Config{File: file, Settle: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)}, self: "a",
		chosen: map[feed.Partition]time.Time{}, followers: map[feed.Partition]*follower{}, begun: map[feed.Partition]*begun{}, owned: map[feed.Partition]int{},
	}
	if log != nil {
		s.cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	return s
}

// TestAYieldEndsTheFreeing lets an owner come while it is found out whether a copy may be freed.
func TestAYieldEndsTheFreeing(t *testing.T) {
	t.Parallel()
	s := standbysOf("", nil)
	asked := make(chan struct{})
	f := s.newFollower(nil, partition)
	f.frees = true
	b := &begun{}
	s.mu.Lock()
	s.begun[partition] = b
	s.startLocked(t.Context(), f, func(ctx context.Context) {
		f.free(ctx, b, func(ctx context.Context, _ feed.Partition, _ func()) (string, error) {
			close(asked)
			<-ctx.Done() // as a log does that does not answer
			return "", context.Cause(ctx)
		})
	})
	s.mu.Unlock()
	<-asked
	back, err := s.Yield(t.Context(), partition)
	if err != nil {
		t.Fatal(err)
	}
	defer back()
	select {
	case <-f.done:
	default:
		t.Error("the copy is still being freed when its owner goes on")
	}
	if s.begun[partition] == nil {
		t.Error("the copy counts as freed")
	}
}

// TestFewCopiesAreFreedAtOnce has many to free, as when the standbys of a large container are turned off.
func TestFewCopiesAreFreedAtOnce(t *testing.T) {
	t.Parallel()
	s, now := standbysOf("", nil), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	const copies = 10
	for i := range copies {
		s.begun[feed.Partition{Container: "abcdefgh", Number: uint32(i)}] = &begun{unwanted: now.Add(-s.cfg.Settle)}
	}
	for left := copies; left > 0; {
		free := s.freeableLocked(now)
		if len(free)+len(s.followers) != min(freeingsMax, left) {
			t.Fatalf("%d copies are being freed, and %d more are to be", len(s.followers), len(free))
		}
		for _, id := range free {
			f := s.newFollower(nil, id)
			f.frees = true
			s.followers[id] = f
		}
		if more := s.freeableLocked(now); len(more) > 0 {
			t.Fatalf("%d copies are being freed, and %d more are to be", len(s.followers), len(more))
		}
		for id := range s.followers { // one has ended
			delete(s.followers, id)
			delete(s.begun, id)
			left--
			break
		}
	}
}

// TestWhoseACopyIs goes through what becomes of a copy that is not followed, by who owns it and who wants it.
func TestWhoseACopyIs(t *testing.T) {
	t.Parallel()
	by := func(owner string) map[feed.Partition]Wish {
		return map[feed.Partition]Wish{partition: {Partition: partition, Standbys: 1, Owner: owner}}
	}
	tests := []struct {
		name   string
		wished map[feed.Partition]Wish
		warm   []string
		owned  int
		chosen bool
		// What is left of it: freed after Settle, or an owner's, which is not begun any more.
		unwanted, owners bool
	}{
		{name: "no standbys are wished", unwanted: true},
		{name: "another is to follow it, and loads", wished: by("b")},
		{name: "another is to follow it, and the owner was warm", wished: by("b"), warm: []string{"b"}},
		{name: "another follows it", wished: by("b"), warm: []string{"c"}, unwanted: true},
		{name: "this node follows it", wished: by("b"), warm: []string{"c"}, chosen: true},
		{name: "this node has its lease, and nobody opens it yet", wished: by("a")},
		{name: "this node owns it", wished: by("a"), owned: 1, owners: true},
		{name: "this node owns it, and no standbys are wished", owned: 1, owners: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, now := standbysOf("", nil), time.Now()
			b := &begun{}
			s.begun[partition] = b
			s.owned[partition] = test.owned
			if test.chosen {
				s.chosen[partition] = now
			}
			group := &leases.Group{Nodes: []string{"b", "c"}, Warm: map[string]map[string]uint64{}}
			for _, node := range test.warm {
				group.Warm[node] = map[string]uint64{owner.LeaseResource(partition): 7}
			}
			s.endLocked(test.wished, group, false, now)
			if got := !b.unwanted.IsZero(); got != test.unwanted {
				t.Errorf("unwanted: %t", got)
			}
			if got := s.begun[partition] == nil; got != test.owners {
				t.Errorf("an owner's: %t", got)
			}
		})
	}
}

// TestAFileThatCannotBeReadIsLeftAlone also shows that what is written is read again.
func TestAFileThatCannotBeReadIsLeftAlone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "standbys.json")
	s := standbysOf(file, nil)
	if err := s.writeBegun([]feed.Partition{partition}); err != nil {
		t.Fatal(err)
	}
	s = standbysOf(file, nil)
	if s.readBegun(); len(s.begun) != 1 || s.begun[partition] == nil {
		t.Errorf("%v were begun", s.begun)
	}
	for _, text := range []string{"{", `{"v":2,"partitions":[]}`, `{"v":1,"partitions":["x"]}`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		s := standbysOf(file, &log)
		if s.readBegun(); len(s.begun) != 0 || !strings.Contains(log.String(), file) {
			t.Errorf("%s: %v were begun, and it logged %s", text, s.begun, log.String())
		}
		if err := s.writeBegun([]feed.Partition{partition}); err != nil {
			t.Error(err)
		}
		if now, err := os.ReadFile(file); err != nil || string(now) != text {
			t.Errorf("%s became %s, %v", text, now, err)
		}
	}
}

// TestWhoDrainsIsNoFollower has a wish whose first follower by rank is to drain.
func TestWhoDrainsIsNoFollower(t *testing.T) {
	t.Parallel()
	resource := owner.LeaseResource(partition)
	nodes := []string{"a", "b", "c"}
	w := Wish{Partition: partition, Standbys: 1, Owner: "a"}
	first := w.followers(nodes)[0]
	second := map[string]string{"b": "c", "c": "b"}[first]
	warm := map[string]map[string]uint64{first: {resource: 1}}
	group := &leases.Group{Nodes: nodes, Warm: warm}
	if got := Choose(first, group.Stays(), []Wish{w}); len(got) != 1 || !w.relieved(group) {
		t.Errorf("%s follows %v, relieves others: %v", first, got, w.relieved(group))
	}
	group.Drains = map[string]bool{first: true}
	if got := Choose(first, group.Stays(), []Wish{w}); len(got) > 0 {
		t.Errorf("%s drains, and is to follow %v", first, got)
	}
	if got := Choose(second, group.Stays(), []Wish{w}); len(got) != 1 {
		t.Errorf("%s follows %v in its place", second, got)
	}
	if w.relieved(group) {
		t.Error("the copy of who drains goes before another is warm")
	}
	warm[second] = map[string]uint64{resource: 1}
	if !w.relieved(group) {
		t.Error("the copy of who drains stays where another is warm")
	}
	if alone := (&leases.Group{Nodes: []string{"a", first}, Warm: warm, Drains: group.Drains}); w.relieved(alone) {
		t.Error("the only copy goes")
	}
}
