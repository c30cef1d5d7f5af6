package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases/bucket"
)

// BoundaryBytes is the length of a boundary at which a partition is split: the hash of a first level.
const BoundaryBytes = 16

// SplitPartition asks the owner of a partition to split it in two. The answer comes when the split is planned; it goes
// on from there, whoever owns the partition, until the catalog names the children in place of the partition.
type SplitPartition struct {
	// At is the first hash of the upper child. "" is about the middle of what the partition holds.
	At feed.EPK
	// Dry only tells what would be done.
	Dry bool
	// Cancel gives up the split that is planned, or under way, in place of planning one.
	Cancel bool
}

// SplitResult is the answer to SplitPartition.
type SplitResult struct {
	ID string `json:"id,omitempty"` // of the split; "" if it was asked for dry
	// Children are those that the partition becomes, or would have become, in the order of their ranges.
	Children []PartitionInfo `json:"children"`
}

var splitKind = kind{
	name:    "split",
	asked:   func(r *Request) bool { return r.Split != nil },
	writes:  func(r *Request) bool { return !r.Split.Dry },
	mayRead: true, // a dry one
	slow:    true, // the middle is looked for in all that it holds
	encode: func(w *wireWriter, r *Request) {
		w.str(string(r.Split.At))
		w.bool(r.Split.Dry)
		w.bool(r.Split.Cancel)
	},
	decode: func(d *wireReader, r *Request) {
		r.Split = &SplitPartition{At: feed.EPK(d.str()), Dry: d.bool(), Cancel: d.bool()}
	},
	encodeAnswer: func(w *wireWriter, r *Response) { w.json(r.Split) },
	decodeAnswer: func(d *wireReader, r *Response) {
		r.Split = &SplitResult{}
		d.json(r.Split)
	},
}

// Split asks the owner of a partition to split it, and returns what was planned. The error is 400 for a boundary that
// does not lie inside the partition, 409 where it is being split already, or cannot be.
func (c *Container) Split(ctx context.Context, p feed.Partition, r SplitPartition) (*SplitResult, error) {
	resp, err := c.Do(ctx, &Request{Partition: p, Split: &r})
	if err != nil {
		return nil, err
	}
	return resp.Split, nil
}

// PlannedSplit is a split that is wished for. The partition's log decides whether, and at which LSN.
type PlannedSplit struct {
	ID     string `json:"id"`
	Parent uint32 `json:"parent"` // number
	// Children are in the order of their ranges. Their streams may be there already, and hold nothing before the
	// parent's log has ended.
	Children []PartitionInfo `json:"children"`
}

// PlannedOf returns the split that is planned of a partition; nil if none is.
func (i *ContainerInfo) PlannedOf(number uint32) *PlannedSplit {
	for k := range i.Splits {
		if i.Splits[k].Parent == number {
			return &i.Splits[k]
		}
	}
	return nil
}

// Named are all partitions whose logs a record names: those that hold its items, those that were split, and those into
// which one is to be split.
func (i *ContainerInfo) Named() []PartitionInfo {
	all := slices.Clone(i.Partitions)
	for k := range i.Former {
		all = append(all, i.Former[k].PartitionInfo)
	}
	for k := range i.Splits {
		all = append(all, i.Splits[k].Children...)
	}
	return all
}

