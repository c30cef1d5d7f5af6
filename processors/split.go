package processors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
)

// ErrEnded says that a processor has nothing left to do, ever: its partition was split, and those of its children have
// begun.
var ErrEnded = errors.New("processors: the partition was split, and its children are read in its place")

// Parent says where a checkpoint comes from.
type Parent struct {
	// Number is that of the partition that was split, Last the LSN of its last commit.
	Number     uint32   `json:"number"`
	Generation uint32   `json:"generation"`
	Last       feed.LSN `json:"last"`
}

// Split says where the processors of a partition's children begin: before First.
type Split struct {
	First    feed.LSN `json:"first"`
	Children []uint32 `json:"children"`
	// Letters says that there may be dead letters of the partition. Those of targets that refused their copies are all
	// that tells of these: nothing is parked for them.
	Letters bool `json:"letters,omitempty"`
	// Late says that one was written by somebody who had the lease before, so that the reader's own counts do not tell of it.
	Late bool `json:"late,omitempty"`
	// Looking is the epoch of a holder that has found no dead letters, and looks once more for those of whoever had the lease
	// before; 0: nobody does. A release that does not know it takes the partition for ended.
	Looking uint64 `json:"looking,omitempty"`
}

// Ended says whether nothing is left to do for a partition that was split. What was given up may be tried again as long
// as it is not. A backfill that is not done is its children's, see child.
func (c *Checkpoint) Ended() bool { return c.isEnding() && c.Split.Looking == 0 }

// isEnding is Ended but for the last look for dead letters.
func (c *Checkpoint) isEnding() bool { return c.isIdle() && !c.Split.Letters }

// isLookedAt says whether the holder with an epoch is at its last look for dead letters.
func (c *Checkpoint) isLookedAt(epoch uint64) bool { return c.isEnding() && c.Split.Looking == epoch }

// isIdle is Ended but for dead letters.
func (c *Checkpoint) isIdle() bool {
	return c.Split != nil && len(c.Parked) == 0 && !slices.ContainsFunc(c.Jobs, func(j Job) bool { return j.Source != BackfillJob })
}

// isThrough says whether everything up to the end of the log is done, or given up.
func (c *Checkpoint) isThrough(last feed.LSN) bool {
	if !c.Position.Reached(last) || !c.Taken.IsZero() {
		return false
	}
	for i := range c.Jobs {
		// A backfill goes through the items, which are the children's now: they do it, see child.
		if j := &c.Jobs[i]; !j.Parked && j.Source != BackfillJob {
			return false
		}
	}
	return true
}

// child returns the checkpoint with which a child begins; first says whether it is the first one.
func (c *Checkpoint) child(r Resource, end *feed.SplitError, at feed.Offshoot, first bool) *Checkpoint {
	child := &Checkpoint{
		Position: feed.Position{LSN: end.Split.First - 1}, Time: c.Time, Log: at.Log, Saved: c.Saved,
		Parent: &Parent{Number: r.Partition.Number, Generation: r.Generation, Last: end.Last},
		// Without it the child would be set back to where the generation began.
		Rewinds: c.Rewinds,
	}
	// Half of a backfill is of no use to a child, whose items are others in another order.
	if c.Backfill != nil && c.Backfill.Done {
		child.Backfill = c.Backfill
	}
	if first { // the sum over all partitions stays what it is
		child.Counts = c.Counts
	}
	return child
}

// Finisher is a Processor that holds what it took for a while, to write much at once.
type Finisher interface {
	Processor
	// Finish says that nothing more comes: what is held need not wait for more.
	Finish()
}

// endReader is what there is to read behind the end of a log.
type endReader struct{ end *feed.SplitError }

func (r endReader) Next(context.Context) (*feed.Commit, error) { return nil, r.end }

