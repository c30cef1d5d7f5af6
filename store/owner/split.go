package owner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/featurelevel"
)

// A split, step by step. The catalog says that it is wished for; the parent's log says what became of it. What comes before
// the split commit prepares, and may be done again or given up; what comes behind it follows from it, and is done by
// whoever opens the parent, twice if need be.
//
//	catalog   plan: numbers, ranges and log ids of the children              planSplit
//	log       prepare: their first LSN, which is far behind                  prepareSplit
//	          their streams are made; their seeds written, read back and loaded; they follow the log
//	log       the owner answers nobody any more, and appends the split commit, the last   commitSplit
//	logs      genesis of each child                                          endSplit
//	catalog   the children in place of the parent                            endSplit
const (
	// splitRoom is how many LSNs lie between the commit that prepares a split and the first of the children. All LSNs of
	// the parent are below theirs, so the split is given up and prepared anew when half of them are used.
	splitRoom = 1 << 20
	// splitLeft is how many commits of the parent children may lack when it is ended: writers wait for these.
	splitLeft = 16
	// splitRounds is after how many rounds that did not come so near it is ended with more left, of splitLeftMax at most.
	splitRounds, splitLeftMax = 64, 512
	// splitRetry is the time between two tries of a split.
	splitRetry = time.Second
	// formerInterval is the time between two looks whether the log of a partition that was split is needed.
	formerInterval = 5 * time.Second
)

// errSplit ends a term behind the split commit: whoever opens the partition completes the split.
var errSplit = errors.New("the partition was split")

// splitError says that the log of a partition ends with its split.
type splitError struct {
	split *feed.Split
	last  applied
}

func (e *splitError) Error() string {
	return fmt.Sprintf("the partition was split at LSN %d (%s)", e.last.lsn, e.split.ID)
}

// What the record of a split begins with.
const (
	splitPrepared = 'p'
	splitEnded    = 'e'
)

// applySplit keeps what a control transaction says of a split.
func applySplit(b *engine.Batch, c *feed.Control) error {
	switch c.Kind {
	case feed.ControlPrepareSplit:
		return b.PutRecord(recordSplit, nil, append([]byte{splitPrepared}, c.Data...))
	case feed.ControlSplit:
		return b.PutRecord(recordSplit, nil, append([]byte{splitEnded}, c.Data...))
	case feed.ControlAbandonSplit:
		return b.DeleteRecord(recordSplit, nil)
	}
	return nil
}

// splitOf returns the split that a partition's log has prepared, and whether it ends with it; nil if there is none.
func splitOf(s *engine.Snapshot) (split *feed.Split, ended bool, err error) {
	value, ok, err := s.Record(recordSplit, nil)
	if err != nil || !ok || len(value) == 0 {
		return nil, false, err
	}
	split, err = feed.DecodeSplit(value[1:])
	return split, value[0] == splitEnded, err
}

// splitDone returns the split with which a partition's log ends; nil if it goes on.
func splitDone(p *engine.Partition) (*feed.Split, error) {
	s := p.Snapshot()
	defer s.Close()
	split, ended, err := splitOf(s)
	if !ended {
		split = nil
	}
	return split, err
}

// findSplit notes whether a split is prepared, as of what was applied.
func (d *decider) findSplit() {
	split, _, err := splitOf(d.snap)
	if err != nil {
		d.p.engine.Fail(err)
	}
	d.p.splitting.Store(split)
}

// abandonLateSplit gives up a split that is prepared when half of the LSNs up to those of the children are used. It is
// prepared anew, with more room.
func (d *decider) abandonLateSplit() {
	split := d.p.splitting.Load()
	if split == nil || d.draft.lsn+splitRoom/2 < split.First {
		return
	}
	data, err := json.Marshal(map[string]any{"v": 1, "id": split.ID, "why": "the children's first LSN came near"})
	if err != nil {
		return // never
	}
	d.draft.txns = append(d.draft.txns, feed.Transaction{Control: &feed.Control{Kind: feed.ControlAbandonSplit, Data: data}})
	d.draft.bytes += transactionOverhead
	d.p.splitting.Store(nil)
}

var splitHandler = handler{
	read: func(ctx context.Context, p *Partition, r *store.Request) *store.Response {
		if p.planSplit == nil {
			return &store.Response{Err: p.notOwner()}
		}
		return p.planSplit(ctx, r.Split)
	},
}

