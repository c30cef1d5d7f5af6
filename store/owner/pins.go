package owner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/snapshot"
)

// A generation of a pipeline that begins with the items that are there reads them from a
// snapshot, which is pinned for it. The pins stand in the pointer of the partition's
// snapshots, so the next owner knows them; here is how they come there, and how the items
// are read. What is read never changes, so it waits at no barrier.

const (
	// pinAnswer is how long a request for a pin waits before it is told to come again.
	pinAnswer = time.Second
	// pinForgotten is after how long nobody comes any more for what a request was told.
	pinForgotten = 10 * time.Second
	// pinnedItemsMax bounds the items of a page beside scanBytesMax.
	pinnedItemsMax = 20_000
	// youngShare is the part of what it held by which the log may have grown since a snapshot
	// that is still good to begin with: reading that much of the log costs less than to take
	// another.
	youngShare = 8
)

// pinBook holds who waits for a pin, and the pinned snapshots that are read.
type pinBook struct {
	asked chan<- struct{} // wakes who takes snapshots; nil where nobody does

	mu    sync.Mutex
	wants map[string]*pinWant        // by holder
	open  map[string]*snapshot.Items // by id

	pins atomic.Pointer[[]snapshot.Pin] // as the pointer was seen last
	// looks counts how often somebody began to read the pins, noted is the latest of those
	// that is in pins. Many read at once, in a store that may be far away.
	looks, noted uint64
}

// look begins to read the pins, before anything is read.
func (b *pinBook) look() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looks++
	return b.looks
}

// note stores what a look has seen, unless one that began later was faster: the older may have
// seen what was there before a release. Who changes the pins looks afterwards, so the latest
// look has seen every change.
func (b *pinBook) note(look uint64, pins []snapshot.Pin) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if look < b.noted {
		return
	}
	b.noted = look
	b.pins.Store(&pins)
	maps.DeleteFunc(b.open, func(id string, _ *snapshot.Items) bool {
		return !slices.ContainsFunc(pins, func(pin snapshot.Pin) bool { return pin.ID == id })
	})
}

// pinWant is somebody's wish for a pin.
type pinWant struct {
	request store.PinSnapshot
	done    chan struct{} // closed when the answer is there
	answer  *store.Response
	at      time.Time // of the answer
}

// want returns the wish of a holder, which stands until forget. A holder asks again and again
// while a snapshot is taken; all of its requests share one wish.
func (b *pinBook) want(r *store.PinSnapshot) *pinWant {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.wants[r.Holder]
	// The holder gave up before the answer was there. The pin in it may have been released, or
	// have lapsed, since.
	if w != nil && !w.at.IsZero() && time.Since(w.at) > pinForgotten {
		w = nil
	}
	if w == nil {
		w = &pinWant{request: *r, done: make(chan struct{})}
		if b.wants == nil {
			b.wants = map[string]*pinWant{}
		}
		b.wants[r.Holder] = w
	}
	return w
}

// forget removes a wish, unless the holder has a newer one.
func (b *pinBook) forget(w *pinWant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wants[w.request.Holder] == w {
		delete(b.wants, w.request.Holder)
	}
}

// waiting returns the wishes that were not answered.
func (b *pinBook) waiting() (all []*pinWant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.wants {
		if w.at.IsZero() {
			all = append(all, w)
		}
	}
	return all
}

func (b *pinBook) answer(w *pinWant, resp *store.Response) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.answer, w.at = resp, time.Now()
	close(w.done)
}

// last returns the pins as they were seen last, for people.
func (b *pinBook) last() (all []store.SnapshotPin) {
	pins := b.pins.Load()
	if pins == nil {
		return nil
	}
	for i := range *pins {
		if pin := &(*pins)[i]; pin.Lasts(time.Now()) {
			all = append(all, store.SnapshotPin{Holder: pin.Holder, LSN: pin.LSN, Items: pin.Items, Until: pin.Until})
		}
	}
	return all
}

// held returns the pin of a holder, if it was seen and lasts.
func (b *pinBook) held(holder string) (snapshot.Pin, bool) {
	if pins := b.pins.Load(); pins != nil {
		for _, pin := range *pins {
			if pin.Holder == holder && pin.Lasts(time.Now()) {
				return pin, true
			}
		}
	}
	return snapshot.Pin{}, false
}

