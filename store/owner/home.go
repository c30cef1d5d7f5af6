package owner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
)

const (
	// renewRetry is the time between two tries to open an engine in place of one that
	// was damaged.
	renewRetry = 5 * time.Second
	// rebuildingRetry is when to ask again a partition that is being rebuilt.
	rebuildingRetry = time.Second
)

// errRenewed ends the terms on an engine that is damaged.
var errRenewed = errors.New("the engine is damaged and is made anew")

// home is one life of the engine. When it is found to be damaged, all terms on it
// end, another takes its place, and they begin anew there.
type home struct {
	db     *engine.DB
	users  sync.WaitGroup  // Add under Server.mu, and not after full
	full   bool            // guarded by Server.mu
	over   context.Context //nolint:containedctx // a home is a scope
	cancel context.CancelCauseFunc
}

func newHome(db *engine.DB) *home {
	h := &home{db: db}
	h.over, h.cancel = context.WithCancelCause(context.Background())
	return h
}

// Engine returns the engine as it is now, for whoever closes it after Run.
func (s *Server) Engine() *engine.DB {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.home.db
}

// enter returns the home and counts a user of it, who calls users.Done in the end; nil while
// another home is made.
func (s *Server) enter() *home {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.home.full || s.home.db.Sound() != nil {
		return nil
	}
	s.home.users.Add(1)
	return s.home
}

// remakeLoop makes a damaged engine anew, once for each damage. It looks for damage itself:
// a fault under a mapped file shows only when somebody asks, and maybe nobody does.
func (s *Server) remakeLoop(ctx context.Context) {
	t := time.NewTicker(diskInterval)
	defer t.Stop()
	for {
		s.mu.Lock()
		h := s.home
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-h.db.Damaged():
			s.renew(ctx, h)
		case <-t.C:
			_ = h.db.Sound() // closes Damaged if it is not
		}
	}
}