// endOf returns what is behind c, if c is the last commit of a partition that was split; else nil.
func endOf(p feed.Partition, c *feed.Commit) (*feed.SplitError, error) {
	split, err := feed.SplitOf(c)
	if err != nil || split == nil {
		return nil, err
	}
	return &feed.SplitError{Partition: p, Last: c.LSN, Sum: c.Sum, Split: split}, nil
}

// endIfSplit does what is to be done when the log has been read to its end, and returns ErrEnded when all is. The loop
// calls it after each event; what cannot be done now is done after a later one.
func (r *run) endIfSplit(ctx context.Context) error {
	end := r.input.atEnd()
	if end == nil {
		return nil
	}
	if r.begin == nil || r.term.amend == nil {
		return fmt.Errorf("%w, and nobody can change the leases of its readers", end)
	}
	if f, holds := r.proc.(Finisher); holds && !r.asked {
		r.asked = true
		f.Finish()
	}
	if r.cp.Split == nil {
		if err := r.beginChildren(ctx, end); err != nil || r.cp.Split == nil {
			return err
		}
	}
	if cp := r.presentCheckpoint(); !cp.isIdle() || cp.Split.Letters && r.hasLetters(ctx) {
		return nil
	}
	// A save that is under way could overwrite what a late dead letter tells behind the look. From here to the end none begins.
	if err := r.awaitSave(); err != nil {
		return nil //nolint:nilerr // it is tried again: the lease ends the term when it is lost
	}
	looking := func(cp *Checkpoint) bool { return cp.isLookedAt(r.term.Epoch) }
	if r.noteLooking(); !r.savedAs(looking) {
		if err := r.saveNow(ctx); err != nil || !r.savedAs(looking) {
			return nil //nolint:nilerr // as above
		}
	}
	if r.hasLateLetters(ctx) || !r.endLooking(ctx) {
		return nil
	}
	r.term.Logger.InfoContext(ctx, "the partition was split, and its children are read in its place", slog.String("last", end.Last.String()))
	return ErrEnded
}

// hasLetters says whether there may be dead letters of the partition. Where one may have been written it asks the store, for
// which the loop may wait now: only a retry is left to do, and what it gives up is written before the loop goes on.
func (r *run) hasLetters(ctx context.Context) bool {
	if !r.mayHaveDeadLetters() {
		return false
	}
	if time.Since(r.looked) < retryPollInterval {
		return true
	}
	r.looked = time.Now()
	there, err := r.findLetters(ctx)
	return err != nil || there
}

// findLetters asks the store whether there are dead letters of the partition.
func (r *run) findLetters(ctx context.Context) (there bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, measureMax)
	defer cancel()
	if there, err = r.host.deadLetters.any(ctx, r.Resource); err != nil {
		r.term.Logger.DebugContext(ctx, "the dead letters cannot be read now", slog.Any("error", err))
	}
	return there, err
}

// noteLooking notes that there are no dead letters, and that this holder looks once more.
func (r *run) noteLooking() {
	r.mu.Lock()
	defer r.mu.Unlock()
	none := *r.cp.Split // checkpoints that were written have the other
	none.Letters, none.Late, none.Looking = false, false, r.term.Epoch
	r.cp.Split = &none
}

// A worker that has lost the lease may write a dead letter late, when the partition has been ended by its successor; nobody
// would look for it then. Either of the two finds out, whoever is later, as each writes before it reads:
//
//	successor   its checkpoint says that there are none    then looks for dead letters once more (hasLateLetters)
//	late one    its dead letter                            then looks whether the checkpoint says so (tellLate)
//
// What each of them does about it is the same: the checkpoint says again that there may be dead letters, and a reader looks
// for them until the last one was tried with success, or dropped. The partition has ended when the successor has looked, and is
// the holder still (endLooking). If it dies before, the next holder of the lease looks. A late one that dies between its dead
// letter and its look leaves it, if that is behind the successor's: it is listed, and is not tried again.

