package leases

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// beat keeps the record by which the group knows that this process lives. There
// is one record for each group and node; the incarnation that wrote it last is
// the node's present one.
type beat struct {
	m        *Manager
	key      string
	revision uint64 // of the stored record; owned by the goroutine that writes
	nudge    chan struct{}

	mu     sync.Mutex
	rec    memberRecord // what is to be stored
	landed uint64       // revision of the last beat that was stored
	at     time.Duration
}

func (b *beat) init(m *Manager) {
	b.m = m
	b.key = memberKey(m.cfg.Group, m.cfg.Node)
	b.nudge = make(chan struct{}, 1)
	b.rec = memberRecord{
		Version: recordVersion, Node: m.cfg.Node, Incarnation: m.incarnation, Host: m.cfg.Host,
		TTL: m.cfg.TTL.Milliseconds(), Locked: m.cfg.NodeLocked, Closed: true,
		Started: time.Now().UnixMilli(), Level: m.cfg.Level,
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
		if ctx.Err() != nil || !errors.Is(err, errMismatch) {
			return err
		}
		pause.wait(ctx) // a reply that was lost, a replica that lags, a twin
	}
}

// read learns the revision of the stored record and returns the record, nil if
// there is none.
func (b *beat) read(ctx context.Context) (*memberRecord, error) {
	e, err := b.m.store.Get(ctx, b.key)
	if errors.Is(err, errNotFound) || err == nil && e.Deleted {
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

// put stores the record as it is to be.
func (b *beat) put(ctx context.Context) error {
	b.mu.Lock()
	b.rec.Beat = b.m.writes.Add(1)
	value := encode(&b.rec)
	b.mu.Unlock()
	begun := b.m.clock()
	revision, err := b.m.store.Put(ctx, b.key, value, b.revision)
	if err != nil {
		return err
	}
	b.revision = revision
	b.mu.Lock()
	b.landed, b.at = revision, begun
	b.mu.Unlock()
	return nil
}

// set changes the record and has it stored at once if it differs.
func (b *beat) set(closed bool, resources uint64, declines []string) {
	b.mu.Lock()
	same := b.rec.Closed == closed && b.rec.Resources == resources && slices.Equal(b.rec.Declines, declines)
	b.rec.Closed, b.rec.Resources, b.rec.Declines = closed, resources, declines
	b.mu.Unlock()
	if !same {
		b.wake()
	}
}

// wake has the record stored at once.
func (b *beat) wake() {
	select {
	case b.nudge <- struct{}{}:
	default:
	}
}

// lastLanded returns the revision of the last beat known to be stored, and when
// it was sent.
func (b *beat) lastLanded() (uint64, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.landed, b.at
}

// run stores the record every RenewInterval until ctx ends. It returns
// ErrSuperseded when another incarnation has taken the record over.
func (b *beat) run(ctx context.Context) error {
	cfg := &b.m.cfg
	ticker := time.NewTicker(cfg.RenewInterval)
	defer ticker.Stop()
	pause := retryPause{first: cfg.RenewInterval / 16, most: cfg.RenewInterval}
	for ctx.Err() == nil {
		err := b.once(ctx)
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

func (b *beat) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.m.cfg.RenewInterval)
	defer cancel()
	err := b.put(ctx)
	if !errors.Is(err, errMismatch) {
		return err
	}
	known := b.revision
	rec, err := b.read(ctx)
	if err != nil {
		return err
	}
	if rec != nil && b.revision <= known {
		stale := b.revision
		b.revision = known
		return fmt.Errorf("read %s: revision %d is not the last", b.key, stale)
	}
	if rec != nil && rec.Incarnation != b.m.incarnation {
		return fmt.Errorf("%w: node %s is now %s", ErrSuperseded, rec.Node, rec.holder())
	}
	return b.put(ctx) // a beat whose reply was lost, or a record that was deleted
}

// leave says that the process has ended. A record that nobody will use again is
// deleted.
func (b *beat) leave(ctx context.Context) error {
	b.mu.Lock()
	b.rec.Left, b.rec.Closed = true, true
	b.mu.Unlock()
	if b.m.cfg.NodeLocked {
		return b.once(ctx)
	}
	return b.m.store.Delete(ctx, b.key, b.revision)
}