// planSplit records in the catalog that a partition is to be split.
func (s *Server) planSplit(ctx context.Context, p *Partition, r *store.SplitPartition) *store.Response {
	info := s.containerOf(p.id)
	if info == nil {
		return &store.Response{Err: p.notOwner()}
	}
	if why := s.notSplittable(p); why != "" {
		return &store.Response{Err: store.Refuse(store.StatusConflict, "partition %s cannot be split: %s", p.id, why)}
	}
	at := r.At
	if at == "" {
		var refusal *store.Error
		if at, refusal = p.middle(ctx); refusal != nil {
			return &store.Response{Err: refusal}
		}
	}
	planned, err := s.catalog.PlanSplit(ctx, info.Database, info.Name, p.id.Number, at, r.Dry)
	if refusal, ok := errors.AsType[*store.Error](err); ok {
		return &store.Response{Err: refusal}
	}
	if err != nil {
		return &store.Response{Err: &store.Error{Status: store.StatusUnavailable, RetryAfter: splitRetry, Message: err.Error()}}
	}
	result := &store.SplitResult{Children: planned.Children}
	if !r.Dry {
		result.ID = planned.ID
	}
	return &store.Response{Split: result}
}

// notSplittable says why a partition cannot be split now; "" if it can.
func (s *Server) notSplittable(p *Partition) string {
	shape := p.shape.Load()
	switch level := s.cfg.level.Level(); {
	case level < featurelevel.Splits:
		return fmt.Sprintf("the data has feature level %d, and partitions are split from %d on: millrace upgrade --finish, when no process of an earlier release is left", level, featurelevel.Splits)
	case s.cfg.snapshots == nil:
		return "its children begin with snapshots, and none are taken (store.snapshots.store is off)"
	case !s.cfg.Alone && !s.cfg.Snapshots.Shared(s.cfg.Alone):
		return "its children begin with snapshots, which other stores could not read: set store.snapshots.store to stream or s3"
	case shape != nil && shape.Untrimmable:
		return "its log is about to go on in a new stream; try again when it has"
	case p.closedFor.Load() != nil || p.harm.Load() != nil:
		return "its log is damaged"
	}
	return ""
}

// middle returns a hash that about half of the partition's items lie below.
func (p *Partition) middle(ctx context.Context) (feed.EPK, *store.Error) {
	const sampleMax = 4096
	snap := p.engine.Snapshot()
	defer snap.Close()
	// Each step-th hash. When there are too many, every second of them goes:
	//
	//	4,096 of 4,096 items, then 2,048 of 4,096, 4,096 of 8,192 ...
	var sample []feed.EPK
	items, step := 0, 1
	for key, err := range snap.ItemKeys(engine.Span{}) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return "", &store.Error{Status: store.StatusUnavailable, RetryAfter: splitRetry, Message: fmt.Sprintf("partition %s: look for its middle: %v", p.id, err)}
		}
		if items++; items%step != 0 {
			continue
		}
		sample = append(sample, feed.EPK(key[1:1+store.BoundaryBytes]))
		if len(sample) == sampleMax {
			for i := range sampleMax / 2 {
				sample[i] = sample[2*i+1]
			}
			sample, step = sample[:sampleMax/2], 2*step
		}
	}
	if len(sample) == 0 {
		return "", store.Refuse(store.StatusConflict, "partition %s has no items, so that it has no middle: say where with --at", p.id)
	}
	at := sample[len(sample)/2]
	if at > sample[0] {
		return at, nil
	}
	// One logical partition reaches beyond the middle.
	if next := slices.IndexFunc(sample, func(e feed.EPK) bool { return e > at }); next >= 0 {
		return sample[next], nil
	}
	return "", store.Refuse(store.StatusConflict, "nearly all items of partition %s have one partition key, of hash %s, and a split does not divide these", p.id, at.Hex())
}

