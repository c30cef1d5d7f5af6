package leases

import (
	"context"
	"time"
)

// watch delivers the changes of the group to the loop. It opens a new watch when one breaks, or
// when the loop asks for it.
func (l *loop) watch(ctx context.Context) {
	pause := retryPause{first: l.cfg.RenewInterval / 16, most: l.cfg.RenewInterval}
	patience := l.cfg.RenewInterval
	for ctx.Err() == nil {
		if l.watchOnce(ctx, patience) {
			pause.reset()
			patience = l.cfg.RenewInterval
		} else {
			patience = min(2*patience, l.cfg.TTL)
		}
		pause.wait(ctx)
	}
}

// watchOnce opens one watch and delivers from it until it ends. It reports whether the watch
// delivered anything. patience bounds the opening, because a server that falls silent loses
// the request; it grows with each failure, since the bucket may merely be slow.
func (l *loop) watchOnce(ctx context.Context, patience time.Duration) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case <-l.rewatch: // it was meant for the last watch
	default:
	}
	opened := time.AfterFunc(patience, cancel)
	updates, err := l.store.Watch(ctx, l.view.patterns()...)
	opened.Stop()
	if err != nil {
		l.log.Debug("lease watch not opened", "error", err)
		return false
	}
	l.send(watchStarted{})
	delivered := false
	for {
		select {
		case u, ok := <-updates:
			if !ok {
				return delivered
			}
			delivered = true
			l.send(u)
		case <-l.rewatch:
			l.log.Info("lease watch was silent or is behind; made anew")
			return true
		case <-ctx.Done():
			return delivered
		}
	}
}

// watchdog asks for a new watch if beats of this process are stored and the watch does not show
// them: a consumer that falls silent reports no error.
func (l *loop) watchdog(now time.Duration) {
	if _, at := l.beat.lastStored(); at <= l.beatSeen || now-l.beatSeen <= 2*l.cfg.RenewInterval {
		return
	}
	l.beatSeen = now
	l.watchAnew()
}

// watchAnew asks for a new watch.
func (l *loop) watchAnew() {
	select {
	case l.rewatch <- struct{}{}:
	default:
	}
}
