package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/pace"
	"github.com/millrace/millrace/store/snapshot"
)

// tailMin is how much log may stand behind a base whatever its size, in bytes.
const tailMin = 64 << 20

// newerWithin is how long an owner gets to take a snapshot in the place of a damaged one, or the first of a partition
// that a split made.
var newerWithin = 2 * time.Minute

// errMoved says that what was being copied is not there any more, and something newer is.
var errMoved = errors.New("it was replaced while it was copied")

// errHeadless says that of a log no state can be made. One that was trimmed between the
// look at the owner's snapshots and that at the log has a newer snapshot now.
var errHeadless = errors.New("the beginning of its log is gone, and its owner has no snapshot of it: see store.snapshots.directory")

// baseError says that a snapshot cannot be copied, because what its owner reads of it is not
// what was written.
type baseError struct {
	id  string
	err error
}

func (e *baseError) Error() string { return e.err.Error() }
func (e *baseError) Unwrap() error { return e.err }

// partitionCopy copies one partition. An attempt begins with a snapshot of its owner, the base,
// and goes on with the log behind it:
//
//	┌▶ the newest one ──is damaged──▶ the one before, and more log ──does not serve──┐
//	└──────────────────────── a new one is waited for ◀──────────────────────────────┘
//
// It belongs to the goroutine of run.
type partitionCopy struct {
	*creator
	ct *store.Container
	id feed.Partition

	back  int    // which snapshot is taken, from the newest on
	gone  string // the last snapshot of which a part was gone
	worst string // the newest snapshot, which is damaged
}

// run copies the partition; it returns nil if its container was deleted meanwhile, or it was split.
func (c *partitionCopy) run(ctx context.Context) (*Partition, error) {
	for attempt := 1; ; attempt++ {
		// What the backup before names may be gone from it, and from the owner too: it is
		// tried once, and the newest snapshot serves always.
		former := c.former[c.id.String()]
		if attempt > 1 {
			former = nil
		}
		p, err := c.once(ctx, former)
		bad, unusable := errors.AsType[*baseError](err)
		if unusable && errors.Is(err, errMoved) && bad.id != c.gone {
			c.gone, unusable = bad.id, false // it is most likely not the newest any more
		}
		switch {
		case attempt < attempts && (unusable || c.back > 0 && (errors.Is(err, errMoved) || errors.Is(err, errHeadless))):
			if c.back++; unusable && c.back == 1 {
				c.worst = bad.id
				c.note(c.id, "%v; what is older is taken, and more of the log", err)
				continue
			}
			// The log behind the older one is gone, or it is damaged as well. The owner was told
			// by the question for it, and takes a new one if it finds the same.
			c.note(c.id, "there is no other one that serves (%v); a new snapshot is waited for", err)
			if err := c.awaitNewer(ctx); err != nil {
				return nil, err
			}
			c.back = 0
		case err == nil:
			c.partitionDone(c.id)
			return p, nil
		case c.wasSplit(err) || errors.Is(err, feed.ErrNoLog) && c.noMore(ctx):
			c.partitionDone(c.id)
			return nil, nil
		case attempt == attempts || !errors.Is(err, errMoved) && !errors.Is(err, errHeadless):
			return nil, err
		}
	}
}