// splitLoop splits the partitions of this process for which that is planned, one after the other.
func (s *Server) splitLoop(ctx context.Context) {
	tick := time.NewTicker(splitRetry)
	defer tick.Stop()
	said, looked := map[*Partition]string{}, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.planned:
		case <-tick.C:
		}
		now := map[*Partition]string{}
		for _, p := range s.partitions() {
			info := s.containerOf(p.id)
			if info == nil || info.PlannedOf(p.id.Number) == nil {
				continue
			}
			p.tellSplit("its split begins")
			err := s.split(ctx, p, info, info.PlannedOf(p.id.Number))
			if err == nil || ctx.Err() != nil || errors.Is(err, errStopped) {
				continue
			}
			p.tellSplit("its split is tried again: " + err.Error())
			if now[p] = err.Error(); now[p] != said[p] {
				p.log.Warn("the partition could not be split; trying again", "error", err)
			}
		}
		said = now
		if time.Since(looked) >= formerInterval {
			s.forgetFormer(ctx)
			looked = time.Now()
		}
	}
}

// split brings a split that is planned as far as to the split commit. The term of the partition ends with that.
func (s *Server) split(ctx context.Context, p *Partition, info *store.ContainerInfo, plan *store.PlannedSplit) error {
	if p.closedFor.Load() != nil || s.notSplittable(p) != "" {
		return errStopped
	}
	h := s.enter()
	if h == nil {
		return errStopped
	}
	defer h.users.Done()
	return s.within(ctx, h, func(ctx context.Context) error {
		split, err := p.prepareSplit(ctx, plan)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		heirs := make([]*heir, 0, len(split.Children))
		defer func() {
			for _, h := range heirs {
				h.close()
			}
			s.endHeirs(info.ID, split)
		}()
		s.noteHeirs(info.ID, split, cancel)
		for _, child := range split.Children {
			made, err := s.makeHeir(ctx, h.db, p, info, split, child)
			if err != nil {
				return err
			}
			heirs = append(heirs, made)
		}
		if err := s.tellHeirs(ctx, p, heirs); err != nil {
			return err
		}
		return p.endWith(ctx, split, heirs)
	})
}

// tellSplit notes how far the split of the partition is.
func (p *Partition) tellSplit(says string) { p.splitSays.Store(&says) }

// prepareSplit says in the log how the partition is to be split, unless it says so already.
func (p *Partition) prepareSplit(ctx context.Context, plan *store.PlannedSplit) (*feed.Split, error) {
	if is := p.splitting.Load(); is != nil && is.ID == plan.ID {
		return is, nil
	}
	split := &feed.Split{ID: plan.ID}
	for _, c := range plan.Children {
		split.Children = append(split.Children, feed.Offshoot{Number: c.Number, Range: c.Range, Log: c.Log, Genesis: feed.NewCommitID()})
	}
	var wrong error
	err := p.control(ctx, func(d *decider) *feed.Control {
		if is := p.splitting.Load(); is != nil {
			wrong = fmt.Errorf("its log has prepared split %s, and the catalog plans %s", is.ID, plan.ID)
			return nil
		}
		split.First = d.draft.lsn + splitRoom
		var control *feed.Control
		if control, wrong = split.Control(feed.ControlPrepareSplit); wrong == nil {
			p.splitting.Store(split)
		}
		return control
	})
	if err = errors.Join(wrong, err); err != nil {
		return nil, err
	}
	p.log.Info("the partition is to be split", "split", split.ID, "at", split.Children[1].Range.Min.Hex(), "into", split.Children[0].Number,
		"and", split.Children[1].Number, "first LSN", uint64(split.First))
	return split, nil
}

// control appends the control transaction that make returns, which runs on the decider's goroutine, and waits until it is
// applied. nil appends nothing.
func (p *Partition) control(ctx context.Context, make func(d *decider) *feed.Control) error {
	var lsn feed.LSN
	var generation uint64
	if !p.onDecider(ctx, func(d *decider) {
		d.dropLost()
		v := d.view()
		if control := make(d); control != nil {
			t := newTxn(v, d.draft)
			t.control = control
			d.draft.add(t, nil)
		}
		lsn, generation = d.decided(), d.generation
	}) {
		return errStopped
	}
	return p.waitApplied(ctx, lsn, generation)
}

