package standby

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/owner"
)

// The causes with which a follower ends, beside the end of the process.
var (
	errYielded  = errors.New("this process owns the partition")
	errUnwanted = errors.New("the partition is followed by another store, or by none")
	errWanted   = errors.New("the copy is wanted again")
	errNoRoom   = errors.New("the disk has no room for it")
)

// errStalled says that a copy is not brought to the end of its log, because that does not answer.
var errStalled = errors.New("the log has not given its next commit for a minute")

const (
	// retryMin and retryMax bound the pause before a follower begins anew that ended with an error.
	retryMin = time.Second
	retryMax = time.Minute
	// stallMax bounds the wait for a commit that is known to be in the log: who waits has a turn that others want.
	stallMax = time.Minute
)

// follower keeps the copy of one partition. One goroutine runs it.
type follower struct {
	s      *Standbys
	id     feed.Partition
	owners *owner.Server
	log    *slog.Logger
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when nobody writes or frees the copy any more

	frees bool // it does not follow, but frees the copy

	warm    atomic.Uint64 // LSN that it has applied; 0 until it has reached the log's end once
	endTurn func()        // for others to catch up
}

// run follows the partition until ctx ends, and begins anew after errors.
func (f *follower) run(ctx context.Context) {
	pause, said := retryMin, ""
	for ctx.Err() == nil {
		began := time.Now()
		err := f.catchUp(ctx)
		f.warm.Store(0)
		if ctx.Err() != nil {
			break
		}
		meters.failed.Add(ctx, 1)
		if time.Since(began) > retryMax {
			pause, said = retryMin, ""
		}
		if err.Error() != said {
			said = err.Error()
			level := slog.LevelWarn
			if errors.Is(err, owner.ErrNotFollowed) || errors.Is(err, feed.ErrNoLog) {
				level = slog.LevelDebug // its owner tells, or its container is being deleted
			}
			f.log.Log(ctx, level, "the copy of another store's partition is made ready anew", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, retryMax)
	}
}

// catchUp makes the copy ready and follows the log. Few do so at a time until they have reached its end.
func (f *follower) catchUp(ctx context.Context) error {
	select {
	case f.s.turns <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f.endTurn = sync.OnceFunc(func() { <-f.s.turns })
	defer f.endTurn()
	return f.owners.Follow(ctx, f.id, f.follow)
}

// follow applies what the log has behind what the copy holds, and then each commit that comes.
func (f *follower) follow(ctx context.Context, r *owner.Replayer, end feed.LSN) error {
	began, from := time.Now(), r.LSN()
	reader, err := f.s.cfg.Hub.Reader(ctx, f.id, feed.Position{LSN: from})
	if err != nil {
		return err
	}
	defer reader.Close()
	reader.Expect(r.Sum())
	for {
		if r.LSN() >= end {
			if f.warm.Swap(uint64(r.LSN())) == 0 {
				f.endTurn()
				f.log.Info("the copy of another store's partition is ready", "lsn", uint64(r.LSN()), "replayed", uint64(r.LSN()-from),
					"took", time.Since(began).Round(time.Millisecond))
			}
		}
		c, err := f.next(ctx, reader)
		if err != nil {
			return err
		}
		if err := r.Apply(c); err != nil {
			return err
		}
		meters.commits.Add(ctx, 1)
	}
}

// next returns the next commit. Behind a warm copy there may be none for ever; before, there is one.
func (f *follower) next(ctx context.Context, reader *feed.Reader) (*feed.Commit, error) {
	if f.warm.Load() > 0 {
		return reader.Next(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stallMax, errStalled)
	defer cancel()
	c, err := reader.Next(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		err = errStalled
	}
	return c, err
}
