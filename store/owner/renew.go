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

// enter returns the home, for whose use done is to be called; nil while another is
// made.
func (s *Server) enter() *home {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.home.full || s.home.db.Sound() != nil {
		return nil
	}
	s.home.users.Add(1)
	return s.home
}

// renewLoop makes a damaged engine anew, once for each damage. It looks for damage itself:
// a fault under a mapped file shows only when somebody asks, and maybe nobody does.
func (s *Server) renewLoop(ctx context.Context) {
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

// guard replaces an answer that may rest on damaged blocks. It keeps the answer to a
// write that happened, which was decided before the damage was found.
func (p *Partition) guard(r *store.Request, resp *store.Response, wrong error) *store.Response {
	switch {
	case resp == nil:
	case !r.Reads() && resp.Err == nil && (resp.Transact == nil || !resp.Transact.Failed):
		return resp
	case resp.Err != nil && (resp.Err.Status == store.StatusUnknown || resp.Err.Status == store.StatusGone):
		return resp
	}
	return &store.Response{Err: p.rebuilding(wrong)}
}

// standIn answers for a partition that is being rebuilt: that it is.
type standIn struct {
	s   *Server
	p   *Partition
	sub *subscription
}

func (s *Server) newStandIn(ctx context.Context, id feed.Partition, held *leases.Held, wrong error) *standIn {
	logID, _ := s.logOf(id)
	p := newPartition(id, s.cfg, noLog{id: logID}, nil, held, s.leases.Holder())
	p.state.Store(&applied{})
	p.closedFor.Store(p.rebuilding(wrong))
	o := &standIn{s: s, p: p}
	if s.cfg.Local != nil {
		s.cfg.Local.Add(id, p)
	}
	var err error
	if o.sub, err = s.subscribe(ctx, p); err != nil {
		p.log.Warn("a partition that is rebuilt cannot say so", "error", err)
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
// other.
func (s *Server) own(ctx context.Context, held *leases.Held) error {
	id, err := partitionOf(held.Resource())
	if err != nil {
		return err
	}
	var stand *standIn
	defer func() { stand.stop() }()
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
		if wrong != nil && ctx.Err() == nil {
			stand.stop()
			stand = s.newStandIn(ctx, id, held, wrong)
		}
		h.users.Done()
		if !opensAnew(err) && (wrong == nil || ctx.Err() != nil) {
			return err
		}
	}
}

// renewPoll is the time between two looks for an engine that is made anew.
const renewPoll = 50 * time.Millisecond

// serveOn serves a partition on one engine.
func (s *Server) serveOn(ctx context.Context, h *home, id feed.Partition, held *leases.Held, stand *standIn) (err error) {
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
	return s.serve(ctx, h.db, id, held, stand)
}
