package owner

import (
	"encoding/json"
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
)

// What a partition's log says of a split, as a record of the engine keeps it:
//
//	prepare ──▶ prepared ──▶ split: the log has ended
//	               └──▶ abandon: no owner splits under that id

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
	splitPrepared  = 'p'
	splitAbandoned = 'a'
	splitEnded     = 'e'
)

// applySplit keeps what a control transaction says of a split.
func applySplit(b *engine.Batch, c *feed.Control) error {
	switch c.Kind {
	case feed.ControlPrepareSplit:
		return b.PutRecord(recordSplit, nil, append([]byte{splitPrepared}, c.Data...))
	case feed.ControlSplit:
		return b.PutRecord(recordSplit, nil, append([]byte{splitEnded}, c.Data...))
	case feed.ControlAbandonSplit:
		return b.PutRecord(recordSplit, nil, append([]byte{splitAbandoned}, c.Data...))
	}
	return nil
}

// abandonedSplit is the data of a control transaction that gives up a split. From then on no owner splits under its id.
type abandonedSplit struct {
	Version int    `json:"v"`
	ID      string `json:"id"`
	Why     string `json:"why"`
}

// abandon gives up a split. The caller has a draft that takes more.
func (d *decider) abandon(id, why string) error {
	data, err := json.Marshal(abandonedSplit{1, id, why})
	if err != nil {
		return err
	}
	d.draft.txns = append(d.draft.txns, feed.Transaction{Control: &feed.Control{Kind: feed.ControlAbandonSplit, Data: data}})
	d.draft.bytes += transactionOverhead
	d.split = splitRecord{abandoned: &abandonedSplit{ID: id, Why: why}}
	return nil
}

// splitRecord is what a partition's log says of a split.
type splitRecord struct {
	split     *feed.Split // nil if none is prepared, and none has ended the log
	ended     bool
	abandoned *abandonedSplit // the last that was; nil if none was since the last that was prepared
}

func readSplit(s *engine.Snapshot) (r splitRecord, err error) {
	value, ok, err := s.Record(recordSplit, nil)
	if err != nil || !ok || len(value) == 0 {
		return r, err
	}
	if value[0] == splitAbandoned {
		r.abandoned = &abandonedSplit{}
		return r, json.Unmarshal(value[1:], r.abandoned)
	}
	r.split, err = feed.DecodeSplit(value[1:])
	r.ended = value[0] == splitEnded
	return r, err
}

// splitDone returns the split with which a partition's log ends; nil if it goes on.
func splitDone(p *engine.Partition) (*feed.Split, error) {
	s := p.Snapshot()
	defer s.Close()
	r, err := readSplit(s)
	if err != nil || !r.ended {
		return nil, err
	}
	return r.split, nil
}

// findSplit notes what was applied of a split, of which decisions go on.
func (d *decider) findSplit() {
	r, err := readSplit(d.snap)
	if err != nil {
		d.p.engine.Fail(err)
	}
	d.split = r
}

// showSplit shows what is applied of a split to all who act on it. What is merely decided may never be in the log.
func (p *Partition) showSplit() {
	snap := p.engine.Snapshot()
	defer snap.Close()
	r, err := readSplit(snap)
	if err != nil {
		p.engine.Fail(err)
		return
	}
	p.split.Store(&r)
}

// ofSplits says whether a commit says anything of a split.
func ofSplits(c *feed.Commit) bool {
	for i := range c.Transactions {
		if k := c.Transactions[i].Control; k != nil {
			switch k.Kind {
			case feed.ControlPrepareSplit, feed.ControlSplit, feed.ControlAbandonSplit:
				return true
			}
		}
	}
	return false
}

// splitting returns the split that is prepared, as of what was applied; nil if none is.
func (p *Partition) splitting() *feed.Split {
	if r := p.split.Load(); r != nil && !r.ended {
		return r.split
	}
	return nil
}

// gaveUp says whether a split was given up, as of what was applied.
func (p *Partition) gaveUp(id string) bool {
	r := p.split.Load()
	return r != nil && r.abandoned != nil && r.abandoned.ID == id
}

// abandonLateSplit gives up a split that is prepared when half of the LSNs up to those of the children are used.
func (d *decider) abandonLateSplit() {
	split := d.split.split
	if split == nil || d.draft.lsn+splitRoom/2 < split.First {
		return
	}
	if err := d.abandon(split.ID, "the first LSN of its children came near"); err != nil {
		d.p.log.Error("a split could not be given up", "error", err)
	}
}