// once tries to copy the partition. It continues former, the partition in the backup before, unless
// that is nil or does not serve (goesOn).
func (c *partitionCopy) once(ctx context.Context, former *Partition) (*Partition, error) {
	log, err := feed.OpenLog(ctx, c.src.JetStream, c.id, c.src.Log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	// The snapshot before the log: its LSN is in the log then, because both only move on. A
	// trim between the two shows as a log that begins behind the snapshot (errMoved).
	newest, err := c.newestSnapshot(ctx, c.back)
	if err == nil && newest == nil && c.back == 0 {
		newest, err = c.awaitOwn(ctx, log)
	}
	if err != nil {
		return nil, err
	}
	shape, err := log.Shape(ctx)
	if err != nil {
		return nil, err
	}
	p := &Partition{Partition: c.id.String(), Log: log.ID()}
	again := former != nil && former.Log == p.Log && goesOn(former, newest, shape)
	if again && former.Base == nil {
		// An earlier program may have taken a log for whole that lacks what its partition inherited.
		if err = begins(ctx, log, shape.First); err != nil && !errors.Is(err, errHeadless) {
			return nil, err
		}
		again = err == nil
	}
	if again {
		p.Base, p.First, p.Since = former.Base, former.First, former.Since
	} else if newest != nil {
		p.First, p.Since = newest.LSN, newest.Time
		data, err := json.Marshal(newest)
		if err != nil {
			return nil, err
		}
		p.Base = &Base{newest.ID(), data}
	}
	if p.Base != nil {
		m, err := p.manifest()
		if err != nil {
			return nil, err
		}
		if err := c.copyParts(ctx, m); err != nil {
			return nil, err
		}
		p.Last, p.Sum = m.LSN, m.Checksum
	}
	if p.Base == nil {
		if err := begins(ctx, log, shape.First); err != nil {
			return nil, err
		}
		p.First = shape.First
	}
	if err := c.copyLog(ctx, log, p, shape); err != nil {
		return nil, err
	}
	return p, c.setUntil(ctx, log, p)
}

// setUntil sets up to which time a partition is copied whole.
func (c *partitionCopy) setUntil(ctx context.Context, log *feed.Log, p *Partition) error {
	last, err := p.lastTime()
	if err != nil {
		return err
	}
	shape, err := log.Shape(ctx)
	if err != nil {
		return err
	}
	seen, next := shape.Time.UnixMilli(), int64(0)
	if shape.Last == p.Last {
		if err := refuseSplit(ctx, log, p.Last); err != nil {
			return err
		}
	} else {
		commit, err := log.Read(ctx, p.Last+1)
		switch {
		case err == nil:
			next = commit.Time
		case errors.Is(err, feed.ErrNotFound) || feed.Damaged(err):
			seen = 0 // it is there and cannot tell its time
		default:
			return err
		}
	}
	p.Until = wholeUntil(last, next, seen)
	return nil
}

// errEnded says that a log ends with a split: what the partition had is its children's. Whatever the records say that are
// copied with it, it is none of the partitions that hold items: a store that was restored of it could not write to it.
var errEnded = errors.New("it was split")

// refuseSplit refuses a log that ends with a split.
func refuseSplit(ctx context.Context, log *feed.Log, last feed.LSN) error {
	c, err := log.Read(ctx, last)
	if _, trimmed := errors.AsType[*feed.TrimmedError](err); trimmed {
		return nil // a log that is being split is not trimmed
	}
	if err != nil {
		return err
	}
	split, err := feed.SplitOf(c)
	if err == nil && split != nil {
		err = errEnded
	}
	return err
}

// wasSplit says whether the partition could not be copied because it was split.
func (c *partitionCopy) wasSplit(err error) bool {
	_, told := errors.AsType[*store.SplitError](err)
	return told || errors.Is(err, errEnded)
}

// untilMargin is how much later than a commit's time the server's clock is taken to be, at most, when the commit comes
// into the log. That is an assumption, because nothing in the log tells it:
//
//	30 s  an append is sent again for as long as its owner holds the lease, whose lifetime (leases.ttl)
//	      is by default 30 s at most, that of a node that is alone
//	30 s  an owner follows the server's clock, and goes by its own where it cannot: the two may differ by that
//
// Where leases.ttl is longer, or clocks differ by more, a commit of before until may come later.
const untilMargin = time.Minute

// wholeUntil returns up to which time the copy of a log lacks no commit, in Unix milliseconds. The copy
// ends with a commit of time last. The log was looked at again afterwards: next is the time of the commit
// that follows; it is 0 if there was none at seen, by the server's clock, which is 0 if that is not known.
//
// A commit carries the time at which its owner began to decide it, and is in the log later. So that the
// log has no later commit at a moment does not prove that none of an earlier time will come. But times in
// a log never go back:
//
//	copied up to 41 of 9:07:07, 42 of 9:07:09 follows   until just before 9:07:09
//	copied up to 41 of 9:07:07, nothing at 9:07:30      until just before 9:07:07: one of that time may be on its way
//	copied up to 41 of 9:07:07, nothing at 9:09:00      until 9:08:00
func wholeUntil(last, next, seen int64) int64 {
	if next > 0 {
		return next - 1
	}
	return max(last-1, seen-untilMargin.Milliseconds())
}

// begins refuses a log that lacks its first commit: what stood there is in no backup that
// has no base.
func begins(ctx context.Context, log *feed.Log, first feed.LSN) error {
	c, err := log.Read(ctx, first)
	if _, trimmed := errors.AsType[*feed.TrimmedError](err); trimmed || errors.Is(err, feed.ErrNotFound) || err == nil && !owner.Begins(c) {
		return fmt.Errorf("%w; the first commit is that at LSN %d", errHeadless, first)
	}
	return err
}

// newestSnapshot returns the manifest of the owner's newest snapshot, or of the one so many before
// it; nil if it has none.
func (c *partitionCopy) newestSnapshot(ctx context.Context, back int) (*snapshot.Manifest, error) {
	object, err := c.ct.ReadSnapshot(ctx, c.id, store.ReadSnapshot{Part: back})
	if err != nil || object.ID == "" {
		return nil, err
	}
	return snapshot.Decode(c.id, object.ID, object.Data)
}

// goesOn tells whether the base of the backup before serves again: the log behind it is
// still there, and has not become large beside it.
//
//	base 1 GiB, 100 MiB of log in the backup, 20 MiB since: again, 20 MiB are sent
//	base 1 GiB, 500 MiB of log in the backup, 20 MiB since: the newest snapshot
//	base 20 MiB, 20 MiB of log in the backup: again
//	no base, the log begins where the backup does: again
//	no base, the log was trimmed since: the newest snapshot
func goesOn(former *Partition, newest *snapshot.Manifest, shape *feed.Shape) bool {
	if former.Last+1 < shape.First || former.Last > shape.Last {
		return false
	}
	// Without a base a state is made of the log from its first commit on: one that begins
	// later now is no such log, whatever the backup holds of what it lacks.
	if former.Base == nil && shape.First != former.First {
		return false
	}
	m, err := former.manifest()
	if err != nil || newest == nil || m != nil && newest.LSN <= m.LSN {
		return err == nil
	}
	var tail uint64
	for i := range former.Segments {
		tail += former.Segments[i].Bytes
	}
	// What the log holds since is larger there than it will be here.
	if shape.Commits > 0 {
		tail += shape.Bytes / shape.Commits * uint64(shape.Last-former.Last)
	}
	return tail <= max(tailMin, newest.Stored()/2)
}

// awaitNewer waits until the newest snapshot of the owner is not the one that is damaged.
func (c *partitionCopy) awaitNewer(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < newerWithin; {
		is, err := c.newestSnapshot(ctx, 0)
		if err != nil || is == nil || is.ID() != c.worst {
			return err
		}
		if err := pace.Pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("snapshot %s is damaged, and its owner has taken no other one in %s: describe container tells why", c.worst, newerWithin)
}

// awaitOwn waits, where a partition was made by a split, until its owner has a snapshot of it, and returns that; nil for any
// other partition. What such a partition inherited is not in its log, and the seed that it began with is of its
// parent's. The owner was told by the question for a snapshot, and takes one.
func (c *partitionCopy) awaitOwn(ctx context.Context, log *feed.Log) (*snapshot.Manifest, error) {
	first, _, err := log.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	commit, err := log.Read(ctx, first)
	if err != nil || !owner.Inherits(commit) {
		return nil, nil //nolint:nilerr // begins tells what is wrong
	}
	for began := time.Now(); time.Since(began) < newerWithin; {
		if err := pace.Pause(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
		if is, err := c.newestSnapshot(ctx, 0); err != nil || is != nil {
			return is, err
		}
	}
	return nil, fmt.Errorf("a split made it, its log lacks what it had then, and its owner has taken no snapshot of it in %s (store.snapshots)", newerWithin)
}

// noMore tells whether the container was deleted meanwhile, or the partition was split and its log is not needed any more.
func (c *partitionCopy) noMore(ctx context.Context) bool {
	info := c.ct.Info()
	now, err := c.src.Client.Catalog().Get(ctx, info.Database, info.Name)
	if err != nil {
		return errors.Is(err, store.ErrNotFound)
	}
	holds := func(p store.PartitionInfo) bool { return p.Number == c.id.Number }
	return now.ID != info.ID || now.State == store.ContainerDeleting || !slices.ContainsFunc(now.Partitions, holds)
}

// copyParts copies the parts of a snapshot that are not there.
func (c *partitionCopy) copyParts(ctx context.Context, m *snapshot.Manifest) error {
	names, err := c.place.List(ctx, partsFolder(c.id))
	if err != nil {
		return fmt.Errorf("%s: %w", c.place, err)
	}
	for i := range m.Parts {
		part := &m.Parts[i]
		if slices.Contains(names, partFile(part)) {
			continue
		}
		object, err := c.ct.ReadSnapshot(ctx, c.id, store.ReadSnapshot{ID: m.ID(), Part: i + 1})
		if errors.Is(err, store.ErrNotFound) {
			return &baseError{m.ID(), fmt.Errorf("%w: %w", errMoved, err)}
		}
		if err != nil {
			return err
		}
		if err := part.Check(object.Data); err != nil {
			return &baseError{m.ID(), fmt.Errorf("part %d of snapshot %s, as its owner reads it, %w", i+1, m.ID(), err)}
		}
		if err := c.putObject(ctx, partName(c.id, part), object.Data, c.id); err != nil {
			return err
		}
	}
	return nil
}
