package standby

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/digest"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/pace"
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
	// askMax bounds the wait for a log's end, during which nothing is applied.
	askMax = time.Second
	// loadRest is how long a turn rests in which a large snapshot was loaded. The engine takes in what was loaded while
	// nobody reads or writes it, the partitions that this store owns included, for 0.1 to 0.2 s and once for each load.
	// So that happens once a second at most, however many copies there are to load.
	loadRest = turnsMax * time.Second
	// atOnceMax and atOnceBytesMax bound the commits that are taken from the reader before they are applied, and what they
	// take in memory but for the last of them: a commit may have megabytes.
	atOnceMax      = 64
	atOnceBytesMax = 1 << 20
	// gatherPause is how long a follower that has all pauses before it asks for more: what comes meanwhile is sent in one go
	// (feed.Reader.Rests) and written to the engine at once, in less than half the time that its commits would take one by
	// one. A read there finds what is that much older, and who takes over has that much to replay.
	gatherPause = 10 * time.Millisecond
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

	reached atomic.Uint64 // LSN that it has applied; 0 until it has reached the log's end once
	lag     lag
	tries   tries
	endTurn func() // for others to catch up
	rests   bool   // the engine stood still for its load, so its turn ends later
	judged  judged
}

// run follows the partition until ctx ends, and begins anew after errors.
func (f *follower) run(ctx context.Context) {
	pause, said := retryMin, ""
	for ctx.Err() == nil {
		began := time.Now()
		err := f.catchUp(ctx)
		f.reached.Store(0)
		f.tries.end()
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

// warm returns the LSN that it has applied, 0 if it has not reached the log's end or is far behind it.
func (f *follower) warm(now time.Time) uint64 {
	if f.lag.behind(now) > behindMax {
		return 0
	}
	return f.reached.Load()
}

// catchUp makes the copy ready and follows the log. Few do so at a time until they have reached its end.
func (f *follower) catchUp(ctx context.Context) error {
	if err := f.s.turns.take(ctx); err != nil {
		return err
	}
	f.tries.begin(time.Now())
	f.rests = false
	f.endTurn = sync.OnceFunc(func() { f.s.turns.give(f.rests) })
	defer f.endTurn()
	return f.owners.Follow(ctx, f.id, f.follow)
}

// tries are those of one follower to bring its copy to the log's end, and to keep it there.
type tries struct {
	mu     sync.Mutex
	began  time.Time // of the present one; zero between two
	failed bool      // the last one did
}

// tryLasts is how long a try goes on that gets beyond what is refused at its beginning, as for want of room.
const tryLasts = 10 * time.Second

func (t *tries) begin(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began = now
}

func (t *tries) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began, t.failed = time.Time{}, true
}

// failing says that the last try has failed, and the present one has not come further.
func (t *tries) failing(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed && (t.began.IsZero() || now.Sub(t.began) < tryLasts)
}

// turns has a token for each follower that may catch up, and each has the time from which on it may be used.
type turns chan time.Time

func newTurns() turns {
	t := make(turns, turnsMax)
	for range turnsMax {
		t <- time.Time{}
	}
	return t
}

// take waits for a token.
func (t turns) take(ctx context.Context) error {
	select {
	case from := <-t:
		err := pace.Pause(ctx, time.Until(from))
		if err != nil {
			t <- from
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// give gives a token back, which rests where the engine stood still.
func (t turns) give(rests bool) {
	from := time.Now()
	if rests {
		from = from.Add(loadRest)
	}
	t <- from
}

// follow applies what the log has behind what the copy holds, and then each commit that comes.
func (f *follower) follow(ctx context.Context, r *owner.Replayer, end feed.LSN) error {
	f.rests = r.Stopped()
	began, from := time.Now(), r.LSN()
	f.lag.begin(end, began)
	reader, err := f.s.cfg.Hub.Reader(ctx, f.id, feed.Position{LSN: from})
	if err != nil {
		return err
	}
	defer reader.Close()
	reader.Expect(r.Sum())
	ctx, cancel := context.WithCancelCause(ctx)
	comparison := f.compare(ctx, cancel, r)
	defer comparison.stop()
	var commits []*feed.Commit
	for {
		if r.LSN() >= end {
			if f.reached.Swap(uint64(r.LSN())) == 0 {
				f.endTurn()
				f.log.Info("the copy of another store's partition is ready", "lsn", uint64(r.LSN()), "replayed", uint64(r.LSN()-from),
					"took", time.Since(began).Round(time.Millisecond))
				stop, err := r.Serve(ctx, func() bool { return f.warm(time.Now()) > 0 })
				if err != nil {
					return err
				}
				defer stop() // it comes here once
				// Not before: what the copy lacks is sent ahead while it is brought to the end.
				reader.Rests()
			}
		}
		f.askEnd(ctx, r)
		f.lag.wait(r.LSN(), time.Now())
		c, err := f.next(ctx, reader)
		if errors.Is(context.Cause(ctx), errDiffers) {
			return errDiffers // also where there is a commit: nothing is to be read from this copy
		}
		if err != nil {
			return err
		}
		f.lag.came(time.Now())
		var more bool
		commits, more = gather(append(commits[:0], c), func() *feed.Commit { return reader.Arrived(ctx) })
		if err := r.Apply(commits...); err != nil {
			return err
		}
		meters.commits.Add(ctx, int64(len(commits)))
		comparison.applied(commits[len(commits)-1])
		if f.reached.Load() > 0 && !more {
			if err := pace.Pause(ctx, gatherPause); err != nil {
				return err
			}
		}
	}
}

// gather adds to a commit those behind it that have come, as many as are applied at once. One that says anything of digests
// is the last, because a copy is compared as of that commit and none behind it. more says that others may have come.
func gather(commits []*feed.Commit, arrived func() *feed.Commit) (_ []*feed.Commit, more bool) {
	for bytes := commits[0].Memory(); len(commits) < atOnceMax && bytes < atOnceBytesMax; {
		if ordered, told := digest.Of(commits[len(commits)-1]); ordered || told != nil {
			return commits, true
		}
		c := arrived()
		if c == nil {
			return commits, false
		}
		commits, bytes = append(commits, c), bytes+c.Memory()
	}
	return commits, true
}

// askEnd asks for the log's end where it is to be asked. Where it does not answer the copy counts as behind in the end.
func (f *follower) askEnd(ctx context.Context, r *owner.Replayer) {
	now := time.Now()
	if !f.lag.due(now) {
		return
	}
	f.lag.ask(now)
	ctx, cancel := context.WithTimeout(ctx, askMax)
	defer cancel()
	if end, err := r.End(ctx); err == nil {
		f.lag.ends(end)
	}
}

// next returns the next commit. Behind a copy that has reached the log's end there may be none for ever; before, there
// is one.
func (f *follower) next(ctx context.Context, reader *feed.Reader) (*feed.Commit, error) {
	if f.reached.Load() > 0 {
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