// newSplit returns the split of a partition at a boundary, into partitions with new numbers and logs.
func (i *ContainerInfo) newSplit(number uint32, at feed.EPK) (*PlannedSplit, error) {
	if planned := i.PlannedOf(number); planned != nil {
		return nil, Refuse(StatusConflict, "partition %s/%d is being split already (%s): wait until it is", i.ID, number, planned.ID)
	}
	k := slices.IndexFunc(i.Partitions, func(p PartitionInfo) bool { return p.Number == number })
	if k < 0 {
		return nil, Refuse(StatusGone, "container %s/%s has no partition %d", i.Database, i.Name, number)
	}
	within := i.Partitions[k].Range
	if len(at) != BoundaryBytes {
		return nil, Refuse(StatusBadRequest, "a boundary has %d bytes, as the hash of a partition key's first level has; %q has %d", BoundaryBytes, at.Hex(), len(at))
	}
	if !within.Contains(at) || at == within.Min {
		return nil, Refuse(StatusBadRequest, "the boundary %s does not lie inside partition %s/%d, which has %s: millrace describe container shows the ranges", at.Hex(), i.ID, number, within)
	}
	if n := len(i.Partitions) + len(i.Splits); n >= PartitionsMax {
		return nil, Refuse(StatusConflict, "container %s/%s has %d partitions, and %d is the most", i.Database, i.Name, n, PartitionsMax)
	}
	next := i.NextPartition
	for _, p := range i.Named() {
		next = max(next, p.Number+1)
	}
	i.NextPartition = next + 2
	return &PlannedSplit{ID: feed.NewCommitID().String(), Parent: number, Children: []PartitionInfo{
		{Number: next, Range: feed.Range{Min: within.Min, Max: at}, Log: feed.NewLogID()},
		{Number: next + 1, Range: feed.Range{Min: at, Max: within.Max}, Log: feed.NewLogID()},
	}}, nil
}

// PlanSplit records that a partition is to be split at a boundary. Dry, it records nothing. The error is 400 if the
// boundary does not lie inside the partition, 409 if it is being split already, 410 if there is no such partition.
func (c *Catalog) PlanSplit(ctx context.Context, database, name string, number uint32, at feed.EPK, dry bool) (planned *PlannedSplit, err error) {
	plan := func(i *ContainerInfo) error {
		if i.State != ContainerReady {
			return &NoContainerError{database, name}
		}
		if planned, err = i.newSplit(number, at); err == nil {
			i.Splits = append(i.Splits, *planned)
		}
		return err
	}
	if dry {
		info, err := c.Get(ctx, database, name)
		if err != nil {
			return nil, err
		}
		return planned, plan(&info)
	}
	if _, err := c.modify(ctx, database, name, plan); err != nil {
		return nil, err
	}
	return planned, nil
}

// EndSplit records that a partition was split, as its log says: its children take its place. Told again it changes
// nothing.
func (c *Catalog) EndSplit(ctx context.Context, database, name string, id string, former FormerPartition) (ContainerInfo, error) {
	return c.modify(ctx, database, name, func(i *ContainerInfo) error {
		if slices.ContainsFunc(i.Former, func(f FormerPartition) bool { return f.Number == former.Number }) {
			return errUnchanged
		}
		at := slices.IndexFunc(i.Partitions, func(p PartitionInfo) bool { return p.Number == former.Number })
		planned := i.PlannedOf(former.Number)
		if at < 0 || planned == nil || planned.ID != id {
			return Refuse(StatusConflict, "container %s/%s: the log of partition %d ends with split %s, of which the catalog knows nothing: millrace doctor", database, name, former.Number, id)
		}
		i.Partitions = slices.Replace(slices.Clone(i.Partitions), at, at+1, planned.Children...)
		i.Splits = slices.DeleteFunc(slices.Clone(i.Splits), func(s PlannedSplit) bool { return s.ID == id })
		i.Former = append(slices.Clone(i.Former), former)
		return nil
	})
}

// AbandonSplit records that a split that was planned is not to be, as the partition's log says: no owner splits it under
// this id any more. Told again it changes nothing. The children's logs go first, so that none is there without a name.
func (c *Catalog) AbandonSplit(ctx context.Context, database, name string, id string) error {
	_, err := c.modify(ctx, database, name, func(i *ContainerInfo) error {
		k := slices.IndexFunc(i.Splits, func(s PlannedSplit) bool { return s.ID == id })
		if k < 0 {
			return errUnchanged
		}
		for _, child := range i.Splits[k].Children {
			if err := feed.DeleteLog(ctx, c.js, feed.Partition{Container: i.ID, Number: child.Number}); err != nil {
				return err
			}
		}
		i.Splits = slices.Delete(slices.Clone(i.Splits), k, k+1)
		return nil
	})
	return err
}

