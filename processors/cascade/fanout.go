package cascade

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// parkedMax bounds the fan-outs of one source partition that were given up.
const parkedMax = 200

// FanOut is the processor that brings changes of one source partition to their
// copies. Each source item has at most one fan-out open; a newer change of the
// item is taken up by the one that is.
type FanOut struct {
	// Set by Cascade.FanOut and Open, then only read.
	c         *Cascade
	partition feed.Partition
	term      *processors.Term

	// A fan-out runs while it holds a token of slots. queue has room for all tokens and
	// all jobs of the checkpoint, so sending to it under mu never waits.
	slots chan struct{}
	queue chan *fanOut // to be run

	// Guarded by mu. Process opens fan-outs, goroutines of Run carry them out, Retry
	// begins parked ones again, and State may be asked at any time.
	mu             sync.Mutex
	open           map[string]*fanOut // by source; also those that are parked
	parked         int
	counts         processors.Counts
	progressToldAt time.Time                    // when a checkpoint was last asked for because of progress
	forgetAskedAt  map[feed.Partition]time.Time // when each was last asked to forget finished fan-outs
	sharedTo       map[feed.Partition]feed.LSN  // see pagesOfOthers
}

// fanOut is one open fan-out. FanOut.mu guards it, but for source and ref, which do not
// change. The goroutine that runs it reads job.Trace without mu, and the rest of job
// once it is closed: Trace changes only while nobody runs it.
type fanOut struct {
	source string // as store.ItemRef prints
	ref    store.ItemRef
	want   version // the newest one known
	unread bool    // want came from a checkpoint, without its values
	job    processors.Job
	slot   bool // it holds a token
	// doubted are the partitions of the target in which items may have refused their copies
	// without this term having been told; see FanOut.examine.
	doubted map[feed.Partition]bool
	// begun are the versions of which the first page of all was this term's, see FanOut.began.
	begun map[feed.Partition]feed.Position
}

func newFanOut(ref store.ItemRef, job processors.Job) *fanOut {
	return &fanOut{source: job.Source, ref: ref, job: job, doubted: map[feed.Partition]bool{}, begun: map[feed.Partition]feed.Position{}}
}

// FanOut returns a processor of the cascade's source partition, for one term.
func (c *Cascade) FanOut(partition feed.Partition) processors.Processor {
	return &FanOut{c: c, partition: partition, open: map[string]*fanOut{}, forgetAskedAt: map[feed.Partition]time.Time{}, sharedTo: map[feed.Partition]feed.LSN{}}
}

// Open goes on with the fan-outs that the checkpoint holds.
func (f *FanOut) Open(_ context.Context, t *processors.Term, state processors.State) error {
	f.term, f.counts = t, state.Counts
	f.slots = make(chan struct{}, f.c.limits.FanOutsMax)
	for range f.c.limits.FanOutsMax {
		f.slots <- struct{}{}
	}
	f.queue = make(chan *fanOut, f.c.limits.FanOutsMax+len(state.Jobs))
	for _, job := range state.Jobs {
		ref, err := store.ParseItemRef(job.Source)
		if err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		fo := newFanOut(ref, job)
		fo.unread = true
		fo.want = version{position: job.Position, gone: job.Gone, digest: job.Digest}
		f.open[fo.source] = fo
		if job.Parked {
			f.parked++
			continue
		}
		// There may be more jobs than slots, after FanOutsMax was lowered. All of them run
		// at once all the same: the checkpoint has passed their changes, so the feed does
		// not bring them again, and newcomers wait for tokens anyway.
		select {
		case <-f.slots:
			fo.slot = true
		default:
		}
		f.queue <- fo
	}
	return nil
}

// Process takes the changes that matter into open fan-outs, the last one of each
// source item. It waits while as many are open as may be.
func (f *FanOut) Process(ctx context.Context, b *processors.Batch) error {
	// The last change of an item says all: a rename to B and then to C needs one fan-out,
	// of C, at C's position. Those before it in the batch are left out.
	last := map[store.ItemRef]int{}
	type pendingChange struct {
		change   *feed.Change
		at       feed.Position
		vanished bool
		part     *processors.Part
	}
	var all []pendingChange
	for i := range b.Parts {
		p := &b.Parts[i]
		for j := range p.Changes {
			ch := &p.Changes[j]
			relevance, err := f.c.relevance(ch)
			if err != nil {
				return processors.Reject(err)
			}
			if relevance == irrelevant {
				continue
			}
			n := pendingChange{change: ch, at: p.At(j), vanished: relevance == sourceDeleted, part: p}
			ref := store.ItemRef{Key: ch.Key, ID: ch.ID}
			if k, ok := last[ref]; ok {
				all[k] = n
				continue
			}
			last[ref] = len(all)
			all = append(all, n)
		}
	}
	for i := range all {
		n := &all[i]
		v := version{position: n.at, gone: true, time: n.part.Commit.Time, digest: f.c.digest(nil)}
		if !n.vanished {
			v = f.c.version(n.at, n.change.After)
		}
		if err := f.enqueue(ctx, store.ItemRef{Key: n.change.Key, ID: n.change.ID}, v, opening{trace: n.part.Transaction.TraceParent, began: n.part.Commit.Time}); err != nil {
			return err
		}
	}
	return nil
}