// notePins reads the pins, for status and for pages.
func (p *Partition) notePins(ctx context.Context) error {
	look := p.pins.look()
	pins, err := snapshot.Pins(ctx, p.cfg.snapshots, p.id)
	if err != nil {
		p.log.Warn("the pins of snapshots cannot be read", "error", err)
		return err
	}
	p.pins.note(look, pins)
	return nil
}

var pinHandler = handler{
	read: func(ctx context.Context, p *Partition, r *store.Request) *store.Response { return p.pin(ctx, r.Pin) },
}

// pin pins a snapshot for a holder, or releases it.
func (p *Partition) pin(ctx context.Context, r *store.PinSnapshot) *store.Response {
	if p.cfg.snapshots == nil || p.pins.asked == nil {
		return p.pinOff(ctx)
	}
	if r.Release {
		err := snapshot.ReleasePins(ctx, p.cfg.snapshots, p.id, func(holder string) bool { return holder == r.Holder })
		if err != nil {
			return p.pinFailed(err)
		}
		_ = p.notePins(ctx) // it is logged
		return &store.Response{Pin: &store.PinResult{}}
	}
	// A holder whose answer was lost asks again, and keeps the pin that it has.
	pin, err := snapshot.ExtendPin(ctx, p.cfg.snapshots, p.id, r.Holder, time.Now().Add(store.PinAsked))
	if err == nil {
		_ = p.notePins(ctx) // it is logged
		return &store.Response{Pin: pinResult(&pin)}
	}
	if _, damaged := errors.AsType[*snapshot.DamagedError](err); !errors.Is(err, snapshot.ErrNotFound) && !damaged {
		return p.pinFailed(err)
	}
	w := p.pins.want(r)
	select {
	case p.pins.asked <- struct{}{}:
	default:
	}
	late := time.NewTimer(pinAnswer)
	defer late.Stop()
	select {
	case <-w.done:
		p.pins.forget(w)
		return w.answer
	case <-late.C:
	case <-ctx.Done():
	}
	return &store.Response{Pin: &store.PinResult{State: store.PinPending}}
}

func pinResult(pin *snapshot.Pin) *store.PinResult {
	return &store.PinResult{State: store.PinReady, ID: pin.ID, LSN: pin.LSN, Items: pin.Items}
}

func (p *Partition) pinOff(ctx context.Context) *store.Response {
	shape, err := p.feed.Shape(ctx)
	if err != nil {
		return p.pinFailed(err)
	}
	return &store.Response{Pin: &store.PinResult{State: store.PinOff, Trimmed: shape.Trimmed > 0}}
}

func (p *Partition) pinFailed(err error) *store.Response {
	return &store.Response{Err: store.Refuse(store.StatusUnavailable, "partition %s: no snapshot can be pinned: %v", p.id, err)}
}

// servePins answers the holders that wait for a pin. Only snapshotLoop calls it, because it
// may take a snapshot, and those of one process are taken one after the other.
func (s *Server) servePins(ctx context.Context) {
	for _, p := range s.partitions() {
		wants := p.pins.waiting()
		if len(wants) == 0 {
			continue
		}
		s.servePin(ctx, p, wants)
	}
}

func (s *Server) servePin(ctx context.Context, p *Partition, wants []*pinWant) {
	shape, err := p.feed.Shape(ctx)
	if err != nil {
		for _, w := range wants {
			p.pins.answer(w, p.pinFailed(err))
		}
		return
	}
	trimmed := shape.Trimmed > 0 // what lies up to there may go at any moment
	// The cheapest first: who reads a small log needs no snapshot at all.
	wants = slices.DeleteFunc(wants, func(w *pinWant) bool {
		reads := !trimmed && w.request.LogMax > 0 && p.compression.plainBytes(shape.Bytes) <= w.request.LogMax
		if reads {
			p.pins.answer(w, &store.Response{Pin: &store.PinResult{State: store.PinLog, LogBytes: shape.Bytes}})
		}
		return reads
	})
	if len(wants) == 0 {
		return
	}
	m, items, err := s.pinnable(ctx, p, shape)
	for _, w := range wants {
		switch {
		case err != nil:
			p.pins.answer(w, p.pinFailed(err))
		case !trimmed && w.request.LogMax > 0 && p.compression.plainBytes(shape.Bytes)/2 <= m.Bytes:
			p.pins.answer(w, &store.Response{Pin: &store.PinResult{State: store.PinLog, LogBytes: shape.Bytes, HeldBytes: m.Bytes}})
		default:
			pin, err := snapshot.PinSnapshot(ctx, s.cfg.snapshots, m, w.request.Holder, items, time.Now().Add(store.PinAsked))
			if err != nil {
				p.pins.answer(w, p.pinFailed(err))
				continue
			}
			p.log.Info("snapshot pinned", "holder", pin.Holder, "lsn", uint64(pin.LSN), "items", pin.Items)
			_ = p.notePins(ctx) // before the answer: who has it may ask for status, or for a page, at once
			result := pinResult(&pin)
			result.Trimmed, result.LogBytes, result.HeldBytes = trimmed, shape.Bytes, m.Bytes
			p.pins.answer(w, &store.Response{Pin: result})
		}
	}
}

