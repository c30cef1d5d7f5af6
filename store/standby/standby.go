package standby

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// Config tunes Standbys. Zero fields take their defaults.
type Config struct {
	// Hub reads the logs. Required.
	Hub *feed.Hub

	// Leases tells who owns what, and is told which copies are warm. Required.
	Leases *leases.Manager

	// Settle is for how long a partition must be chosen before a copy of it is made, and for how long not chosen, with
	// the copies of those who are ready, before it is freed: a store that starts again changes nothing. Default 10s.
	Settle time.Duration

	// File names the copies that were begun and not freed yet, so that a process frees what an earlier one has left. It
	// is made where it is missing, in a directory that is there. "" forgets them with the process.
	File string

	// Logger gets what an operator should know. Default slog.Default.
	Logger *slog.Logger
}

const (
	// roundInterval is the time between two looks at what is to be followed.
	roundInterval = time.Second
	// turnsMax bounds the followers that load or replay what was there before they came.
	turnsMax = 2
	// freeingsMax bounds the copies that are being freed. For each of them a snapshot may be read as a whole first: when
	// the standbys of a container with a thousand partitions are turned off, those are read one after the other.
	freeingsMax = 2
)

// Standbys are the copies that a process keeps of partitions of other stores.
type Standbys struct {
	cfg   Config
	self  string
	turns turns

	comparing chan struct{} // holds a token for each digest that is computed

	// Owned by the goroutine of Run.
	chosen   map[feed.Partition]time.Time // since when they are to be followed
	noRoom   bool                         // as it was said last
	noFile   string                       // why File could not be written, as it was said last
	written  []feed.Partition             // what File names, in order
	wg       sync.WaitGroup
	anything bool // something was followed, or was to be freed, at the last round

	mu        sync.Mutex // guards what follows
	followers map[feed.Partition]*follower
	begun     map[feed.Partition]*begun
	owned     map[feed.Partition]int // how many owners keep a partition from being followed
}

// New returns Standbys that follow nothing yet.
func New(cfg Config) *Standbys {
	cfg.Settle = cmp.Or(cfg.Settle, 10*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &Standbys{
		cfg: cfg, self: leases.NodeOf(cfg.Leases.Holder()), turns: newTurns(), comparing: make(chan struct{}, comparingMax), chosen: map[feed.Partition]time.Time{},
		followers: map[feed.Partition]*follower{}, begun: map[feed.Partition]*begun{}, owned: map[feed.Partition]int{},
	}
}

// Run follows partitions until ctx ends. owners have the engine; their Config.Standbys must be s.
func (s *Standbys) Run(ctx context.Context, owners *owner.Server) {
	defer s.wg.Wait()
	meters.compares(ctx)
	s.readBegun()
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

// Yield ends the follower of a partition, or who frees its copy, and keeps the next from beginning until back is
// called. The copy is left as it is: it holds all of a commit or nothing. One that was about to be freed is left, or
// is gone when Yield returns.
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
	warm := f.warm(time.Now()) > 0
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

// round begins and ends followers, frees copies, and tells the group how far they are.
func (s *Standbys) round(ctx context.Context, owners *owner.Server, now time.Time) {
	group := s.cfg.Leases.Group()
	containers, known := owners.Containers()
	if group == nil || !known {
		return
	}
	wishes, heirs := wishesOf(containers, group), owners.Heirs()
	if len(wishes) == 0 && len(heirs) == 0 && !s.anything && s.nothingBegun() && len(s.written) == 0 {
		return
	}
	room := owners.RoomToFollow()
	wished := make(map[feed.Partition]Wish, len(wishes))
	for _, w := range wishes {
		wished[w.Partition] = w
	}
	s.choose(append(Choose(s.self, group.Stays(), wishes), s.kept(wished, group)...), room == nil, now)
	if room != nil != s.noRoom {
		if s.noRoom = room != nil; s.noRoom {
			s.cfg.Logger.Warn("copies of other stores' partitions are not brought forward until the disk has room", "error", room)
		}
	}
	due := s.due(room != nil, now)
	noted := s.note(due)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(wished, group, room != nil, now)
	for _, id := range due {
		if noted && s.followers[id] == nil && s.owned[id] == 0 {
			s.beginLocked(ctx, owners, id)
		}
	}
	for _, id := range s.freeableLocked(now) {
		s.freeLocked(ctx, owners, id, s.begun[id])
	}
	s.tellLocked(ctx, heirs, now)
}

func (s *Standbys) nothingBegun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.begun) == 0
}

// due returns the partitions that are to be followed from now on.
func (s *Standbys) due(noRoom bool, now time.Time) (due []feed.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, since := range s.chosen {
		if s.followers[id] == nil && s.owned[id] == 0 && !noRoom && now.Sub(since) >= s.cfg.Settle {
			due = append(due, id)
		}
	}
	return due
}

// note notes what is about to be begun, before anything of it is on the disk: what nobody knows of is never freed. It
// says whether that could be written.
func (s *Standbys) note(due []feed.Partition) bool {
	err := s.writeBegun(due)
	if err == nil {
		s.noFile = ""
		return true
	}
	if err.Error() != s.noFile {
		s.noFile = err.Error()
		s.cfg.Logger.Warn("no copies of other stores' partitions are begun, because it cannot be written which there are", "error", err)
	}
	return false
}

