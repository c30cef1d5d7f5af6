package owner

import (
	"context"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// Partitions are split by size by who owns them, if Config.SplitBytes says so: what a partition holds is what the newest
// snapshot of its own log says. So a child has none until it has a snapshot that is not its seed, and is not split before.
const (
	// splitBytesMin is the least Config.SplitBytes: how much a log grows before a snapshot is taken, by default.
	splitBytesMin = 64 << 20
	// sizePause is after how long a partition is looked at again that was not split, or whose split was cancelled, unless it
	// has grown by half before: its middle is looked for in all that it holds.
	sizePause = time.Hour
	// sizeRetry is after how long it is tried again where the catalog did not answer.
	sizeRetry = time.Minute
	// sizeLessMin is which part of the items the smaller child must get: a partition key that has more than the rest is
	// split off, one that has nearly all would leave a partition as large as before and another log.
	sizeLessMin = 0.1
)

// sizeWatch is what splitLoop, whose it is, remembers of the partitions that hold SplitBytes. The zero value is ready.
type sizeWatch struct {
	looks   map[feed.Partition]sizeLook // of those that this process owns
	planned feed.Partition              // upper child of the last split; its number is used when the catalog has told of that
}

// sizeLook is the last try to split a partition by its size.
type sizeLook struct {
	held uint64
	next time.Time // the zero value: it was not tried yet
	said string    // why it was not split
}

// due tells whether a partition that holds so much is to be tried.
func (l *sizeLook) due(held uint64, now time.Time) bool {
	return !now.Before(l.next) || held >= l.held+l.held/2
}

// splitBySize plans the split of the largest partition of this process that is due, unless a split is under way here.
func (s *Server) splitBySize(ctx context.Context, w *sizeWatch) {
	if s.cfg.SplitBytes == 0 {
		return
	}
	if info := s.containerOf(w.planned); info != nil && info.NextPartition <= w.planned.Number {
		return // the watch has not shown the last split yet
	}
	var largest *Partition
	looks, most := map[feed.Partition]sizeLook{}, uint64(0)
	for _, p := range s.partitions() {
		look, tried := w.looks[p.id]
		if tried {
			looks[p.id] = look
		}
		info, copied := s.containerOf(p.id), p.copied.Load()
		if info != nil && info.PlannedOf(p.id.Number) != nil {
			return
		}
		if info == nil || copied == nil || copied.Bytes < uint64(s.cfg.SplitBytes) || copied.Bytes <= most {
			continue
		}
		if len(info.Splits) == 0 && p.whole() && look.due(copied.Bytes, time.Now()) {
			largest, most = p, copied.Bytes
		}
	}
	w.looks = looks
	if largest == nil {
		return
	}
	p, said := largest, looks[largest.id].said
	next := sizeLook{held: most, next: time.Now().Add(sizePause), said: said}
	switch child, refusal := s.splitLarge(ctx, p, most); {
	case ctx.Err() != nil:
		return
	case refusal == nil:
		w.planned = child
	case refusal.RetryAfter > 0:
		next.next = time.Now().Add(sizeRetry)
		p.log.Debug("whether the partition is to be split for its size could not be found out", "error", refusal.Message)
	case refusal.Message != said:
		next.said = refusal.Message
		p.log.Warn("the partition holds as much as store.splitBytes says, and is not split", "bytes", most, "error", refusal.Message)
	}
	looks[p.id] = next
}

// whole says that nothing is wrong with a partition, as far as this process knows.
func (p *Partition) whole() bool {
	return p.closedFor.Load() == nil && p.harm.Load() == nil && p.trouble.Load() == nil && !p.readOnly.Load() && !p.isClosed() && p.lease.Valid()
}

// splitLarge plans the split of a partition that holds so much, and returns the upper child. A refusal with RetryAfter passes.
func (s *Server) splitLarge(ctx context.Context, p *Partition, held uint64) (child feed.Partition, refusal *store.Error) {
	later := func(err error) (feed.Partition, *store.Error) {
		return feed.Partition{}, &store.Error{Status: store.StatusUnavailable, RetryAfter: splitRetry, Message: err.Error()}
	}
	h := s.enter()
	if h == nil {
		return later(errStopped)
	}
	defer h.users.Done()
	err := s.within(ctx, h, func(ctx context.Context) error {
		known := s.containerOf(p.id)
		if known == nil {
			return errStopped
		}
		// The catalog itself, because what this process has seen of it may be older than a split that another one planned. Two
		// may still plan theirs at the same moment, which does no harm.
		info, err := s.catalog.Get(ctx, known.Database, known.Name)
		if err != nil {
			return err
		}
		if info.ID != p.id.Container || len(info.Splits) > 0 {
			return errStopped
		}
		child, refusal = s.planLarge(ctx, p, &info, held)
		return nil
	})
	if err != nil {
		return later(err)
	}
	return child, refusal
}

// planLarge plans the split of a partition of a container of which none is planned, and returns the upper child.
func (s *Server) planLarge(ctx context.Context, p *Partition, info *store.ContainerInfo, held uint64) (child feed.Partition, refusal *store.Error) {
	// What is cheap to find out comes before the middle.
	if n := len(info.Partitions); n >= store.PartitionsMax {
		return child, store.Refuse(store.StatusConflict, "its container has %d partitions, and %d is the most", n, store.PartitionsMax)
	}
	if why := s.notSplittable(p); why != "" {
		return child, store.Refuse(store.StatusConflict, "%s", why)
	}
	at, less, refusal := p.middle(ctx)
	if refusal != nil {
		return child, refusal
	}
	if less < sizeLessMin {
		// The same words each time, so that they are said once.
		return child, store.Refuse(store.StatusConflict, "one partition key has nearly all of its items, and a split does not divide these: "+
			"the smaller part would have less than %.0f %%; millrace split divides it all the same", 100*sizeLessMin)
	}
	resp := s.planSplit(ctx, p, &store.SplitPartition{At: at})
	if resp.Err != nil {
		return child, resp.Err
	}
	p.log.Info("the partition is split for its size", "split", resp.Split.ID, "bytes", held, "from", s.cfg.SplitBytes)
	return feed.Partition{Container: p.id.Container, Number: resp.Split.Children[1].Number}, nil
}
