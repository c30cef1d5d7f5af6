package leases

import (
	"context"
	"time"
)

// watch delivers what happens in the group to the loop, and makes the watch anew
// when it breaks or the loop says so.
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

// watchOnce reports whether the watch delivered anything. Opening it may take as
// long as patience says: the request for it is lost where a server falls silent.
func (l *loop) watchOnce(ctx context.Context, patience time.Duration) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case <-l.kick: // it was about the last one
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
		case <-l.kick:
			l.log.Info("lease watch was silent; made anew")
			return true
		case <-ctx.Done():
			return delivered
		}
	}
}

// watchdog has the watch made anew when beats of this process are stored and the
// watch does not show them.
func (l *loop) watchdog(now time.Duration) {
	if _, at := l.beat.lastLanded(); at <= l.beatSeen || now-l.beatSeen <= 2*l.cfg.RenewInterval {
		return
	}
	l.beatSeen = now
	select {
	case l.kick <- struct{}{}:
	default:
	}
}
