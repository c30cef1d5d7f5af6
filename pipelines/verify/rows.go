package verify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store"
)

// rowCheck compares the rows in a projection's sink with those that its items have.
//
// For each source item and table there is a sum of digests: of the rows, and the
// rejects, that the item must have, less those that are there. Histories of the
// source's partitions tell what must be as of a place that the pipeline has passed,
// with all that it wrote up to there made durable. Then the sink is read, which need
// not be one view: what it shows of an item is as it was at that place, or at a
// later one up to the end of the log when the reading is done. So a sum is right if
// it comes to nothing with the changes up to any such place.
//
// Items of which the sum comes to nothing nowhere are looked at one by one
// (rowJudge). So a row that is held back by a claim, or mixed of two versions
// because a sink of containers is not read at once, costs time, and is no alarm.
type rowCheck struct {
	// Set once by newRowCheck.
	run    *verification
	p      *Verified
	reader project.Reader
	keeps  bool // the sink keeps rejects
	claims bool // the sink tells of claims

	// Guarded by mu while items scans the sources, a goroutine for each; before and
	// after that they are the caller's of compareSlice alone, as what follows.
	mu      sync.Mutex
	partial map[feed.Partition]bool // whose log has lost what it would take to replay it
	lost    bool                    // some log does not tell of all expired items whose rows stay
	slices  SliceQueue
	sums    map[uint64]uint64
	unasked map[uint64]uint64 // of items that need not have rows: what they would be

	// Owned by the caller of compareSlice, anew for each slice. A source is its
	// goroutine's while items runs.
	sources []*history
	flight  map[uint64][]uint64    // what later changes make of sums, one after the other
	unknown map[uint64]unknownRows // rows that no item must have
	rows    int                    // of the sink

	// Owned by whoever reads the sink: subtractSink, then examined.
	looked  int       // rows and rejects that were read of the sink
	reading time.Time // when the reading of the table at hand began

	reason string // why some rows could not be compared
	grown  bool   // rows may be of before their table gained columns
}

// unknownRows are rows of one source in one table.
type unknownRows struct {
	source string
	rows   int
}

// What a sum takes in memory, about, and what the source of unknown rows does.
const (
	sumBytes     = 48
	unknownBytes = 160
)

// newRowCheck begins to verify a projection, whose sink must be a Reader. What a
// Forgetful one does not keep is not asked of it.
func newRowCheck(run *verification, p *Verified) (*rowCheck, error) {
	reader, ok := p.Projection.Sink().(project.Reader)
	if !ok {
		return nil, fmt.Errorf("its sink cannot be read: %T", p.Projection.Sink())
	}
	c := &rowCheck{run: run, p: p, reader: reader, keeps: true, claims: true, slices: NewSliceQueue(), partial: map[feed.Partition]bool{}}
	if f, ok := p.Projection.Sink().(project.Forgetful); ok {
		c.keeps, c.claims = f.Keeps()
	}
	return c, nil
}

// verifyRows verifies a projection.
func (run *verification) verifyRows(ctx context.Context, p *Verified) error {
	if p.Record.Shadow {
		run.notJudged(p, "its rows are being built beside those that are read")
		return nil
	}
	if full, err := run.awaitBackfill(ctx, p); err != nil || !full {
		return err
	}
	c, err := newRowCheck(run, p)
	if err != nil {
		return err
	}
	for c.reason == "" && c.slices.Next() {
		if err := c.compareSlice(ctx); err != nil {
			return err
		}
	}
	if c.reason != "" {
		run.notJudged(p, c.reason)
		return nil
	}
	run.sayUnjudged(p, c.lost, c.grown)
	return nil
}

