package leases

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// A bucket goes back when its stream is restored from an earlier state, or loses its last
// acknowledged writes with the machines that had them in memory. What processes know is then of
// writes that are not there any more:
//
//	revision   1 ... 985 | 986 ... 998          998: P renews its lease
//	           1 ... 985 | 986' 987' ...        the bucket goes back to 985
//
// P's renewals are refused, so it loses its lease; a watch goes on behind the last revision that it
// delivered and stays silent below it. So a process that finds the bucket gone back makes its watch
// anew, and forgets what it knew but the epochs. It finds that
//
//   - when its own beat is stored with a lower revision than the last one;
//   - when a new watch shows a lower revision of a record than is known, and the leader confirms it;
//   - when a lease cannot be taken for longer than the watch may lag. That is no proof, and is
//     reason for a new watch only.

// refusal is a taking that was refused though the view said that the lease can be taken.
type refusal struct {
	revision uint64        // that the view had
	since    time.Duration // when it was refused first
}

// checkBeatRevision notices that this process's beat was stored with a lower revision than an
// earlier one. Revisions of one stream grow, so the bucket went back between the two.
func (l *loop) checkBeatRevision(now time.Duration) {
	revision, _ := l.beat.lastStored()
	if revision < l.beatRevision {
		l.wentBack(now)
		l.watchAnew()
	}
	l.beatRevision = revision
}

// noteRefusal asks for a new watch if the view has shown for a while a revision from which a lease
// cannot be taken. A watch that merely lags shows another one soon.
func (l *loop) noteRefusal(e takeEnded, now time.Duration) {
	if _, taken := errors.AsType[*takenError](e.err); !taken {
		return
	}
	known, again := l.refused[e.resource]
	if !again || known.revision != e.revision {
		l.refused[e.resource] = refusal{revision: e.revision, since: now}
		return
	}
	if now-known.since >= l.cfg.RenewInterval {
		delete(l.refused, e.resource)
		l.watchAnew()
	}
}

// askIfBack asks the leader whether the bucket went back, if a new watch shows less than is known.
// A watch at a replica that lags does so too. Until the answer comes nothing is taken; after a
// lifetime without one it is not needed any more.
func (l *loop) askIfBack(runCtx context.Context) {
	key, revision := l.view.missing(l.snapshot)
	if key == "" {
		return
	}
	lifetime := l.view.lifetime(l.cfg.TTL)
	l.asking, l.askingUntil = l.asking+1, l.clock()+lifetime
	l.tasks.Go(func() {
		askCtx, cancel := context.WithTimeout(runCtx, lifetime)
		defer cancel()
		l.send(backAsked{back: l.leaderHasLess(askCtx, key, revision)})
	})
}

// leaderHasLess reports whether the leader has a lower revision of a key than the given one, or none: it
// has to say so lowerMax times, because it may have been succeeded without knowing it yet. It asks
// until ctx ends.
func (l *loop) leaderHasLess(ctx context.Context, key string, revision uint64) bool {
	pause := retryPause{first: l.cfg.RenewInterval / 16, most: l.cfg.RenewInterval}
	for lower := 0; ctx.Err() == nil; pause.wait(ctx) {
		tryCtx, cancel := context.WithTimeout(ctx, l.cfg.RenewInterval)
		e, err := l.store.Get(tryCtx, key)
		cancel()
		switch {
		case err == nil && e.Revision >= revision:
			return false
		case err == nil, errors.Is(err, bucket.ErrNotFound):
			if lower++; lower >= lowerMax {
				return true
			}
		default:
			l.log.Debug("leader did not say whether the lease bucket went back", "error", err)
		}
	}
	return false
}

// quiet reports whether nothing is taken, because a lease that seems to be free may be trusted by its
// holder.
func (l *loop) quiet(now time.Duration) bool {
	return now < l.quietUntil || l.asking > 0 && now < l.askingUntil
}

// wentBack keeps this process from taking leases for a lifetime. A lease that the bucket shows free
// now may have been taken and renewed in the part that was lost, and its holder trusts it for
// less than a lifetime after that renewal.
func (l *loop) wentBack(now time.Duration) {
	if now >= l.quietUntil {
		l.log.Warn("lease bucket went back to an earlier state; nothing is taken for a lifetime")
	}
	l.quietUntil = now + l.view.lifetime(l.cfg.TTL)
	// Others notice at other moments. What they do not take until then is no sign that they are
	// slow.
	l.reachableSince = max(l.reachableSince, l.quietUntil)
}
