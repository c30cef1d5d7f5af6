package leases

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/leases/right"
)

// rights is the read right on which a process's leases rest, made anew each time it is deposed; see "Who is deposed" in
// the package's comment. A nil rights has none.
type rights struct {
	store store
	cfg   right.Config

	mu   sync.Mutex
	seat *seat // nil: deposed, and not made anew yet
}

// seat is one incarnation's right, and what it sees of the others'.
type seat struct {
	right *right.Right
	sight *right.Sight
}

// openRights opens the first right of a process.
func openRights(ctx context.Context, m *Manager) (*rights, error) {
	cfg := m.cfg.Right
	cfg.Group, cfg.Node, cfg.NodeLocked = m.cfg.Group, m.cfg.Node, m.cfg.NodeLocked
	cfg.Host, cfg.Level, cfg.Now, cfg.Log = m.cfg.Host, m.cfg.Level, m.clock, m.log
	r := &rights{store: m.store, cfg: cfg}
	return r, r.open(ctx)
}

func (r *rights) open(ctx context.Context) error {
	own, err := right.Open(ctx, r.store, r.cfg)
	if err != nil {
		return err
	}
	r.set(&seat{right: own, sight: right.NewSight(own)})
	return nil
}

func (r *rights) set(s *seat) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seat = s
}

// now returns the right on which a lease that is taken now rests; nil if there is none.
func (r *rights) now() *seat {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seat
}

// incarnation is the right's; "" without one.
func (s *seat) incarnation() string {
	if s == nil {
		return ""
	}
	return s.right.Incarnation()
}

// Events of the loop.
type (
	deposed     struct{ err error } // this process: what it held is lost
	keysChanged struct{}            // of others, or a new key of its own
	deposeEnded struct{ node string }
)

// runRights renews the right, and makes it anew when it was deposed, until ctx ends.
func (l *loop) runRights(ctx context.Context) {
	pause := retryPause{first: l.cfg.RenewInterval / 16, most: l.cfg.RenewInterval}
	for ctx.Err() == nil {
		s := l.rights.now()
		if s == nil {
			// The leases that rested on the last one never hold again, whatever the loop has done meanwhile.
			if err := l.rights.open(ctx); err != nil {
				l.log.Warn("no new read right; nothing is taken", "error", err)
				pause.wait(ctx)
				continue
			}
			pause.reset()
			s = l.rights.now()
			l.beat.setRight(s.right.Incarnation())
			l.send(keysChanged{})
		}
		err := l.runSeat(ctx, s)
		if ctx.Err() != nil || errors.Is(err, right.ErrClosed) {
			return
		}
		l.rights.set(nil)
		l.send(deposed{err})
		if gone, ok := errors.AsType[*right.DeposedError](err); ok && NodeOf(gone.By) == l.cfg.Node && gone.By != s.right.Holder() {
			// Another process has this node, as where the directory was copied. The member's record decides which of
			// the two goes on, and each key that is written ends what the other has.
			l.beat.wake()
			sleep(ctx, l.cfg.RenewInterval)
		}
	}
}

// runSeat renews one right until it is deposed or ctx ends.
func (l *loop) runSeat(ctx context.Context, s *seat) error {
	looking, stop := context.WithCancel(ctx)
	var looks sync.WaitGroup
	defer looks.Wait()
	defer stop()
	looks.Go(func() { _ = s.sight.Run(looking) }) // returns nil
	looks.Go(func() {
		for {
			select {
			case <-s.sight.Changed():
				l.send(keysChanged{})
			case <-looking.Done():
				return
			}
		}
	})
	return s.right.Run(ctx)
}

// closeRights gives the right up in the end, when nothing rests on it any more.
func (l *loop) closeRights(ctx context.Context) {
	if s := l.rights.now(); s != nil {
		if err := s.right.Close(ctx); err != nil {
			l.log.Debug("key of the node not closed", "error", err)
		}
	}
}

// isUnseated reports whether this process was deposed, and has no new right yet.
func (l *loop) isUnseated() bool { return l.rights != nil && l.rights.now() == nil }

// deposed ends the trust in all leases that rested on the right.
func (l *loop) deposed(e deposed) {
	l.log.Error("this process was deposed: others have taken its leases, or are about to; it begins anew", "error", e.err)
	for _, task := range l.local {
		if task.held != nil && task.held.deposed() {
			task.held.endTrust(ErrLost)
		}
	}
	l.keysChanged()
}