// Supersedes says whether the change began a fan-out, or was taken into an open one. With keep
// that a source goes begins none: a retry brings its copies what it was at last.
func (f *FanOut) Supersedes(p *processors.Part, i int) bool {
	relevance, err := f.c.relevance(&p.Changes[i])
	return err == nil && relevance != irrelevant
}

// opening is what a fan-out is opened with beside its version.
type opening struct {
	trace   string // W3C traceparent of the write
	began   int64  // unix milliseconds
	doubted bool   // in all partitions of the target; see FanOut.examine
}

// enqueue gives v to the open fan-out of ref, or opens one. It waits while as many are
// open as may be; so the feed waits, and the checkpoint stays bounded.
func (f *FanOut) enqueue(ctx context.Context, ref store.ItemRef, v version, o opening) error {
	source := ref.String()
	if f.updateOpen(source, v) {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-f.slots:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fo := f.open[source]
	if fo == nil {
		fo = newFanOut(ref, processors.Job{Source: source})
		f.open[source] = fo
	} else { // it is parked: updateOpen takes all that run, and nobody else opens any
		f.parked--
	}
	fo.want, fo.unread, fo.slot = v, false, true
	fo.job.Parked, fo.job.Attempts, fo.job.LastError = false, 0, ""
	fo.job.Trace, fo.job.Began = o.trace, o.began
	fo.job.Total, fo.job.Scanned, fo.job.Changed = 0, 0, 0
	if p, ok := f.c.targetsOf(ref); ok && o.doubted {
		for _, partition := range p.partitions {
			fo.doubted[partition] = true
		}
	}
	f.queue <- fo // never full: it has room for every token
	return nil
}

// updateOpen gives v to the open fan-out of source; false if there is none that runs. One
// that has v already, or a newer version, keeps what it has:
//
//	wants   v      then
//	at 5    at 7   it wants 7 and sends no more pages of 5
//	at 7    at 5   nothing: the feed repeats what the checkpoint's job was made of
//	at 7    at 7   nothing, but for one from a checkpoint: v brings the values
//
// A parked one is tried again by a newer version only.
func (f *FanOut) updateOpen(source string, v version) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fo := f.open[source]
	if fo == nil || fo.job.Parked && fo.want.position.Before(v.position) {
		return false
	}
	if fo.want.position.Before(v.position) {
		fo.want, fo.unread = v, false
	} else if fo.unread && fo.want.position == v.position {
		fo.want, fo.unread = v, false
	}
	return true
}

// State returns the open fan-outs, the oldest version first.
func (f *FanOut) State() processors.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := processors.State{Counts: f.counts}
	for _, fo := range f.open {
		job := fo.job
		job.Position, job.Gone, job.Digest = fo.want.position, fo.want.gone, fo.want.digest
		s.Jobs = append(s.Jobs, job)
	}
	slices.SortFunc(s.Jobs, func(a, b processors.Job) int {
		return cmp.Or(a.Position.Compare(b.Position), strings.Compare(a.Source, b.Source))
	})
	return s
}

// Run carries out fan-outs until ctx ends.
func (f *FanOut) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case fo := <-f.queue:
				g.Go(func() error { return f.run(ctx, fo) })
			}
		}
	})
	return g.Wait()
}

// closeFanOut closes fo if v is the newest version of its source.
func (f *FanOut) closeFanOut(fo *fanOut, v *version) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Under the lock in which updateOpen gives a newer version: one that comes from now on
	// finds no fan-out and opens one.
	if v.position.Before(fo.want.position) {
		return false
	}
	delete(f.open, fo.source)
	f.releaseSlot(fo)
	return true
}

// park gives fo up until its source changes again, unless it has already.
func (f *FanOut) park(fo *fanOut, v *version, cause error) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v.position.Before(fo.want.position) {
		return false, nil
	}
	// It stays in open, and so in the checkpoint, where it counts as lag; its slot is free.
	fo.job.Parked, fo.job.LastError = true, processors.Clip(cause)
	f.parked++
	f.counts.DeadLetters++
	f.releaseSlot(fo)
	if f.parked > parkedMax {
		return true, &processors.TooManyParkedError{Resource: f.term.Resource, Parked: f.parked}
	}
	return true, nil
}

// releaseSlot returns fo's token.
func (f *FanOut) releaseSlot(fo *fanOut) {
	if fo.slot {
		fo.slot = false
		f.slots <- struct{}{} // never full
	}
}

// wantedVersion returns the version that fo is to bring to its copies.
func (f *FanOut) wantedVersion(fo *fanOut) (v version, unread bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fo.want, fo.unread
}

// superseded says whether a newer version than v has come.
func (f *FanOut) superseded(fo *fanOut, v *version) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return v.position.Before(fo.want.position)
}