// wishesOf returns the partitions of which copies are to be kept, with who owns them.
func wishesOf(containers []store.ContainerInfo, group *leases.Group) (wishes []Wish) {
	var nodes map[string]string // by resource
	for _, info := range containers {
		if info.Spec.Standbys == 0 {
			continue
		}
		if nodes == nil {
			nodes = make(map[string]string, len(group.Leases))
			for i := range group.Leases {
				nodes[group.Leases[i].Resource] = leases.NodeOf(cmp.Or(group.Leases[i].Owner, group.Leases[i].Last))
			}
		}
		for _, p := range info.Partitions {
			id := feed.Partition{Container: info.ID, Number: p.Number}
			resource := owner.LeaseResource(id)
			wishes = append(wishes, Wish{Partition: id, Standbys: info.Spec.Standbys, Owner: nodes[resource], Next: group.Next[resource]})
		}
	}
	return wishes
}

// kept returns the partitions of which this node has begun a copy and that others are to follow who are not warm yet:
// until then this copy is the one that there is, and is followed, or is again when it was not for a while.
func (s *Standbys) kept(wished map[feed.Partition]Wish, group *leases.Group) (kept []feed.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.begun {
		if wish, ok := wished[id]; ok && wish.Owner != s.self && !wish.relieved(group) {
			kept = append(kept, id)
		}
	}
	return kept
}

// choose keeps since when partitions are chosen and there is room: where a disk is about full, copies do
// not come and go each second.
func (s *Standbys) choose(chosen []feed.Partition, room bool, now time.Time) {
	next := make(map[feed.Partition]time.Time, len(chosen))
	for _, id := range chosen {
		next[id] = now
		if since, ok := s.chosen[id]; ok && room {
			next[id] = since
		}
	}
	s.chosen = next
}

// endLocked ends the followers of partitions that are not chosen any more, and all where there is no room, and notes
// since when copies are to be freed. wished has all partitions of which there are to be copies. A copy that others are
// to keep stays until theirs are warm: else there would be none while they load.
func (s *Standbys) endLocked(wished map[feed.Partition]Wish, group *leases.Group, noRoom bool, now time.Time) {
	for id, b := range s.begun {
		f := s.followers[id]
		_, chosen := s.chosen[id]
		wish, ok := wished[id]
		switch {
		case s.owned[id] > 0:
			// From now on it is an owner's, which stays where it was when another owns the partition. That its container wants
			// standbys is not asked: it may have wanted some before.
			if f == nil {
				delete(s.begun, id)
			}
			b.unwanted = time.Time{}
		case ok && wish.Owner == s.self: // an owner comes at any moment, and the copy is not to be dropped before
			b.unwanted = time.Time{}
		case ok && (chosen || !wish.relieved(group)):
			b.unwanted = time.Time{}
		case b.unwanted.IsZero():
			b.unwanted = now
		}
		if f == nil {
			continue
		}
		wanted := b.unwanted.IsZero()
		switch {
		case f.frees && wanted: // it is followed again, from what is left
			f.cancel(errWanted)
		case f.frees:
		case !ok: // of a container that wants none, or is gone
			f.cancel(errUnwanted)
		case wish.Owner == s.self: // it yields
		case noRoom:
			f.cancel(errNoRoom)
		case !wanted && now.Sub(b.unwanted) >= s.cfg.Settle:
			f.cancel(errUnwanted)
		}
	}
}

func (s *Standbys) newFollower(owners *owner.Server, id feed.Partition) *follower {
	return &follower{s: s, id: id, owners: owners, log: s.cfg.Logger.With("partition", id.String()), done: make(chan struct{})}
}

func (s *Standbys) beginLocked(ctx context.Context, owners *owner.Server, id feed.Partition) {
	if s.begun[id] == nil {
		s.begun[id] = &begun{}
	}
	f := s.newFollower(owners, id)
	s.startLocked(ctx, f, f.run)
}

// startLocked lets a follower work, as the only one of its partition.
func (s *Standbys) startLocked(ctx context.Context, f *follower, work func(context.Context)) {
	ctx, f.cancel = context.WithCancelCause(ctx)
	id := f.id
	s.followers[id] = f
	s.wg.Go(func() {
		defer f.cancel(nil)
		work(ctx)
		s.mu.Lock()
		delete(s.followers, id)
		s.mu.Unlock()
		close(f.done)
	})
}

// remarksMax bounds the copies of which the group is told that they differ, so that the record by which this process counts as a
// member stays small. The log names all.
const remarksMax = 64

// tellLocked tells the group which copies are warm, and which are made. Those into which a partition of this store is about
// to be split are warm as well, by resource: else another store could take their leases, and would have to load them first.
func (s *Standbys) tellLocked(ctx context.Context, heirs map[string]uint64, now time.Time) {
	warm, cold := s.warmLocked(now)
	meters.follows(ctx, len(warm), len(cold))
	maps.Copy(warm, heirs)
	s.cfg.Leases.SetWarm(warm)
	var loading []string
	for _, f := range cold {
		if !f.tries.failing(now) {
			loading = append(loading, owner.LeaseResource(f.id))
		}
	}
	s.cfg.Leases.SetLoading(loading)
	remarks := map[string]string{}
	for id, f := range s.followers {
		if said := f.judged.said(); said != "" {
			remarks[owner.LeaseResource(id)] = said
		}
	}
	// By order: the same ones each time, else the record would be written each time.
	for _, resource := range slices.Sorted(maps.Keys(remarks))[min(remarksMax, len(remarks)):] {
		delete(remarks, resource)
	}
	s.cfg.Leases.SetRemarks(remarks)
	s.anything = len(s.followers) > 0 || len(heirs) > 0
}

// warmLocked returns the resources whose copies are warm, and how far they are, and the followers of those that are not.
func (s *Standbys) warmLocked(now time.Time) (warm map[string]uint64, cold []*follower) {
	warm = make(map[string]uint64, len(s.followers))
	for id, f := range s.followers {
		if f.frees {
			continue
		}
		if at := f.warm(now); at > 0 {
			warm[owner.LeaseResource(id)] = at
		} else {
			cold = append(cold, f)
		}
	}
	return warm, cold
}