// ForgetFormer removes the log of a partition that was split, which nobody needs any more, and then what the record
// says of it.
func (c *Catalog) ForgetFormer(ctx context.Context, database, name string, number uint32) error {
	_, err := c.modify(ctx, database, name, func(i *ContainerInfo) error {
		k := slices.IndexFunc(i.Former, func(f FormerPartition) bool { return f.Number == number })
		if k < 0 {
			return errUnchanged
		}
		if err := feed.DeleteLog(ctx, c.js, feed.Partition{Container: i.ID, Number: number}); err != nil {
			return err
		}
		i.Former = slices.Delete(slices.Clone(i.Former), k, k+1)
		return nil
	})
	return err
}

// MakeChildLog makes the log of a partition into which another is split, behind LSN after, and returns it. One that
// is there already stays. The error is 410 if the record does not name the partition any more: it was split too and
// forgotten, while this maker was late.
func (c *Catalog) MakeChildLog(ctx context.Context, info *ContainerInfo, p PartitionInfo, after feed.LSN) (*feed.Log, error) {
	record, err := info.encode()
	if err != nil {
		return nil, err
	}
	partition := feed.Partition{Container: info.ID, Number: p.Number}
	cfg := c.cfg.Log
	cfg.After = after
	if cfg.Labels, err = Labels(record, time.Now(), p); err != nil {
		return nil, fmt.Errorf("container %s/%s: %w", info.Database, info.Name, err)
	}
	err = feed.CreateLog(ctx, c.js, partition, p.Log, cfg)
	// Also after an error: the request may have been carried out.
	if forgotten := c.removeForgotten(ctx, info, partition); forgotten != nil {
		return nil, errors.Join(forgotten, err)
	}
	if err != nil {
		return nil, err
	}
	return feed.OpenLog(ctx, c.js, partition, c.cfg.Log)
}

// removeForgotten removes a log that was made of a partition which the container's record does not name any more. Numbers
// are not used again, so nobody else has it, and a log without a name damages the catalog. A record that is not there
// proves nothing: it may be lost.
//
//	late maker          others
//	                    0 is split into 1 and 2, 2 into 3 and 4; 0 and 2 are forgotten, with their logs
//	makes the log of 2
func (c *Catalog) removeForgotten(ctx context.Context, info *ContainerInfo, p feed.Partition) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unnamedMax) // the maker may have gone
	defer cancel()
	names := func(i *ContainerInfo) bool {
		return i.ID != info.ID || slices.ContainsFunc(i.Named(), func(n PartitionInfo) bool { return n.Number == p.Number })
	}
	now, err := c.Newest(ctx, info.Database, info.Name)
	if err == nil && !names(&now) {
		now, err = c.Confirm(ctx, info.Database, info.Name) // a leader that was cut off shows what was before
	}
	// Who deletes the container removes the logs that are there, and this one may have come behind that.
	deleted := err == nil && now.ID == info.ID && now.State == ContainerDeleting
	if isAbsent(err) || err == nil && now.ID != info.ID {
		deleted = wasDeleted(ctx, c.js, c.kv, info.ID, CatalogKey(info.Database, info.Name))
	}
	if !deleted && (err != nil || names(&now)) {
		return nil // nothing says that it is forgotten
	}
	if err := feed.DeleteLog(ctx, c.js, p); err != nil {
		return err
	}
	return Refuse(StatusGone, "partition %s was split, or its container deleted, and its log is not needed any more", p)
}

// leftBySplit says whether a log that no record names was made late, and is empty, of a partition into which another one was
// to be split: that was given up, or is forgotten. The record that counts its number as used and does not name it is never
// older than that, because both are written at once, and numbers are not used again.
func leftBySplit(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, p feed.Partition, streams []*jetstream.StreamInfo) bool {
	if len(streams) != 1 || streams[0] == nil || streams[0].State.Msgs > 0 {
		return false
	}
	_, made, labelled, err := ReadLabel(streams[0])
	if err != nil || !labelled || made.ID != p.Container {
		return false
	}
	ctx, cancel := ownTime(ctx, js)
	defer cancel()
	entry, err := bucket.Newest(ctx, js, kv, CatalogKey(made.Database, made.Name))
	if err != nil {
		return false
	}
	now, err := readContainer(entry)
	return err == nil && now.ID == p.Container && p.Number < now.NextPartition &&
		!slices.ContainsFunc(now.Named(), func(n PartitionInfo) bool { return n.Number == p.Number })
}
