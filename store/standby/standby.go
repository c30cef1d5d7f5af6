package standby

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store/owner"
)

// Config tunes Standbys. Zero fields take their defaults.
type Config struct {
	// Hub reads the logs. Required.
	Hub *feed.Hub

	// Leases tells who owns what, and is told which copies are warm. Required.
	Leases *leases.Manager

	// Settle is for how long a partition must be chosen before a copy of it is made, and not chosen before
	// that is dropped: a store that starts again changes nothing. Default 10s.
	Settle time.Duration

	// Logger gets what an operator should know. Default slog.Default.
	Logger *slog.Logger
}

const (
	// roundInterval is the time between two looks at what is to be followed.
	roundInterval = time.Second
	// turnsMax bounds the followers that load or replay what was there before they came.
	turnsMax = 2
)

// Standbys are the copies that a process keeps of partitions of other stores.
type Standbys struct {
	cfg   Config
	self  string
	turns chan struct{} // a place for each follower that catches up

	// Owned by the goroutine of Run.
	chosen   map[feed.Partition]time.Time // since when
	noRoom   bool                         // as it was said last
	wg       sync.WaitGroup
	anything bool // something was followed at the last round

	mu        sync.Mutex // guards what follows
	followers map[feed.Partition]*follower
	owned     map[feed.Partition]int // how many owners keep a partition from being followed
}

// New returns Standbys that follow nothing yet.
func New(cfg Config) *Standbys {
	cfg.Settle = cmp.Or(cfg.Settle, 10*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &Standbys{
		cfg: cfg, self: nodeOf(cfg.Leases.Holder()), turns: make(chan struct{}, turnsMax), chosen: map[feed.Partition]time.Time{},
		followers: map[feed.Partition]*follower{}, owned: map[feed.Partition]int{},
	}
}

// nodeOf returns the node of a holder of leases, which is node/incarnation.
func nodeOf(holder string) string {
	node, _, _ := strings.Cut(holder, "/")
	return node
}

// Run follows partitions until ctx ends. owners have the engine; their Config.Standbys must be s.
func (s *Standbys) Run(ctx context.Context, owners *owner.Server) {
	defer s.wg.Wait()
	tick := time.NewTicker(roundInterval)
	defer tick.Stop()
	for {
		s.round(ctx, owners, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Yield ends the follower of a partition, and keeps the next from beginning until back is called. The
// copy is left as it is: it holds all of a commit or nothing.
func (s *Standbys) Yield(ctx context.Context, p feed.Partition) (back func(), err error) {
	s.mu.Lock()
	s.owned[p]++
	f := s.followers[p]
	s.mu.Unlock()
	back = sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.owned[p]--; s.owned[p] == 0 {
			delete(s.owned, p)
		}
	})
	if f == nil {
		return back, nil
	}
	warm := f.warm.Load() > 0
	f.cancel(errYielded)
	select {
	case <-f.done:
	case <-ctx.Done():
		back()
		return nil, context.Cause(ctx)
	}
	if warm {
		meters.yielded.Add(ctx, 1)
	}
	return back, nil
}

// owns says whether an owner in this process has made the follower of a partition yield: the copy is its state now.
func (s *Standbys) owns(p feed.Partition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned[p] > 0
}

// round begins and ends followers, and tells the group how far they are.
func (s *Standbys) round(ctx context.Context, owners *owner.Server, now time.Time) {
	group := s.cfg.Leases.Group()
	if group == nil {
		return
	}
	wishes := s.wishes(owners, group)
	if len(wishes) == 0 && !s.anything {
		return
	}
	room := owners.RoomToFollow()
	s.note(Choose(s.self, group.Nodes, wishes), room == nil, now)
	if room != nil != s.noRoom {
		if s.noRoom = room != nil; s.noRoom {
			s.cfg.Logger.Warn("copies of other stores' partitions are not brought forward until the disk has room", "error", room)
		}
	}
	wished := make(map[feed.Partition]string, len(wishes))
	for _, w := range wishes {
		wished[w.Partition] = w.Owner
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(wished, room != nil, now)
	for id, since := range s.chosen {
		if s.followers[id] == nil && s.owned[id] == 0 && room == nil && now.Sub(since) >= s.cfg.Settle {
			s.beginLocked(ctx, owners, id)
		}
	}
	s.tellLocked(ctx)
}

// wishes returns the partitions of which copies are to be kept, with who owns them.
func (s *Standbys) wishes(owners *owner.Server, group *leases.Group) (wishes []Wish) {
	var nodes map[string]string // by resource
	for _, info := range owners.Containers() {
		if info.Spec.Standbys == 0 {
			continue
		}
		if nodes == nil {
			nodes = make(map[string]string, len(group.Leases))
			for i := range group.Leases {
				nodes[group.Leases[i].Resource] = nodeOf(cmp.Or(group.Leases[i].Owner, group.Leases[i].Last))
			}
		}
		for _, p := range info.Partitions {
			id := feed.Partition{Container: info.ID, Number: p.Number}
			wishes = append(wishes, Wish{id, info.Spec.Standbys, nodes[owner.LeaseResource(id)]})
		}
	}
	return wishes
}

// note notes since when partitions are chosen and there is room: where a disk is about full, copies do
// not come and go each second.
func (s *Standbys) note(chosen []feed.Partition, room bool, now time.Time) {
	next := make(map[feed.Partition]time.Time, len(chosen))
	for _, id := range chosen {
		next[id] = now
		if since, ok := s.chosen[id]; ok && room {
			next[id] = since
		}
	}
	s.chosen = next
}

// endLocked ends the followers of partitions that are not chosen any more, and all where there is no room. wished
// has the owners of all partitions of which there are to be copies.
func (s *Standbys) endLocked(wished map[feed.Partition]string, noRoom bool, now time.Time) {
	for id, f := range s.followers {
		_, chosen := s.chosen[id]
		by, ok := wished[id]
		switch {
		case !ok: // of a container that wants none, or is gone
			f.cancel(errUnwanted)
		case by == s.self: // it yields at any moment, and the copy is not to be dropped before
		case noRoom:
			f.cancel(errNoRoom)
		case chosen:
			f.unchosen = time.Time{}
		case f.unchosen.IsZero():
			f.unchosen = now
		case now.Sub(f.unchosen) >= s.cfg.Settle:
			f.cancel(errUnwanted)
		}
	}
}

func (s *Standbys) beginLocked(ctx context.Context, owners *owner.Server, id feed.Partition) {
	ctx, cancel := context.WithCancelCause(ctx)
	f := &follower{
		s: s, id: id, owners: owners, log: s.cfg.Logger.With("partition", id.String()), cancel: cancel, done: make(chan struct{}),
	}
	s.followers[id] = f
	s.wg.Go(func() {
		defer cancel(nil)
		f.run(ctx)
		s.mu.Lock()
		delete(s.followers, id)
		s.mu.Unlock()
		close(f.done)
	})
}

// tellLocked tells the group which copies are warm.
func (s *Standbys) tellLocked(ctx context.Context) {
	warm := make(map[string]uint64, len(s.followers))
	for id, f := range s.followers {
		if at := f.warm.Load(); at > 0 {
			warm[owner.LeaseResource(id)] = at
		}
	}
	s.cfg.Leases.SetWarm(warm)
	meters.follows(ctx, len(warm), len(s.followers)-len(warm))
	s.anything = len(s.followers) > 0
}
