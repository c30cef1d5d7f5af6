package feed

import (
	"encoding/json"
	"fmt"
)

// The kinds of the control transactions with which a partition is split in two. The data of all of them begins with
// a version and the id of the split; that of ControlPrepareSplit and ControlSplit is a Split.
const (
	// ControlPrepareSplit says how the partition is to be split. It may be given up.
	ControlPrepareSplit = "prepare-split"
	// ControlSplit is the last transaction of the last commit of a log: its items have gone to the children.
	ControlSplit = "split"
	// ControlAbandonSplit gives up what was prepared.
	ControlAbandonSplit = "abandon-split"
)

// splitVersion is the version of the data of these control transactions.
const splitVersion = 1

// Split says into which partitions one is split, and how their logs begin.
type Split struct {
	Version int    `json:"v"`
	ID      string `json:"id"`
	// First is the first LSN of both children. All LSNs of the parent are lower, so that whoever compares two LSNs
	// of a key need not know on which side of the split they are.
	First    LSN        `json:"first"`
	Children []Offshoot `json:"children"`
}

// Offshoot is a partition that a split makes.
type Offshoot struct {
	Number uint32 `json:"number"`
	Range  Range  `json:"range"`
	Log    LogID  `json:"log"`
	// Genesis is the id of its first commit, so that two who complete a split make one.
	Genesis CommitID `json:"genesis"`
}

// Control returns the control transaction of a kind that says s.
func (s *Split) Control(kind string) (*Control, error) {
	s.Version = splitVersion
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("split %s: %w", s.ID, err)
	}
	return &Control{Kind: kind, Data: data}, nil
}

// DecodeSplit reads the data of a control transaction of a split. The error says that a later release wrote it, or
// that it is none.
func DecodeSplit(data []byte) (*Split, error) {
	s := &Split{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("split: %w", err)
	}
	if s.Version != splitVersion {
		return nil, fmt.Errorf("split %s has version %d, and this release reads version %d: use a newer one", s.ID, s.Version, splitVersion)
	}
	return s, nil
}

// SplitOf returns what c says, if it is the last commit of a log whose partition was split; else nil.
func SplitOf(c *Commit) (*Split, error) {
	for i := range c.Transactions {
		if k := c.Transactions[i].Control; k != nil && k.Kind == ControlSplit {
			return DecodeSplit(k.Data)
		}
	}
	return nil, nil
}

// SplitError says that a log has been read to its end, behind which its partition's children go on: each at
// Split.First, with the keys of its range. Who begins behind the last commit does not get it, and waits: that the
// partition was split is in the catalog then, or comes there.
type SplitError struct {
	Partition Partition
	// Last is the last LSN of the log, Sum the checksum of that commit.
	Last  LSN
	Sum   Checksum
	Split *Split
}

func (e *SplitError) Error() string {
	return fmt.Sprintf("feed: partition %s was split at LSN %d into %d and %d, which go on at LSN %d",
		e.Partition, e.Last, e.Split.Children[0].Number, e.Split.Children[1].Number, e.Split.First)
}
