package standby

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/digest"
	"github.com/millrace/millrace/store/owner"
)

// errDiffers ends the following of a copy that is to be made anew.
var errDiffers = errors.New("the copy does not hold what its owner holds, and is made anew")

// comparingMax bounds the digests that a process computes at a time for its copies: each keeps a view open, and takes its
// own share of a processor. One that is ordered beyond it is not compared.
const comparingMax = 2

// judged is what digests have told of the copy of one partition. It outlives the making of the copy anew.
//
//	equal ──▶ differs: distrusted, made anew ──▶ equal: the copy was wrong
//	                                        └──▶ differs again: the owner's is suspect; the copy stays
type judged struct {
	mu      sync.Mutex
	replica *digest.Replica // of the copy as it was made last
	at      feed.LSN        // as of which it differed first; 0 if it does not
	remark  string          // on what differs, for people; "" if nothing does
	anew    bool            // the copy was made anew since
}

// said returns what there is to be said of the copy; "" if nothing is wrong.
func (j *judged) said() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.remark
}

// begins says that the copy is followed from what it holds now, which is distrusted still or not.
func (j *judged) begins(distrusted bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.replica = &digest.Replica{}
	j.anew = j.at > 0 && !distrusted
}

// awaits says whether the copy differed as of an LSN and has been made anew, so that it is compared there again.
func (j *judged) awaits(at feed.LSN) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.anew && j.at == at
}

// comparison compares one copy, for as long as it is followed without an interruption.
type comparison struct {
	f    *follower
	r    *owner.Replayer
	ctx  context.Context //nolint:containedctx // it ends what computes, and is that of the following
	end  context.CancelCauseFunc
	busy atomic.Bool
	wg   sync.WaitGroup
}

// compare begins to compare a copy. Call stop before its following ends.
func (f *follower) compare(ctx context.Context, end context.CancelCauseFunc, r *owner.Replayer) *comparison {
	f.judged.begins(f.owners.Distrusts(f.id))
	return &comparison{f: f, r: r, ctx: ctx, end: end}
}

// stop ends what computes, and waits for it: its view would keep the copy from being freed.
func (c *comparison) stop() {
	c.end(nil)
	c.wg.Wait()
}

// applied takes what a commit says of digests. It was applied, and the one behind it was not.
func (c *comparison) applied(commit *feed.Commit) {
	ordered, told := digest.Of(commit)
	if told != nil {
		c.judge(c.f.judged.replica.Told(*told))
	}
	// A copy that is being brought to the log's end meets the orders of hours. Its first is the next one.
	if !ordered || c.f.reached.Load() == 0 && !c.f.judged.awaits(commit.LSN) || !c.busy.CompareAndSwap(false, true) {
		return
	}
	select {
	case c.f.s.comparing <- struct{}{}:
	default:
		c.busy.Store(false)
		return
	}
	replica, view := c.f.judged.replica, c.r.View()
	replica.Begin(commit.LSN)
	c.wg.Go(func() {
		defer func() {
			<-c.f.s.comparing
			c.busy.Store(false)
		}()
		if view == nil {
			return
		}
		d, err := c.r.Digest(c.ctx, view)
		switch {
		case err == nil:
			c.judge(replica.Own(d))
		case c.ctx.Err() == nil:
			c.f.log.Debug("the copy's digest is not compared now", "error", err)
		}
	})
}

// judge acts on a verdict; nil is none.
func (c *comparison) judge(v *digest.Verdict) {
	if v == nil {
		return
	}
	f, j := c.f, &c.f.judged
	j.mu.Lock()
	defer j.mu.Unlock()
	if v.Differ == "" {
		meters.compared.Add(c.ctx, 1, isEqual)
		f.log.Debug("the copy of another store's partition has the digest of what its owner holds", "lsn", uint64(v.LSN))
		if j.at > 0 {
			f.log.Info("the copy of another store's partition, which differed, holds what its owner holds", "lsn", uint64(v.LSN))
		}
		j.at, j.remark, j.anew = 0, "", false
		return
	}
	meters.compared.Add(c.ctx, 1, isDifferent)
	if j.anew {
		j.remark = fmt.Sprintf("differs from the owner's as of LSN %d in %s, also after it was made anew from the log: the owner's copy is suspect", v.LSN, v.Differ)
		f.log.Error("the copy of another store's partition differs from what its owner holds, also after it was made anew from a snapshot and the log: "+
			"the owner's copy is suspect. Have this store take the partition over (millrace drain NODE, of the owner), after which the other copy is compared; "+
			"look with millrace doctor and millrace verify, or restore a backup", "lsn", uint64(v.LSN), "differ", v.Differ)
		return
	}
	j.at, j.remark = v.LSN, fmt.Sprintf("differed from the owner's as of LSN %d in %s, and is made anew", v.LSN, v.Differ)
	f.log.Error("the copy of another store's partition differs from what its owner holds, and is made anew", "lsn", uint64(v.LSN), "differ", v.Differ)
	f.owners.Distrust(f.id, fmt.Sprintf("its digest as of LSN %d differs from the owner's: %s", v.LSN, v.Differ))
	c.end(errDiffers)
}