// compareSlice compares the rows of one slice.
func (c *rowCheck) compareSlice(ctx context.Context) error {
	c.sums, c.unasked = map[uint64]uint64{}, map[uint64]uint64{}
	c.flight, c.unknown, c.rows = map[uint64][]uint64{}, map[uint64]unknownRows{}, 0
	defer func() {
		for _, h := range c.sources {
			h.close()
		}
	}()
	// The order of the readings is what makes a sum exact:
	//
	//	items   what must be there at the place high of each source log
	//	wait    until checkpoints have passed high: what they passed is durable
	//	log     from high to the checkpoints: the sums are as of these now
	//	sink    what is there, each row as of some time after the checkpoints
	//	log     from there to its end: all that the sink can have shown already
	//
	// Were the sink read before the wait, rows that the pipeline had not written yet
	// would be missing; without the second reading of the log, rows of changes
	// behind the checkpoints would be too many.
	if err := c.addItems(ctx); err != nil {
		return err
	}
	// high differs from partition to partition: each history was complete at a
	// moment of its own, and no cut through all of them is needed, because the
	// rows of an item come from its own partition alone.
	goals := map[feed.Partition]feed.LSN{}
	for _, h := range c.sources {
		goals[h.partition] = h.high
	}
	at, reason, err := c.run.awaitSources(ctx, c.p, goals)
	if err == nil && reason == "" {
		reason, err = c.elsewhere(ctx, at)
	}
	// A reason is no error: the pipeline is behind as a whole, and nothing can
	// be said of single rows.
	if c.reason = reason; err != nil || reason != "" {
		return err
	}
	if err := c.followTo(ctx, func(h *history) (feed.LSN, error) {
		return at.Of(&c.p.Record, processors.RoleSource, h.partition).Position.LSN, nil
	}, c.addChange); err != nil {
		return err
	}
	if err := c.subtractSink(ctx); err != nil {
		return err
	}
	if err := c.followTo(ctx, func(h *history) (feed.LSN, error) { return h.logEnd(ctx) }, c.noteInFlight); err != nil {
		return err
	}
	// Only from here on do items cost anything one by one: in a healthy
	// projection the sums come to nothing, and no row was kept in memory.
	suspects := c.suspects()
	if len(suspects) == 0 {
		c.run.countEqual(c.p, c.rows)
		return nil
	}
	return c.judgeItems(ctx, suspects)
}

// addItems takes the rows of all items, each partition up to the LSN at which its
// history is complete.
func (c *rowCheck) addItems(ctx context.Context) error {
	c.sources = nil
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(c.run.cfg.PartitionsMax)
	for _, partition := range c.p.Source.Partitions() {
		h := c.run.history(c.p.Source, partition)
		c.sources = append(c.sources, h)
		g.Go(func() error {
			if err := c.addPages(ctx, h); err != nil {
				return err
			}
			return h.follow(ctx, h.high, func(e *event) error {
				err := c.addChange(h, e)
				// A change can add sums as a page does, so the bound is kept here too.
				c.mu.Lock()
				c.limitLocked()
				c.mu.Unlock()
				return err
			})
		})
	}
	return g.Wait()
}

// addPages takes the rows of what the pages of a source partition hold.
func (c *rowCheck) addPages(ctx context.Context, h *history) error {
	from := c.p.beganAt(h.partition)
	// Pages leave out items whose time to live has passed, while their rows are
	// there until the log tells that they went. Only the log knows both. Where it has
	// lost its beginning, pages tell of the items that are there; rows of others are
	// suspects, of which the rest of the log may tell (rowReplay).
	if h.replays() {
		if err := h.replay(ctx, from.LSN); !errors.Is(err, errForgotten) {
			return err
		}
		if err := c.addExpired(ctx, h.partition); err != nil {
			return err
		}
	}
	return h.scan(ctx, c.run.cfg.PageItems, func(items []store.Item) error {
		page := newRowSums(c.p.Projection, c.keeps)
		for i := range items {
			// A pipeline that began with --from-now has not written what was last
			// changed before: such rows may be there, from an earlier generation, or
			// not. Either is right until the item changes.
			page.unasked = !from.Before(feed.Position(items[i].ETag))
			page.item(items[i].Key, items[i].ID, items[i].Body, 1)
		}
		c.run.countRead(c.p, len(items))
		c.addPage(page)
		return nil
	}, func(e *event) error { return c.addChange(h, e) })
}

// addExpired takes the rows that stay of items that have expired, as far as the log of a
// partition tells that has lost its beginning.
func (c *rowCheck) addExpired(ctx context.Context, partition feed.Partition) error {
	c.mu.Lock()
	c.partial[partition] = true
	c.mu.Unlock()
	if c.p.dropsExpired() {
		return nil
	}
	h := c.run.history(c.p.Source, partition)
	defer h.close()
	first, last, err := h.replayAll(ctx)
	if err != nil {
		return err
	}
	// A generation that began with the items of a snapshot has rows of those, and of what came
	// since. So a log that reaches back to there tells of all that have expired.
	if walk := c.p.walkOf(partition); walk == nil || first > walk.LSN+1 {
		c.mu.Lock()
		c.lost = true
		c.mu.Unlock()
	}
	return h.follow(ctx, last, func(e *event) error {
		if !c.p.leavesRows(partition, e) {
			return nil
		}
		before, err := e.BeforeBody()
		if err != nil {
			return err
		}
		kept := newRowSums(c.p.Projection, c.keeps)
		kept.item(e.Key, e.ID, before, 1)
		c.addPage(kept)
		return nil
	})
}

