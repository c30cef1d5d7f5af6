package registry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/featurelevel"
	"github.com/millrace/millrace/store/pace"
)

// A generation of an aggregate or a projection begins with the log of each partition of its
// source, or with the items of a snapshot of it and the log behind them; package processors
// says why both end the same.
//
//	the log has                                    it begins with
//	little                                         the log
//	much, and at most twice what the items take    the log
//	more                                           the items
//	not its beginning any more                     the items

// walkLogBytes is how large a log may be to be read whatever the items take.
const walkLogBytes = 4 << 20

// Walk says that a partition of the source is read from the items of a snapshot on.
type Walk struct {
	Partition uint32 `json:"partition"`
	// Snapshot is its id, LSN the commit as of which it is, Items how many it holds.
	Snapshot string   `json:"snapshot"`
	LSN      feed.LSN `json:"lsn"`
	Items    uint64   `json:"items"`
}

// WalkOf returns with which items a reader begins; nil if it begins with the log.
func (r *Record) WalkOf(reader processors.Resource) *Walk {
	for i := range r.Walks {
		if reader.Role == processors.RoleSource && r.Walks[i].Partition == reader.Partition.Number {
			return &r.Walks[i]
		}
	}
	return nil
}

// LogBehind returns the LSN behind which a reader at a position still needs the log.
func (r *Record) LogBehind(reader processors.Resource, at feed.Position) feed.LSN {
	if w := r.WalkOf(reader); w != nil {
		return max(at.LSN, w.LSN)
	}
	return at.LSN
}

// ItemsLeft returns how many items a reader at a position has yet to read before it comes
// to the log.
func (r *Record) ItemsLeft(reader processors.Resource, at feed.Position) uint64 {
	w := r.WalkOf(reader)
	done, walking := at.Walked()
	if w == nil || !walking && !at.IsZero() {
		return 0
	}
	return w.Items - min(done, w.Items)
}

// Backfilled returns how much of what was there a reader at a position has read, and how
// much there is: items, and commits of the log.
func (r *Record) Backfilled(reader processors.Resource, at feed.Position) (done, total uint64) {
	from, to := r.Goals(reader)
	w := r.WalkOf(reader)
	if w == nil {
		return min(max(uint64(at.LSN), from), to) - from, to - from
	}
	from = uint64(w.LSN)
	to = max(to, from)
	return w.Items - r.ItemsLeft(reader, at) + min(max(uint64(at.LSN), from), to) - from, w.Items + to - from
}

// longLogs tells which partitions of a container may be worth a walk, and which must be
// walked because their log does not begin with its first commit any more.
func (r *Registry) longLogs(ctx context.Context, source *store.ContainerInfo) (long []feed.Partition, trimmed bool, err error) {
	for _, p := range source.Partitions {
		partition := feed.Partition{Container: source.ID, Number: p.Number}
		shape, err := r.shapeOf(ctx, partition)
		if err != nil {
			return nil, false, err
		}
		// What lies up to the trim point may go at any moment, if it has not gone yet.
		trimmed = trimmed || shape.Trimmed > 0
		if shape.Trimmed > 0 || shape.Bytes > r.walkLogMax() {
			long = append(long, partition)
		}
	}
	return long, trimmed, nil
}

func (r *Registry) walkLogMax() uint64 {
	if r.cfg.WalkLogBytes > 0 {
		return r.cfg.WalkLogBytes
	}
	return walkLogBytes
}