// renew ends all terms on a damaged engine and opens another.
func (s *Server) renew(ctx context.Context, h *home) {
	wrong := h.db.Sound()
	s.cfg.Logger.Error("the engine is damaged; its partitions answer 503 until it is made anew from their logs", slog.Any("error", wrong))
	// Four steps, in this order:
	//
	//	full        nobody enters this home any more, so the users can only become fewer
	//	closedFor   requests are told what is wrong; without it those that come while the
	//	            terms end would be told that the partition is handed over
	//	cancel      the terms end
	//	Wait        they have ended: Renew closes the engine, and nobody may be reading it
	s.mu.Lock()
	h.full = true
	s.mu.Unlock()
	for _, p := range s.partitions() {
		p.closedFor.CompareAndSwap(nil, p.rebuilding(wrong))
	}
	h.cancel(errRenewed)
	h.users.Wait()
	var waits bool
	for {
		db, aside, err := h.db.Renew(s.cfg.DiskReserve)
		if err == nil {
			s.cfg.Logger.Warn("the engine was opened anew; its partitions are rebuilt from their logs", slog.String("aside", aside))
			s.mu.Lock()
			s.home = newHome(db)
			s.mu.Unlock()
			return
		}
		retry := renewRetry
		if _, full := errors.AsType[*engine.NoRoomError](err); full {
			if retry = diskInterval; !waits {
				s.cfg.Logger.Error("the engine is opened anew when the disk has room", slog.Any("error", err))
			}
			waits = true
		} else {
			s.cfg.Logger.Error("the engine cannot be made anew; trying again", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
	}
}

// rebuilding is the answer of a partition whose engine is damaged. What was asked for
// has not happened.
func (p *Partition) rebuilding(wrong error) *store.Error {
	if damage, ok := errors.AsType[*engine.DamagedError](wrong); ok && damage.Full {
		return &store.Error{
			Status: store.StatusInsufficientDisk, RetryAfter: rebuildingRetry,
			Message: fmt.Sprintf("partition %s answers nothing until the disk has room, because %v; free some space", p.id, wrong),
		}
	}
	return &store.Error{
		Status: store.StatusUnavailable, RetryAfter: rebuildingRetry,
		Message: fmt.Sprintf("partition %s answers nothing for the moment: its state is rebuilt from its log, because %v", p.id, wrong),
	}
}

// guardAnswer replaces an answer that may rest on damaged blocks. It keeps the answer to a
// write that happened, which was decided before the damage was found.
func (p *Partition) guardAnswer(r *store.Request, resp *store.Response, wrong error) *store.Response {
	// A write that is answered was in the log before, and the log is not damaged. An outcome
	// that is unknown must stay so: the answer of rebuilding says that nothing has happened, and
	// the client would write again. That another process owns the partition is true whatever
	// the blocks hold.
	switch {
	case resp == nil:
	case !r.Reads() && resp.Err == nil && (resp.Transact == nil || !resp.Transact.Failed):
		return resp
	case resp.Err != nil && (resp.Err.Status == store.StatusUnknown || resp.Err.Status == store.StatusGone):
		return resp
	}
	return &store.Response{Err: p.rebuilding(wrong)}
}

// lacksRoom is the answer of a partition whose snapshot cannot be loaded for now.
func (p *Partition) lacksRoom(lacks *engine.NoRoomError) *store.Error {
	return &store.Error{
		Status: store.StatusInsufficientDisk, RetryAfter: rebuildingRetry,
		Message: fmt.Sprintf("partition %s answers nothing until the disk has room for its snapshot: %v. %d MiB of that stay free (store.diskReserve). It is tried again every %s",
			p.id, lacks, p.cfg.loadReserve()>>20, p.cfg.CheckInterval),
	}
}

// standIn answers the requests for a partition that is being rebuilt, or that waits for room: it
// refuses them with that reason.
type standIn struct {
	s   *Server
	p   *Partition
	sub *subscription
}

// newStandIn begins to refuse the requests for a partition with what why returns.
func (s *Server) newStandIn(ctx context.Context, id feed.Partition, held *leases.Held, why func(*Partition) *store.Error) *standIn {
	logID, _ := s.logOf(id)
	p := newPartition(id, s.cfg, noLog{id: logID}, nil, held, s.leases.Holder())
	p.state.Store(&applied{})
	p.closedFor.Store(why(p))
	o := &standIn{s: s, p: p}
	if s.cfg.Local != nil {
		s.cfg.Local.Add(id, p)
	}
	var err error
	if o.sub, err = s.subscribe(ctx, p); err != nil {
		p.log.Warn("a partition that is closed cannot say why", "error", err)
	}
	return o
}

// stop ends it before the partition itself answers. It may be called twice, and on
// nil.
func (o *standIn) stop() {
	if o == nil || o.p == nil {
		return
	}
	if o.s.cfg.Local != nil {
		o.s.cfg.Local.Remove(o.p.id, o.p)
	}
	if o.sub != nil {
		o.sub.stop()
	}
	o.p = nil
}

// own serves one partition for as long as its lease is held, on one engine after the
// other. The error is a *engine.NoRoomError where its snapshot finds no room here and another
// process may have some.
func (s *Server) own(ctx context.Context, held *leases.Held) error {
	id, err := partitionOf(held.Resource())
	if err != nil {
		return err
	}
	if s.cfg.Standbys != nil {
		back, err := s.cfg.Standbys.Yield(ctx, id)
		if err != nil {
			return nil // the lease has ended
		}
		defer back()
	}
	if s.awaitHeir(ctx, id) != nil {
		return nil // the lease has ended
	}
	var stand *standIn
	defer func() { stand.stop() }()
	tries := 0 // that found no room
	for {
		h := s.enter()
		if h == nil {
			held.Progress()
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(renewPoll):
			}
			continue
		}
		err := s.serveOn(ctx, h, id, held, stand)
		wrong := h.db.Sound()
		lacks, full := errors.AsType[*engine.NoRoomError](err)
		switch {
		case ctx.Err() != nil:
		case (wrong != nil || full) && held.Settle(ctx, false) != nil: // as in serveDamaged
		case wrong != nil:
			stand.stop()
			stand = s.newStandIn(ctx, id, held, func(p *Partition) *store.Error { return p.rebuilding(wrong) })
		case full:
			stand.stop()
			stand = s.newStandIn(ctx, id, held, func(p *Partition) *store.Error { return p.lacksRoom(lacks) })
		}
		h.users.Done()
		switch {
		case opensAnew(err) || wrong != nil && ctx.Err() == nil:
		case full && ctx.Err() == nil:
			if tries++; tries == 1 {
				stand.p.log.Error("a snapshot is loaded when the disk has room", "error", lacks)
			}
			if s.givesUp(id, tries) {
				return fmt.Errorf("partition %s waits for room, and another store may have it: %w", id, lacks)
			}
			s.awaitCheck(ctx, held)
		default:
			s.endLack(id)
			return err
		}
	}
}

const (
	// roomTries is how often a snapshot finds no room until another process gets the lease.
	roomTries = 2
	// roomTriesMax bounds how often it does once the lease has come back.
	roomTriesMax = 128
)

// givesUp says whether a partition that found no room for so many tries is left to another process.
// A lease that comes back found no room elsewhere either, or there is nobody else. While nobody
// has it nobody tells its clients why they wait, so it is kept for four times as long each time:
//
//	two stores without room    one:  2 tries             8              32
//	                           other:         2 tries        8 ...
func (s *Server) givesUp(id feed.Partition, tries int) bool {
	if s.cfg.Alone {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	most := roomTries
	for range s.lacking[id] {
		most = min(4*most, roomTriesMax)
	}
	if tries < most {
		return false
	}
	s.lacking[id] = min(s.lacking[id]+1, roomTriesMax)
	return true
}

// endLack forgets that a partition found no room.
func (s *Server) endLack(id feed.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lacking, id)
}

// awaitCheck waits until a partition is to be looked at again that could not be opened.
func (s *Server) awaitCheck(ctx context.Context, held *leases.Held) {
	held.Progress()
	select {
	case <-ctx.Done():
	case <-time.After(s.cfg.CheckInterval):
	}
}

// renewPoll is the time between two looks for an engine that is made anew.
const renewPoll = 50 * time.Millisecond

// serveOn serves a partition on one engine.
func (s *Server) serveOn(ctx context.Context, h *home, id feed.Partition, held *leases.Held, stand *standIn) error {
	return s.within(ctx, h, func(ctx context.Context) error { return s.serve(ctx, h.db, id, held, stand) })
}

// within does work on one engine, and tells that engine what went wrong. The context of work ends with the engine.
func (s *Server) within(ctx context.Context, h *home, work func(context.Context) error) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unhook := context.AfterFunc(h.over, func() { cancel(context.Cause(h.over)) }) //nolint:contextcheck // two scopes meet here
	defer unhook()
	defer func() {
		if wrong := h.db.Caught(recover()); wrong != nil {
			err = wrong
		}
		h.db.Fail(err)
	}()
	return work(ctx)
}