// followTo shows the changes of each source up to an LSN.
func (c *rowCheck) followTo(ctx context.Context, to func(*history) (feed.LSN, error), visit func(*history, *event) error) error {
	for _, h := range c.sources {
		lsn, err := to(h)
		if err != nil {
			return err
		}
		if err := h.follow(ctx, lsn, func(e *event) error { return visit(h, e) }); err != nil {
			return err
		}
	}
	return nil
}

// addPage adds the rows of a page to the sums.
func (c *rowCheck) addPage(page *rowSums) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range page.sums {
		if !c.slices.Now.Has(s.name) {
			continue
		}
		c.sums[s.name] += s.digest
		if s.unasked {
			c.unasked[s.name] += s.digest
		}
	}
	c.limitLocked()
}

// limitLocked leaves half of the sums for later while there are too many.
func (c *rowCheck) limitLocked() {
	// To halve is cheap now and paid for later: the other half is a pass of its own
	// over items and sink. At 48 bytes a sum, the default of 256 MiB holds five
	// million items of one table before that.
	for len(c.sums)*sumBytes > c.run.cfg.BytesMax && c.slices.Halve() {
		for name := range c.sums {
			if !c.slices.Now.Has(name) {
				delete(c.sums, name)
				delete(c.unasked, name)
			}
		}
	}
}

// addChange adds what a change means to the sums.
func (c *rowCheck) addChange(h *history, e *event) error {
	sums, err := c.changed(h, e)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range sums {
		if c.slices.Now.Has(s.name) {
			c.sums[s.name] += s.digest
			// The pipeline has seen the item change, so from now on it must have rows.
			delete(c.unasked, s.name)
		}
	}
	return nil
}

// noteInFlight notes what a change means that may or may not be in the sink.
func (c *rowCheck) noteInFlight(h *history, e *event) error {
	sums, err := c.changed(h, e)
	if err != nil {
		return err
	}
	for _, s := range sums {
		if !c.slices.Now.Has(s.name) {
			continue
		}
		// Sums after each later change, not the changes: the sink may show the item
		// after any number of them, but always after the first n, in order.
		//
		//	sum -5, later changes +2, +3  ->  flight 2, 5; -5 + 5 = 0: explained
		all, last := c.flight[s.name], uint64(0)
		if n := len(all); n > 0 {
			last = all[n-1]
		}
		c.flight[s.name] = append(all, last+s.digest)
	}
	return nil
}

// changed returns what a change makes of sums, each named once.
func (c *rowCheck) changed(h *history, e *event) ([]rowSum, error) {
	if c.p.leavesRows(h.partition, e) {
		return nil, nil
	}
	before, err := e.BeforeBody()
	if err != nil {
		return nil, err
	}
	sums := newRowSums(c.p.Projection, c.keeps)
	sums.item(e.Key, e.ID, before, -1)
	sums.item(e.Key, e.ID, e.After, 1)
	return sums.joined(), nil
}

// beganAt returns behind which position of a source partition all changes are in the rows. Where a
// backfill went through all items since, and none has expired, that is the beginning.
func (p *Verified) beganAt(partition feed.Partition) feed.Position {
	r := &p.Record
	if r.Backfills > 0 && r.BackfillScope == (registry.BackfillScope{}) && p.Source.Info().Spec.TTL == 0 {
		return feed.Position{}
	}
	return r.RowsBegin(partition.Number)
}

// dropsExpired says whether the rows of expired items go.
func (p *Verified) dropsExpired() bool { return p.Record.Spec.Project.OnExpire == spec.DeleteRows }

// leavesRows says whether a change is an expiry that rows survive.
func (p *Verified) leavesRows(partition feed.Partition, e *event) bool {
	if e.Op != feed.OpExpire || p.dropsExpired() {
		return false
	}
	// A generation that began with the items of a snapshot has never seen those that
	// had expired before, and so has no rows of them.
	walk := p.walkOf(partition)
	return walk == nil || e.at.LSN > walk.LSN
}

// walkOf returns with which items of a partition the generation began, nil if with its log.
func (p *Verified) walkOf(partition feed.Partition) *registry.Walk {
	return p.Record.WalkOf(processors.Resource{Role: processors.RoleSource, Partition: partition})
}