// pinItems pins snapshots of the partitions of the source, if the new generation is to begin
// with items. It runs before the record is written and before the ends of the logs are noted:
// what a rule or the generation before does from then on is behind the snapshot. The pins of a
// try that fails, or whose process dies, are taken over by the next try, or lapse after
// store.PinAsked. keepWalks extends them when the record names them.
func (r *Registry) pinItems(ctx context.Context, rec *Record, b *Bound, opts *ApplyOptions) error {
	rec.Walks = nil
	if opts.FromNow || rec.Spec.Kind() == spec.CascadeKind {
		return nil
	}
	long, _, err := r.longLogs(ctx, b.Source)
	if err != nil || len(long) == 0 {
		return err
	}
	level, err := featurelevel.Read(ctx, r.JetStream)
	if err != nil {
		return err
	}
	if level < featurelevel.Trims {
		return nil // the release before can still be gone back to, and does not know walks
	}
	source, err := r.client.Open(*b.Source)
	if err != nil {
		return err
	}
	pins := askedPins{source: source}
	defer pins.renew(ctx, store.PinAsked/4)()
	keeps := rec.keepsExpired(b.Source) && !opts.DiscardExpired
	for _, p := range long {
		reader := processors.Resource{Pipeline: rec.ID, Generation: rec.Generation, Role: processors.RoleSource, Partition: p}
		ask := store.PinSnapshot{Holder: reader.PinHolder(), LogMax: r.walkLogMax()}
		if keeps {
			ask.LogMax = math.MaxUint64 // rows of items that have expired are in the log alone
		}
		pin, err := source.PinSnapshot(ctx, p, ask)
		switch {
		case err != nil:
			return fmt.Errorf("pin a snapshot of %s: %w", p, err)
		case pin.State == store.PinReady && keeps:
			r.releaseWalk(ctx, source, reader)
			return fmt.Errorf("the log of %s was trimmed, and %w: --discard-expired begins without them", p, ErrExpiredLost)
		case pin.State == store.PinReady && pin.Items <= feed.WalkMax:
			pins.add(p, ask)
			rec.Walks = append(rec.Walks, Walk{p.Number, pin.ID, pin.LSN, pin.Items})
		case pin.State == store.PinReady && pin.Trimmed:
			return fmt.Errorf("the log of %s was trimmed, and a walk has at most %d items: it has %d", p, uint64(feed.WalkMax), pin.Items)
		case pin.Trimmed:
			return fmt.Errorf("the log of %s was trimmed, and its owner takes no snapshots to begin with: see store.snapshots.store (directory, stream, off)", p)
		}
	}
	return nil
}

// askedPins are the pins of a generation that is being registered.
type askedPins struct {
	source *store.Container

	mu   sync.Mutex
	pins []func(context.Context)
}

func (a *askedPins) add(p feed.Partition, ask store.PinSnapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pins = append(a.pins, func(ctx context.Context) {
		_, _ = a.source.PinSnapshot(ctx, p, ask) // else the reader finds it gone, and its pipeline begins anew
	})
}

