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
	"github.com/millrace/millrace/store/pace"
	"github.com/millrace/millrace/store/snapshot"
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
	// the parent are below theirs, so the split is given up when half of them are used: at 2,000 commits a second after nine
	// hours.
	splitRoom = 1 << 27
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
	if r.Cancel {
		return s.cancelSplit(ctx, p, info)
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

// cancelSplit gives up the split that is planned of a partition, or under way. The log says so first: then no owner, however
// late, goes on with it.
func (s *Server) cancelSplit(ctx context.Context, p *Partition, info *store.ContainerInfo) *store.Response {
	plan := info.PlannedOf(p.id.Number)
	if plan == nil {
		return &store.Response{Err: store.Refuse(store.StatusConflict, "no split of partition %s is planned", p.id)}
	}
	var wrong error
	err := p.settle(ctx, func(d *decider) {
		if d.draft.ends != nil {
			wrong = errStopped // too late
			return
		}
		wrong = d.abandon(plan.ID, "it was cancelled")
	})
	if err == nil {
		err = wrong
	}
	if err == nil {
		err = s.dropPlan(ctx, p, info, plan)
	}
	if err != nil {
		return &store.Response{Err: &store.Error{Status: store.StatusUnavailable, RetryAfter: splitRetry, Message: fmt.Sprintf("split %s: %v", plan.ID, err)}}
	}
	return &store.Response{Split: &store.SplitResult{ID: plan.ID, Children: plan.Children}}
}

// dropPlan has the catalog forget a split that was given up, and drops what was made for it.
func (s *Server) dropPlan(ctx context.Context, p *Partition, info *store.ContainerInfo, plan *store.PlannedSplit) error {
	for _, child := range plan.Children {
		if err := s.awaitHeir(ctx, feed.Partition{Container: info.ID, Number: child.Number}); err != nil {
			return err
		}
		if err := s.dropSnapshots(ctx, feed.Partition{Container: info.ID, Number: child.Number}); err != nil {
			return err
		}
	}
	if err := s.catalog.AbandonSplit(ctx, info.Database, info.Name, plan.ID); err != nil {
		return err
	}
	p.log.Info("the split was given up", "split", plan.ID)
	p.splitSays.Store(nil)
	return nil
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
			err := s.goOnWithSplit(ctx, p, info, info.PlannedOf(p.id.Number))
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

// goOnWithSplit brings a split that is planned to its end, whichever.
func (s *Server) goOnWithSplit(ctx context.Context, p *Partition, info *store.ContainerInfo, plan *store.PlannedSplit) error {
	if given := p.abandoned.Load(); given != nil && given.ID == plan.ID {
		return s.dropPlan(ctx, p, info, plan)
	}
	p.tellSplit("its split begins")
	return s.split(ctx, p, info, plan)
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
		defer context.AfterFunc(p.lease.Trust(), cancel)() //nolint:contextcheck // who owns the partition then makes them ready
		if !s.noteHeirs(info.ID, split, cancel) {
			return errStopped
		}
		heirs := make([]*heir, 0, len(split.Children))
		defer func() {
			for _, h := range heirs {
				h.close()
			}
			s.endHeirs(info.ID, split)
		}()
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
		if err := s.awaitWalks(ctx, p, heirs); err != nil {
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
		if given := p.abandoned.Load(); given != nil && given.ID == plan.ID {
			wrong = errStopped
			return nil
		}
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

// awaitWalks waits until nobody adds up the items of the partition, and keeps the heirs near to the end of its log. Whoever
// begins behind that, before the log has ended, finds his snapshot gone with the partition, and begins anew in the children.
func (s *Server) awaitWalks(ctx context.Context, p *Partition, heirs []*heir) error {
	said := ""
	for {
		why, err := s.walks(ctx, p)
		if err != nil || why == "" {
			return err
		}
		if why != said {
			said = why
			p.tellSplit("it is being split, and waits: " + why)
			p.log.Info("the split waits", "for", why)
		}
		for range walkLooks {
			if err := pace.Pause(ctx, splitRetry); err != nil {
				return err
			}
			if p.isClosed() || !p.lease.Valid() || p.splitting.Load() == nil {
				return errStopped
			}
			for _, h := range heirs {
				if err := h.follow(ctx, p.state.Load().lsn); err != nil {
					return err
				}
			}
			s.noteReady(heirs)
		}
	}
}

// walkLooks is how many seconds lie between two looks at who adds up items.
const walkLooks = 2

// walks says who adds up the items of a partition; "" if nobody does.
func (s *Server) walks(ctx context.Context, p *Partition) (why string, err error) {
	pins, err := snapshot.Pins(ctx, s.cfg.snapshots, p.id)
	if err != nil {
		return "", err
	}
	for i := range pins {
		if pins[i].Lasts(time.Now()) {
			return pins[i].Holder + " reads a snapshot of its items", nil
		}
	}
	if s.cfg.Holds == nil {
		return "", nil
	}
	holds, barred, err := s.cfg.Holds(ctx)
	if err != nil || barred != "" {
		return barred, err
	}
	for _, h := range holds[p.id] {
		if h.Walks {
			return h.Reader + " begins with its items", nil
		}
	}
	return "", nil
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
	if sent, err := p.commitSplit(ctx, split); err != nil {
		// Where it may be in the log, the term is over, and the next owner knows.
		if !sent {
			p.closedFor.CompareAndSwap(refusal, nil)
		}
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

// commitSplit ends the log, which ends the term of the partition. After an error, sent says that the commit may be in the
// log nevertheless, or may come there.
func (p *Partition) commitSplit(ctx context.Context, split *feed.Split) (sent bool, err error) {
	var wrong error
	err = p.control(ctx, func(d *decider) *feed.Control {
		if is := p.splitting.Load(); is == nil || is.ID != split.ID {
			wrong = fmt.Errorf("split %s was given up", split.ID)
			return nil
		}
		var control *feed.Control
		if control, wrong = split.Control(feed.ControlSplit); wrong == nil {
			d.draft.ends = errSplit
			sent = true
		}
		return control
	})
	return sent && !errors.Is(err, errNotAppended), errors.Join(wrong, err)
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
	if _, trimmed := errors.AsType[*feed.TrimmedError](failed); trimmed || failed == nil && first.ID == c.ID {
		return nil
	}
	return errors.Join(err, failed)
}