// pinnable returns a snapshot to pin, and how many items it holds: the newest if it is
// whole and little was written since, else a new one.
func (s *Server) pinnable(ctx context.Context, p *Partition, shape *feed.Shape) (*snapshot.Manifest, uint64, error) {
	if why := p.closedFor.Load(); why != nil {
		return nil, 0, why
	}
	all, _, err := snapshot.Newest(ctx, s.cfg.snapshots, p.id)
	if err != nil {
		return nil, 0, err
	}
	if len(all) > 0 && all[0].Log == shape.Log && !p.isUnusable(all[0].ID()) && s.cfg.Snapshots.young(all[0], p.state.Load().lsn, shape, &p.compression) {
		items, err := p.countItems(ctx, s.cfg.snapshots, all[0])
		if _, damaged := errors.AsType[*snapshot.DamagedError](err); !damaged {
			return all[0], items, err
		}
		p.distrust(all[0].ID(), err)
	}
	m, err := s.takeSnapshot(ctx, p, nil)
	if err == nil && m == nil {
		err = errors.New("nothing was written yet")
	}
	if err != nil {
		return nil, 0, fmt.Errorf("take a snapshot: %w", err)
	}
	return m, m.Items(), nil
}

// countedSnapshot is a snapshot that this process has read whole, and how many items it holds.
type countedSnapshot struct {
	id    string
	items uint64
}

// countItems returns how many items a snapshot holds. It reads all of it and compares each part with its checksum,
// because one that is damaged is no use to anybody, unless this process has read it whole before: what is damaged
// since is found by the holder's pages (see pinned), and the holder begins anew with another one.
func (p *Partition) countItems(ctx context.Context, in snapshot.Store, m *snapshot.Manifest) (uint64, error) {
	if known := p.counted.Load(); known != nil && known.id == m.ID() {
		return known.items, nil
	}
	items, err := snapshot.OpenItems(in, m).Count(ctx, func(int) {})
	if err == nil {
		p.counted.Store(&countedSnapshot{m.ID(), items})
	}
	return items, err
}

// distrust notes that a snapshot was found damaged: nobody pins it any more, no log is trimmed by it, and where it is the
// newest another one takes its place.
func (p *Partition) distrust(id string, err error) {
	p.unusable.Store(id, true)
	p.readWhole.Delete(id)
	p.counted.Store(nil)
	p.doubt()
	p.log.Error("a snapshot cannot be used", "snapshot", id, "error", err)
}

func (p *Partition) isUnusable(id string) bool {
	_, known := p.unusable.Load(id)
	return known
}

// young tells whether little was written since a snapshot.
func (c *SnapshotConfig) young(m *snapshot.Manifest, at feed.LSN, log *feed.Shape, packed *compression) bool {
	return m.LSN == at ||
		packed.plainBytes(grownSince(m.LSN, m.LogBytes, at, log.First, log.Bytes)) <= min(max(restBytesMin, m.Bytes/youngShare), uint64(c.LogBytes))
}

var pinnedHandler = handler{
	read: func(ctx context.Context, p *Partition, r *store.Request) *store.Response {
		return p.pinned(ctx, r.Pinned)
	},
}

// pinned reads a page of items of a snapshot.
func (p *Partition) pinned(ctx context.Context, r *store.ReadPinned) *store.Response {
	items, err := p.pinnedItems(ctx, r)
	var page []store.Item
	if err == nil {
		page, err = pinnedPage(ctx, items, r.From)
	}
	damaged, isDamaged := errors.AsType[*snapshot.DamagedError](err)
	switch {
	case errors.Is(err, snapshot.ErrNotFound):
		return &store.Response{Err: store.Refuse(store.StatusNotFound, "partition %s: snapshot %s is not kept for %s, or no longer", p.id, r.ID, r.Holder)}
	case isDamaged:
		p.distrust(r.ID, damaged)
		return &store.Response{Err: store.Refuse(store.StatusDamaged, "%v", damaged)}
	case err != nil:
		return &store.Response{Err: store.Refuse(store.StatusUnavailable, "partition %s: snapshot %s cannot be read now: %v", p.id, r.ID, err)}
	}
	m := items.Manifest()
	return &store.Response{Pinned: &store.PinnedPage{Items: page, Log: m.Log, LSN: m.LSN, Sum: feed.Checksum(m.Checksum), Time: m.Time}}
}