// endWith brings the heirs near to the end of the log, ends it with the split commit, and brings them to that.
func (p *Partition) endWith(ctx context.Context, split *feed.Split, heirs []*heir) error {
	// Under writes the end runs away: what was written while the heirs were brought to it is what is left.
	for rounds, near := 0, false; !near; rounds++ {
		if p.isClosed() || !p.lease.Valid() {
			return errStopped
		}
		end := p.state.Load().lsn
		for _, h := range heirs {
			if err := h.follow(ctx, end); err != nil {
				return err
			}
		}
		left := p.state.Load().lsn - end
		near = left <= splitLeft || rounds >= splitRounds && left <= splitLeftMax
	}
	// The log is at hand for who asks for the children, so whoever serves them need not wait until this process's right to
	// answer has run out: it answers nobody from here on.
	refusal := &store.Error{Status: store.StatusGone, RetryAfter: handoverPause, Message: fmt.Sprintf("partition %s is being split; nothing was changed", p.id)}
	if !p.closedFor.CompareAndSwap(nil, refusal) {
		return errStopped
	}
	began := time.Now()
	if err := p.commitSplit(ctx, split); err != nil {
		p.closedFor.CompareAndSwap(refusal, nil)
		return err
	}
	end := p.state.Load().lsn
	p.log.Info("the partition was split: its log has ended", "split", split.ID, "lsn", uint64(end), "took", time.Since(began).Round(time.Millisecond))
	for _, h := range heirs {
		if err := h.follow(ctx, end); err != nil {
			return err
		}
	}
	return nil
}

// commitSplit ends the log, which ends the term of the partition.
func (p *Partition) commitSplit(ctx context.Context, split *feed.Split) error {
	var wrong error
	err := p.control(ctx, func(d *decider) *feed.Control {
		if is := p.splitting.Load(); is == nil || is.ID != split.ID {
			wrong = fmt.Errorf("split %s was given up", split.ID)
			return nil
		}
		var control *feed.Control
		if control, wrong = split.Control(feed.ControlSplit); wrong == nil {
			d.draft.ends = errSplit
		}
		return control
	})
	return errors.Join(wrong, err)
}

// endSplit does what follows from the split with which the log of a partition ends: it begins the children's logs, and has
// the catalog name them.
func (s *Server) endSplit(ctx context.Context, p *Partition, split *feed.Split) error {
	began := time.Now()
	info := s.containerOf(p.id)
	state, err := p.engine.State()
	if info == nil || err != nil {
		return err
	}
	former := store.FormerPartition{
		PartitionInfo: store.PartitionInfo{Number: p.id.Number, Log: state.Log, Range: feed.Range{
			Min: split.Children[0].Range.Min, Max: split.Children[len(split.Children)-1].Range.Max,
		}},
		Last: state.Applied, Checksum: state.Sum.String(), First: split.First,
	}
	for i := range split.Children {
		child := &split.Children[i]
		former.Children = append(former.Children, child.Number)
		if err := s.beginChildLog(ctx, p, info, split, child, &state); err != nil {
			return fmt.Errorf("partition %s was split into %s/%d, whose log could not be begun: %w", p.id, info.ID, child.Number, err)
		}
	}
	if _, err := s.catalog.EndSplit(ctx, info.Database, info.Name, split.ID, former); err != nil {
		return err
	}
	p.log.Info("the children of the partition have taken its place", "split", split.ID, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// beginChildLog appends the first commit of a child's log. One that is there already is the same.
func (s *Server) beginChildLog(ctx context.Context, p *Partition, info *store.ContainerInfo, split *feed.Split, child *feed.Offshoot, state *engine.State) error {
	log, err := s.childLog(ctx, info, split, *child)
	if err != nil {
		return err
	}
	defer log.Close()
	parent := &store.Parent{Partition: p.id.String(), Log: state.Log, LSN: state.Applied, Checksum: state.Sum.String(), Range: &child.Range}
	data, err := json.Marshal(parent)
	if err != nil {
		return err
	}
	c := StateCommit(child.Log, state.Sum, state.Time, split.First-1,
		&feed.Control{Kind: store.ControlGenesis, Data: state.Settings}, &feed.Control{Kind: store.ControlParent, Data: data})
	c.ID, c.Owner = child.Genesis, "split"
	_, err = log.Append(ctx, split.First-1, c.ID, feed.AppendCommit(nil, c))
	if !errors.Is(err, feed.ErrFenced) {
		return err
	}
	// Its owner may have written behind the one that is there.
	first, failed := log.Read(ctx, split.First)
	if failed == nil && first.ID == c.ID {
		return nil
	}
	return errors.Join(err, failed)
}
