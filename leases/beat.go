package leases

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// beat is this process's heartbeat: the record by which the group knows that it lives. There is
// one record for each group and node. The incarnation that wrote it last is the node's
// present one.
type beat struct {
	m        *Manager
	key      string
	revision uint64 // of the stored record; owned by the goroutine that writes
	nudge    chan struct{}

	mu             sync.Mutex    // guards what follows
	rec            memberRecord  // the record as the next put stores it
	storedRevision uint64        // of the last record known to be stored
	storedAt       time.Duration // when that write was begun
}

func (b *beat) init(m *Manager) {
	b.m = m
	b.key = memberKey(m.cfg.Group, m.cfg.Node)
	b.nudge = make(chan struct{}, 1)
	b.rec = memberRecord{
		Version: recordVersion, Node: m.cfg.Node, Incarnation: m.incarnation, Host: m.cfg.Host,
		TTL: m.cfg.TTL.Milliseconds(), Locked: m.cfg.NodeLocked, Closed: true,
		Started: time.Now().UnixMilli(), Level: m.cfg.Level, Answers: m.cfg.prober != nil,
	}
}

// announce writes the record over that of an earlier incarnation.
func (b *beat) announce(ctx context.Context) error {
	pause := retryPause{first: 20 * time.Millisecond, most: b.m.cfg.RenewInterval}
	for {
		_, err := b.read(ctx)
		if err == nil {
			err = b.put(ctx)
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || !errors.Is(err, bucket.ErrMismatch) {
			return err
		}
		// The stored revision was not the one that was read: a reply was lost, or another
		// process announces itself under this node. Read it again.
		pause.wait(ctx)
	}
}

// read returns the stored record, nil if there is none, and keeps its revision.
func (b *beat) read(ctx context.Context) (*memberRecord, error) {
	e, err := b.m.store.Get(ctx, b.key)
	if errors.Is(err, bucket.ErrNotFound) || err == nil && e.Deleted {
		b.revision = 0
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rec, err := decodeMember(b.key, e.Value)
	if err != nil {
		return nil, err
	}
	b.revision = e.Revision
	return rec, nil
}

// put stores the record if the stored one has the known revision, else the error is
// bucket.ErrMismatch.
func (b *beat) put(ctx context.Context) error {
	b.mu.Lock()
	b.rec.Beat = b.m.writes.Add(1)
	value := encode(&b.rec)
	b.mu.Unlock()
	// Taken before the write: others count the member's lifetime from when they see it, which
	// is not before that.
	begun := b.m.clock()
	revision, err := b.m.store.Put(ctx, b.key, value, b.revision)
	if err != nil {
		return err
	}
	b.revision = revision
	b.mu.Lock()
	b.storedRevision, b.storedAt = revision, begun
	b.mu.Unlock()
	return nil
}

// set changes the record, and has it stored at once if anything changed. drains says that the member is closed for no
// other reason than that its node drains.
func (b *beat) set(closed, drains bool, resources uint64, declines []string) {
	b.mu.Lock()
	same := b.rec.Closed == closed && b.rec.Drains == drains && b.rec.Resources == resources && slices.Equal(b.rec.Declines, declines)
	b.rec.Closed, b.rec.Drains, b.rec.Resources, b.rec.Declines = closed, drains, resources, declines
	b.mu.Unlock()
	if !same {
		b.wake()
	}
}

// setWarm changes what the next beat says of the resources that this process is prepared to take, and has it stored at
// once if they are others: a lease that becomes free meanwhile would go to a member that is not prepared.
func (b *beat) setWarm(warm map[string]uint64) {
	b.mu.Lock()
	same := maps.EqualFunc(b.rec.Warm, warm, func(uint64, uint64) bool { return true })
	b.rec.Warm = warm
	b.mu.Unlock()
	if !same {
		b.wake()
	}
}

// setLoading changes what the next beat says of what this process is about to become warm for.
func (b *beat) setLoading(resources []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rec.Loading = resources
}

// setRemarks changes what the next beat says to people, and has it stored at once if it is something else.
func (b *beat) setRemarks(remarks map[string]string) {
	b.mu.Lock()
	same := maps.Equal(b.rec.Remarks, remarks)
	b.rec.Remarks = remarks
	b.mu.Unlock()
	if !same {
		b.wake()
	}
}

// setRight says on which right the process's leases rest, and has that stored at once.
func (b *beat) setRight(incarnation string) {
	b.mu.Lock()
	b.rec.Right = incarnation
	b.mu.Unlock()
	b.wake()
}

// wake has the record stored at once.
func (b *beat) wake() {
	select {
	case b.nudge <- struct{}{}:
	default:
	}
}

// lastStored returns the revision of the last beat known to be stored, and when
// it was sent.
func (b *beat) lastStored() (uint64, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.storedRevision, b.storedAt
}

// run stores the record every RenewInterval until ctx ends. It returns
// ErrSuperseded when another incarnation has taken the record over.
func (b *beat) run(ctx context.Context) error {
	cfg := &b.m.cfg
	ticker := time.NewTicker(cfg.RenewInterval)
	defer ticker.Stop()
	pause := retryPause{first: cfg.RenewInterval / 16, most: cfg.RenewInterval}
	for ctx.Err() == nil {
		err := b.beatOnce(ctx)
		if errors.Is(err, ErrSuperseded) {
			return err
		}
		if err != nil {
			b.m.log.Debug("member not renewed", "error", err)
			pause.wait(ctx)
			continue
		}
		pause.reset()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-b.nudge:
		}
	}
	return nil
}

func (b *beat) beatOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.m.cfg.RenewInterval)
	defer cancel()
	err := b.put(ctx)
	if !errors.Is(err, bucket.ErrMismatch) {
		return err
	}
	// The record has another revision than the one that was written last. Who wrote it?
	//
	//	another incarnation          this process is superseded
	//	this one                     a reply was lost: go on from its revision
	//	nobody, there is none        somebody deleted it: write it again
	//
	// A revision below the last that was stored is from before that, whoever wrote it: the
	// bucket went back, or a leader answers that was succeeded. The write that goes on from it is
	// refused in the second case, so it can be tried in both. The last stored revision is
	// compared, not the one that was read last, which may be such a lower one already.
	last, _ := b.lastStored()
	rec, err := b.read(ctx)
	if err != nil {
		return err
	}
	if rec != nil && b.revision > last && rec.Incarnation != b.m.incarnation {
		return fmt.Errorf("%w: node %s is now %s", ErrSuperseded, rec.Node, rec.holder())
	}
	return b.put(ctx)
}

// leave tells the group that the process has ended. The record of a locked node stays for its
// next incarnation, see removeDeadMember; any other is deleted, because no process will have that
// node name again.
func (b *beat) leave(ctx context.Context) error {
	b.mu.Lock()
	b.rec.Left, b.rec.Closed, b.rec.Drains = true, true, false
	b.mu.Unlock()
	if b.m.cfg.NodeLocked {
		return b.beatOnce(ctx)
	}
	return b.m.store.Delete(ctx, b.key, b.revision)
}