// late makes a checkpoint of a partition that has ended, or is about to, say that there may be dead letters.
func (c *Checkpoint) late() {
	late := *c.Split
	late.Letters, late.Late, late.Looking = true, true, 0
	c.Split = &late
}

// hasLateLetters says whether there are dead letters of a partition whose checkpoint says that there are none, or whether that
// cannot be told now.
func (r *run) hasLateLetters(ctx context.Context) bool {
	there, err := r.findLetters(ctx)
	if there {
		r.beLate()
	}
	return err != nil || there // after an error the loop comes here again, with the next heartbeat
}

// beLate makes the term look for dead letters again.
func (r *run) beLate() {
	r.mu.Lock()
	r.cp.late()
	r.mu.Unlock()
	r.markDirty()
}

// endLooking makes the durable checkpoint say that the partition has ended, and says whether it does: not if a late dead letter
// was told of since this holder said that there are none, or another holder looks. A save would overwrite what was told.
func (r *run) endLooking(ctx context.Context) bool {
	ended := false
	ending, cancel := context.WithTimeout(ctx, measureMax)
	defer cancel()
	err := r.term.amend(ending, r.Resource, func(checkpoint []byte) []byte {
		cp, err := DecodeCheckpoint(checkpoint)
		ended = err == nil && (cp.Ended() || cp.isLookedAt(r.term.Epoch))
		if !ended || cp.Ended() { // by an earlier try
			return nil
		}
		looked := *cp.Split
		looked.Looking = 0
		cp.Split = &looked
		return cp.Encode()
	})
	switch {
	case err != nil:
		r.term.Logger.DebugContext(ctx, "the end of the partition cannot be noted now", slog.Any("error", err))
		return false // the loop comes here again
	case !ended:
		r.beLate()
	}
	return ended
}

// tellLate makes the checkpoint of a partition that has ended, or is about to, say that there may be dead letters, by whoever has
// written one and may have lost the lease by then. It leaves one that says so: its holder will look.
func (t *Term) tellLate(ctx context.Context) error {
	if t.amend == nil {
		return nil
	}
	// ctx may have ended with the lease a moment ago, and the dead letter is there.
	telling, cancel := context.WithTimeout(context.WithoutCancel(ctx), measureMax)
	defer cancel()
	return t.amend(telling, t.Resource, func(checkpoint []byte) []byte {
		cp, err := DecodeCheckpoint(checkpoint)
		if err != nil || !cp.isEnding() {
			return nil // of a later release, whose holders look too
		}
		cp.late()
		return cp.Encode()
	})
}

// savedAs says whether the durable checkpoint is one of which ok is true.
func (r *run) savedAs(ok func(*Checkpoint) bool) bool { return ok(r.term.Saved()) }

// beginChildren lets the processors of the children begin, if all before them is done and durable.
func (r *run) beginChildren(ctx context.Context, end *feed.SplitError) error {
	through := func(cp *Checkpoint) bool { return cp.isThrough(end.Last) }
	if !through(r.presentCheckpoint()) {
		return nil
	}
	// What a child does must not be durable before what the parent did is: who finds the parent's checkpoint
	// further back would do it again, behind the child.
	if !r.savedAs(through) {
		if err := r.saveNow(ctx); err != nil || !r.savedAs(through) {
			return nil //nolint:nilerr // as above
		}
	}
	split := &Split{First: end.Split.First, Letters: true}
	for i, at := range end.Split.Children {
		child := r.Resource
		child.Partition.Number = at.Number
		data := r.term.Saved().child(r.Resource, end, at, i == 0).Encode()
		if err := r.begin(ctx, child, data); err != nil {
			r.term.Logger.WarnContext(ctx, "a child of the partition cannot be begun with now; trying again",
				slog.String("child", child.Partition.String()), slog.Any("error", err))
			return nil
		}
		split.Children = append(split.Children, at.Number)
	}
	r.mu.Lock()
	r.cp.Split = split
	r.mu.Unlock()
	r.markDirty()
	return nil
}
