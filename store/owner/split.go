package owner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
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

// splits sees to the splits of one process, each partition's in a goroutine of its own: one may wait for long until nobody adds
// up the partition's items.
type splits struct {
	s *Server

	mu   sync.Mutex // guards what follows
	busy map[*Partition]bool
	said map[*Partition]string // the error that was logged last
}

// splitLoop splits the partitions of this process for which that is planned.
func (s *Server) splitLoop(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	large := sizeWatch{}
	all := &splits{s: s, busy: map[*Partition]bool{}, said: map[*Partition]string{}}
	tick := time.NewTicker(splitRetry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.planned:
		case <-tick.C:
		}
		for _, p := range s.partitions() {
			if info := s.containerOf(p.id); info != nil && (info.PlannedOf(p.id.Number) != nil || p.splitting() != nil) && all.begin(p) {
				work.Go(func() { all.end(ctx, p, s.seeToSplit(ctx, p, info)) })
			}
		}
		s.splitBySize(ctx, &large)
	}
}

// begin says whether nobody sees to the split of a partition yet, and that somebody does from now on.
func (all *splits) begin(p *Partition) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.busy[p] {
		return false
	}
	all.busy[p] = true
	return true
}

// end tells what came of it, once for each text.
func (all *splits) end(ctx context.Context, p *Partition, err error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.busy, p)
	if err == nil || ctx.Err() != nil || errors.Is(err, errStopped) {
		delete(all.said, p)
		return
	}
	p.tellSplit("its split is tried again: " + err.Error())
	if all.said[p] != err.Error() {
		all.said[p] = err.Error()
		p.log.Warn("the partition could not be split; trying again", "error", err)
	}
}

// seeToSplit brings a split that is planned, or prepared, to its end, whichever.
func (s *Server) seeToSplit(ctx context.Context, p *Partition, info *store.ContainerInfo) error {
	plan := info.PlannedOf(p.id.Number)
	switch why := s.notSplittable(p); {
	case plan == nil:
		return s.abandonUnplanned(ctx, p, info)
	case p.gaveUp(plan.ID):
		return s.dropPlan(ctx, p, info, plan)
	case why != "":
		p.tellSplit("its split waits: " + why)
		return errStopped
	}
	p.tellSplit("its split begins")
	return s.split(ctx, p, info, plan)
}

// abandonUnplanned gives up a split that is prepared and that the catalog does not plan: the container was restored from a
// backup, or the record from an earlier state.
func (s *Server) abandonUnplanned(ctx context.Context, p *Partition, info *store.ContainerInfo) error {
	under := p.splitting()
	if under == nil {
		return nil
	}
	planned := func(i *store.ContainerInfo) bool {
		plan := i.PlannedOf(p.id.Number)
		return i.ID != info.ID || plan != nil && plan.ID == under.ID
	}
	now, err := s.catalog.Newest(ctx, info.Database, info.Name)
	if err == nil && !planned(&now) {
		now, err = s.catalog.Confirm(ctx, info.Database, info.Name) // a leader that was cut off shows what was before
	}
	if err != nil || planned(&now) {
		return err
	}
	var wrong error
	err = p.settle(ctx, func(d *decider) {
		if is := d.split.split; is != nil && is.ID == under.ID && d.draft.ends == nil {
			wrong = d.abandon(under.ID, "the catalog does not plan it")
		}
	})
	return errors.Join(wrong, err)
}

// split brings a split that is planned to its end. The term of the partition ends with the split commit.
func (s *Server) split(ctx context.Context, p *Partition, info *store.ContainerInfo, plan *store.PlannedSplit) error {
	if err := s.awaitWalks(ctx, p, nil); err != nil { // first: while a split is prepared the log is not trimmed
		return err
	}
	h := s.enter()
	if h == nil {
		return errStopped
	}
	defer h.users.Done()
	return s.within(ctx, h, func(ctx context.Context) error {
		split, err := p.prepareSplit(ctx, plan)
		if err == nil {
			err = s.splitInto(ctx, h.db, p, info, split)
		}
		if err != nil {
			return err
		}
		// Here, too, and not only by who opens the partition: writers wait, and the end of the term takes its time.
		return s.endSplit(ctx, p, split)
	})
}

// splitInto makes the children ready, and ends the partition's log.
func (s *Server) splitInto(ctx context.Context, db *engine.DB, p *Partition, info *store.ContainerInfo, split *feed.Split) error {
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
	end, err := s.takeCopyTurn(ctx)
	if err != nil {
		return err
	}
	defer end()
	for _, child := range split.Children {
		made, err := s.makeHeir(ctx, db, p, info, split, child)
		if err != nil {
			return err
		}
		heirs = append(heirs, made)
	}
	end()
	if err := s.tellHeirs(ctx, p, heirs); err != nil {
		return err
	}
	if err := s.awaitWalks(ctx, p, heirs); err != nil {
		return err
	}
	return p.endWith(ctx, split, heirs)
}

// tellSplit notes how far the split of the partition is.
func (p *Partition) tellSplit(says string) { p.splitSays.Store(&says) }

// prepareSplit says in the log how the partition is to be split, unless it says so already.
func (p *Partition) prepareSplit(ctx context.Context, plan *store.PlannedSplit) (*feed.Split, error) {
	if is := p.splitting(); is != nil && is.ID == plan.ID {
		return is, nil
	}
	split := &feed.Split{ID: plan.ID}
	for _, c := range plan.Children {
		split.Children = append(split.Children, feed.Offshoot{Number: c.Number, Range: c.Range, Log: c.Log, Genesis: feed.NewCommitID()})
	}
	var wrong error
	err := p.control(ctx, func(d *decider) *feed.Control {
		if given := d.split.abandoned; given != nil && given.ID == plan.ID {
			wrong = errStopped
			return nil
		}
		if is := d.split.split; is != nil {
			wrong = fmt.Errorf("its log has prepared split %s, and the catalog plans %s", is.ID, plan.ID)
			return nil
		}
		split.First = d.draft.lsn + splitRoom
		var control *feed.Control
		if control, wrong = split.Control(feed.ControlPrepareSplit); wrong == nil {
			d.split = splitRecord{split: split}
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
			if p.isClosed() || !p.lease.Valid() || len(heirs) > 0 && p.splitting() == nil || s.unplanned(p) {
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

// unplanned says whether the catalog plans no split of a partition.
func (s *Server) unplanned(p *Partition) bool {
	info := s.containerOf(p.id)
	return info == nil || info.PlannedOf(p.id.Number) == nil
}

// takeCopyTurn waits until nobody else of this process copies a partition, for a split or for a snapshot.
func (s *Server) takeCopyTurn(ctx context.Context) (end func(), err error) {
	select {
	case s.copying <- struct{}{}:
		return sync.OnceFunc(func() { <-s.copying }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
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
		if is := d.split.split; is == nil || is.ID != split.ID {
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