// renew extends the pins until stop is called: of many large partitions the last snapshot
// may be taken long after the first was pinned.
func (a *askedPins) renew(ctx context.Context, every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for pace.Pause(ctx, every) == nil {
			a.mu.Lock()
			pins := slices.Clone(a.pins)
			a.mu.Unlock()
			for _, again := range pins {
				again(ctx)
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// ErrExpiredLost says that a projection cannot begin anew before an operator says that it may
// lose rows.
var ErrExpiredLost = errors.New("the rows of items that have expired cannot be made again from it")

// keepsExpired tells whether rows of items that have expired belong to what a generation
// writes.
func (r *Record) keepsExpired(source *store.ContainerInfo) bool {
	return r.Spec.Project != nil && r.Spec.Project.OnExpire != spec.DeleteRows && source.Spec.TTL != 0
}

// releaseMax bounds the time in which an owner is asked to let go of a snapshot.
const releaseMax = 2 * time.Second

// releaseWalks releases the snapshots of a generation that reads no more. If that fails at any
// step, the pins lapse.
func (r *Registry) releaseWalks(ctx context.Context, rec *Record) {
	if len(rec.Walks) == 0 {
		return
	}
	containers, err := r.client.Catalog().List(ctx)
	if err != nil {
		return
	}
	info := rec.find(containers, rec.Source)
	if info == nil {
		return
	}
	source, err := r.client.Open(*info)
	if err != nil {
		return
	}
	for i := range rec.Walks {
		p := feed.Partition{Container: rec.Source, Number: rec.Walks[i].Partition}
		r.releaseWalk(ctx, source, processors.Resource{Pipeline: rec.ID, Generation: rec.Generation, Role: processors.RoleSource, Partition: p})
	}
}

func (r *Registry) releaseWalk(ctx context.Context, source *store.Container, reader processors.Resource) {
	ctx, cancel := context.WithTimeout(ctx, releaseMax)
	defer cancel()
	_, _ = source.PinSnapshot(ctx, reader.Partition, store.PinSnapshot{Holder: reader.PinHolder(), Release: true}) // else it lapses
}

// keepWalks extends the pins of a generation that is registered now, since no worker may come
// for a while. Its readers extend them too, when they come.
func (r *Registry) keepWalks(ctx context.Context, rec *Record, source *store.ContainerInfo) {
	for i := range rec.Walks {
		w := &rec.Walks[i]
		p := feed.Partition{Container: rec.Source, Number: w.Partition}
		reader := processors.Resource{Pipeline: rec.ID, Generation: rec.Generation, Role: processors.RoleSource, Partition: p}
		ctx, cancel := context.WithTimeout(ctx, releaseMax)
		_, _ = r.pinned(ctx, source, reader.PinHolder(), p, w) // to read is what counts
		cancel()
	}
}

// registered follows the writing of a record: it extends the pins of a new generation, and
// releases those that no generation needs any more.
func (r *Registry) registered(ctx context.Context, was, is *Record, b *Bound) {
	if was.ID != is.ID || was.Generation != is.Generation {
		r.keepWalks(ctx, is, b.Source)
	}
	r.replaced(ctx, was, is)
}

// ReleaseEnded releases the snapshots of readers whose generation is over. The process that
// ended it may have died before it released them.
func (r *Registry) ReleaseEnded(ctx context.Context, readers []processors.Resource, containers []store.ContainerInfo) {
	ctx, cancel := context.WithTimeout(ctx, releaseMax)
	defer cancel()
	for _, reader := range readers {
		at := slices.IndexFunc(containers, func(c store.ContainerInfo) bool {
			return c.ID == reader.Partition.Container && c.State == store.ContainerReady
		})
		if at < 0 || reader.Role != processors.RoleSource {
			continue
		}
		if source, err := r.client.Open(containers[at]); err == nil {
			r.releaseWalk(ctx, source, reader)
		}
	}
}

// replaced releases the snapshots of generations that a record had and the one in its place
// does not have.
func (r *Registry) replaced(ctx context.Context, was, is *Record) {
	for _, g := range was.Generations() {
		if was.ID != is.ID || is.GenerationRecord(g.Generation) == nil {
			r.releaseWalks(ctx, g)
		}
	}
}

// rewoundByItems returns the record of an aggregate or a projection that begins anew with
// all that is there. ok is false for an aggregate that goes on in its generation, from the
// log's beginning.
func (r *Registry) rewoundByItems(ctx context.Context, rec *Record, b *Bound, opts *ApplyOptions) (next Record, ok bool, err error) {
	next = *rec
	if ok, err := r.beginsAnew(ctx, rec, b); err != nil || !ok {
		return next, false, err
	}
	next.succeed(rec, opts)
	next.Generation++
	next.Changed = now()
	return next, true, r.begin(ctx, &next, b, opts)
}

// beginsAnew tells whether an aggregate or a projection that goes back to the beginning begins anew,
// as a generation that Apply makes.
func (r *Registry) beginsAnew(ctx context.Context, rec *Record, b *Bound) (bool, error) {
	if rec.Spec.Kind() == spec.AggregateKind && len(rec.Walks) == 0 {
		// What its partitions have folded they pass over, which costs less than to fold anew.
		_, trimmed, err := r.longLogs(ctx, b.Source)
		return trimmed, err
	}
	return true, nil
}

// walking tells whether a reader of a record is among the items with which it begins.
func (r *Record) walking(b *Bound, at Checkpoints) bool {
	for _, reader := range r.lineage(processors.RoleSource, b.Source, at).read() {
		if r.WalkOf(reader) == nil {
			continue
		}
		cp := at[reader.String()]
		if cp == nil || r.ItemsLeft(reader, cp.Position) > 0 {
			return true
		}
	}
	return false
}

var errWalking = errors.New("it is still reading the items with which it began; wait until that is done, or rewind it to the beginning")
