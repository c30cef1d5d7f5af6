package owner

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/snapshot"
)

// A log may continue another one: a restored log does. It begins behind the last LSN that was
// restored, with a genesis that names the other log and that LSN. Control transactions bring the
// engine's entries as of there:
//
//	LSN n+1   genesis, parent (log, n, checksum)
//	LSN n+2   state: entries
//	   ...
//	LSN n+k   state: the last entries
//	LSN n+k+1 the owner's takeover
//
// So the state stays a function of the log (I3), wherever it is replayed, and no process
// needs anything but its log. Once there is a snapshot, such a log is trimmed like any other.

// continued returns the first commit of a log that continues another one and of which nothing
// was trimmed; nil for any other log.
func (p *Partition) continued(ctx context.Context, shape *feed.Shape) (*feed.Commit, error) {
	if shape.Begin() == 1 || shape.First > shape.Begin() {
		return nil, nil
	}
	c, err := p.feed.Read(ctx, shape.First)
	if err != nil {
		return nil, fmt.Errorf("partition %s: %w", p.id, err)
	}
	if !Begins(c) {
		return nil, nil
	}
	return c, nil
}

// applyState adds entries of the state that the log continues.
func (a *applier) applyState(block []byte) error {
	if err := a.p.LoadMore(snapshot.BlockEntries(block)); err != nil {
		return fmt.Errorf("state of the log that this one goes on from: %w", err)
	}
	// Both caches were filled from the engine before it had these entries.
	var err error
	a.stones = nil
	a.finished, err = loadFinished(a.p)
	return err
}

// beginContinued makes the applier of a log that continues another one and so needs no
// snapshot; nil for any other log.
func (p *Partition) beginContinued(ctx context.Context, shape *feed.Shape) (*applier, error) {
	c, err := p.continued(ctx, shape)
	if c == nil {
		return nil, err
	}
	// All of the state is in the log. What the engine has belongs to something else.
	p.tellUnfit()
	if err := p.engine.Clear(); err != nil {
		return nil, fmt.Errorf("partition %s: clear: %w", p.id, err)
	}
	a := &applier{p: p.engine, log: p.log, last: applied{lsn: c.LSN - 1, sum: c.Prev, time: c.Time}}
	return a, p.checkWhole(a, shape)
}

// ParentOf returns the parent of a log whose first commit is c; false if c is not the genesis
// of a log that continues another one.
func ParentOf(c *feed.Commit) (parent store.Parent, ok bool) {
	if len(c.Transactions) != 2 {
		return parent, false
	}
	first, second := c.Transactions[0].Control, c.Transactions[1].Control
	if first == nil || second == nil || first.Kind != store.ControlGenesis || second.Kind != store.ControlParent {
		return parent, false
	}
	return parent, json.Unmarshal(second.Data, &parent) == nil
}

// Begins reports whether c is the first commit of a log, so that the state can be built from
// the log alone. No other commit can be applied to an empty engine.
func Begins(c *feed.Commit) bool {
	if c.LSN == 1 {
		return len(c.Transactions) > 0 && c.Transactions[0].Control != nil && c.Transactions[0].Control.Kind == store.ControlGenesis
	}
	_, ok := ParentOf(c)
	return ok && c.Trimmed == c.LSN-1
}

// Continue returns the first commit of a log that continues a partition's state.
func Continue(id feed.LogID, state *engine.State, parent *store.Parent) (*feed.Commit, error) {
	data, err := json.Marshal(parent)
	if err != nil {
		return nil, err
	}
	c := StateCommit(id, state.Sum, state.Time, state.Applied,
		&feed.Control{Kind: store.ControlGenesis, Data: state.Settings}, &feed.Control{Kind: store.ControlParent, Data: data})
	return c, nil
}

// StateCommit returns a commit of control transactions behind one with the checksum prev, in
// a log that goes on from the LSN trimmed.
func StateCommit(id feed.LogID, prev feed.Checksum, time int64, trimmed feed.LSN, controls ...*feed.Control) *feed.Commit {
	c := &feed.Commit{ID: feed.NewCommitID(), Log: id, Prev: prev, Time: time, Owner: "restore", Trimmed: trimmed}
	for _, control := range controls {
		c.Transactions = append(c.Transactions, feed.Transaction{Control: control})
	}
	return c
}

// Replayer builds a partition's state from commits, in an engine that nobody serves. One
// goroutine uses it.
type Replayer struct {
	a *applier
}

// NewReplayer returns a Replayer that continues from what the engine holds.
func NewReplayer(p *engine.Partition, log *slog.Logger) (*Replayer, error) {
	state, err := p.State()
	if err != nil {
		return nil, err
	}
	a := &applier{p: p, log: log}
	if state.Applied > 0 {
		if a.schema, err = compileSettings(state.Settings); err != nil {
			return nil, err
		}
		a.last = applied{lsn: state.Applied, sum: state.Sum, time: state.Time}
	}
	return &Replayer{a}, nil
}

// Apply applies the commit behind the last one.
func (r *Replayer) Apply(c *feed.Commit) error {
	if r.a.last.lsn > 0 && (c.LSN != r.a.last.lsn+1 || c.Prev != r.a.last.sum) {
		return fmt.Errorf("commit %s with predecessor %s does not follow LSN %d with checksum %s", strconv.FormatUint(uint64(c.LSN), 10), c.Prev, r.a.last.lsn, r.a.last.sum)
	}
	if r.a.last.lsn == 0 && !Begins(c) {
		return fmt.Errorf("no log begins with the commit at LSN %d, and what stood before it is not there", c.LSN)
	}
	return r.a.apply(c)
}