func pinnedPage(ctx context.Context, items *snapshot.Items, from uint64) ([]store.Item, error) {
	some, err := items.Page(ctx, from, pinnedItemsMax, scanBytesMax)
	if err != nil {
		return nil, err
	}
	page := make([]store.Item, len(some))
	for i := range some {
		page[i] = itemOf(&some[i])
	}
	return page, nil
}

// pinnedItems returns the items of the snapshot that a holder has pinned, and lets the pin
// last. The error is snapshot.ErrNotFound if it has not.
func (p *Partition) pinnedItems(ctx context.Context, r *store.ReadPinned) (*snapshot.Items, error) {
	if p.cfg.snapshots == nil {
		return nil, snapshot.ErrNotFound
	}
	pin, ok := p.pins.held(r.Holder)
	if !ok || pin.ID != r.ID {
		// Another owner may have pinned it. "Gone" makes the reader begin anew, so it is said
		// only after the pointer was read.
		if err := p.notePins(ctx); err != nil {
			return nil, err
		}
		pin, ok = p.pins.held(r.Holder)
	}
	if !ok || pin.ID != r.ID {
		return nil, snapshot.ErrNotFound
	}
	// Not at each page: an extension writes and syncs the pointer.
	if time.Until(pin.Until) < store.PinFor/2 {
		if _, err := snapshot.ExtendPin(ctx, p.cfg.snapshots, p.id, r.Holder, time.Now().Add(store.PinFor)); err != nil {
			return nil, err
		}
		_ = p.notePins(ctx) // it is logged
	}
	p.pins.mu.Lock()
	items := p.pins.open[r.ID]
	p.pins.mu.Unlock()
	if items != nil {
		return items, nil
	}
	m, _, err := snapshot.Pinned(ctx, p.cfg.snapshots, p.id, r.Holder)
	if err != nil {
		return nil, err
	}
	if m.ID() != r.ID {
		return nil, snapshot.ErrNotFound
	}
	// The manifest was read without the lock: another page may have opened the same snapshot.
	p.pins.mu.Lock()
	defer p.pins.mu.Unlock()
	if p.pins.open == nil {
		p.pins.open = map[string]*snapshot.Items{}
	}
	if items = p.pins.open[r.ID]; items == nil {
		items = snapshot.OpenItems(p.cfg.snapshots, m)
		p.pins.open[r.ID] = items
	}
	return items, nil
}

var snapshotHandler = handler{
	read: func(ctx context.Context, p *Partition, r *store.Request) *store.Response {
		return p.readSnapshot(ctx, r.Snapshot)
	},
}

// readSnapshot hands out what lies in the store of snapshots. It waits at no barrier: a
// snapshot is of the log that it names, whoever owns the partition now.
func (p *Partition) readSnapshot(ctx context.Context, r *store.ReadSnapshot) *store.Response {
	object := &store.SnapshotObject{ID: r.ID}
	if p.cfg.snapshots == nil {
		return &store.Response{Snapshot: &store.SnapshotObject{}}
	}
	var err error
	if r.ID == "" {
		object.ID, object.Data, err = snapshot.NewestOf(ctx, p.cfg.snapshots, p.id, p.feed.ID(), r.Part)
		if r.Part > 0 || object.ID == "" {
			p.doubt()
		}
	} else {
		object.Data, err = snapshot.ReadPart(ctx, p.cfg.snapshots, p.id, r.ID, r.Part)
	}
	switch {
	case errors.Is(err, snapshot.ErrNotFound):
		return &store.Response{Err: store.Refuse(store.StatusNotFound, "partition %s has no snapshot %s with a part %d any more", p.id, r.ID, r.Part)}
	case err != nil:
		return &store.Response{Err: store.Refuse(store.StatusUnavailable, "partition %s: a snapshot cannot be read: %v", p.id, err)}
	}
	return &store.Response{Snapshot: object}
}