// keysChanged looks at who is deposed. That a key was seen so is final: it is in the bucket, which delivers nothing else,
// and stays so for this incarnation. So what is sent from now on is sent behind the deposing.
func (l *loop) keysChanged() {
	l.dirty = true
	s := l.rights.now()
	if s == nil {
		return // as it was: nothing is taken without a right
	}
	for _, n := range s.sight.Nodes() {
		if n.DeposedBy == "" {
			continue
		}
		l.view.noteFallen(n.Node, n.Incarnation)
		if m := l.view.members[n.Node]; m != nil && m.rec != nil && m.rec.Right == n.Incarnation {
			// If it lives there may be no way to it from here: its absence counts when it has answered once more.
			delete(l.missed, m.rec.holder())
			delete(l.answered, m.rec.holder())
		}
	}
}

const (
	// absentSure is how often in a row a process has to be absent for its right to be taken away.
	absentSure = 2
	// stillSure is for how long its key must not have been renewed then, at least: its right has run out, so nobody who
	// reaches the bucket has its right taken away for a way between two servers that is cut.
	stillSure = right.Trust
	// silenceMin is the least that silence returns.
	silenceMin = 1500 * time.Millisecond

	hasLeft = "it has left"
)

// silence is for how long a key must not have been renewed where nothing else tells that its process is gone: it may be
// stopped, cut off, or slow. Who trusts its right for longer renews it less often. The time in which this process did not
// see is not counted.
func (s *seat) silence(n *right.Node) time.Duration {
	return max(silenceMin, 3*s.right.Trust(), 3*n.Trust)
}

// deposeDue deposes who is gone, so that others may take its leases. Whoever finds it does, so it may be several at once.
func (l *loop) deposeDue(runCtx context.Context, now time.Duration) {
	s := l.rights.now()
	if s == nil || l.draining || !l.view.ready || !l.canJudge(now) || l.quiet(now) {
		return
	}
	for _, n := range s.sight.Nodes() {
		if n.Node == l.cfg.Node || n.DeposedBy != "" || l.deposing[n.Node] {
			continue
		}
		if why := l.isGone(s, &n); why != "" && l.concerns(&n, now) {
			l.depose(runCtx, s, n.Node, n.Incarnation, why)
		}
	}
}

// isGone returns why a node seems to be gone; "" if it does not.
func (l *loop) isGone(s *seat, n *right.Node) string {
	m := l.view.members[n.Node]
	switch {
	case n.State == right.StateLeft:
		return hasLeft
	case n.Still >= s.silence(n):
		return "it has not renewed its key for " + n.Still.Round(time.Millisecond).String()
	case n.Still >= max(stillSure, n.Trust) && m != nil && m.rec != nil && m.rec.Right == n.Incarnation && l.missed[m.rec.holder()] >= absentSure:
		return "nobody has a connection under its name"
	}
	return ""
}

// concerns reports whether anything rests on a node's right, or is to.
func (l *loop) concerns(n *right.Node, now time.Duration) bool {
	m := l.view.members[n.Node]
	if m != nil && m.rec != nil && m.rec.Right == n.Incarnation && !m.rec.Left && !m.rec.Closed && now-m.since < m.rec.ttl() {
		return true
	}
	for _, seen := range l.view.leases {
		if seen.rec != nil && seen.rec.Right == n.Incarnation && NodeOf(seen.rec.Owner) == n.Node {
			return true
		}
	}
	return false
}

// depose deposes one incarnation of a node; the event keysChanged follows when it is seen.
func (l *loop) depose(runCtx context.Context, s *seat, node, incarnation, why string) {
	l.deposing[node] = true
	l.tasks.Go(func() {
		defer l.send(deposeEnded{node})
		ctx, cancel := context.WithTimeout(runCtx, l.cfg.RenewInterval)
		defer cancel()
		if err := s.sight.Depose(ctx, node, incarnation, l.Holder(), why); err != nil {
			l.log.Warn("a node that seems to be gone was not deposed", "node", node, "why", why, "error", err)
			return
		}
		level := slog.LevelWarn
		if why == hasLeft {
			level = slog.LevelInfo // it ended in order, and some of its leases before it could release them
		}
		l.log.Log(ctx, level, "a node was deposed; its leases are taken", "node", node, "incarnation", incarnation, "why", why)
	})
}
