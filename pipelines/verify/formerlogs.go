package verify

import (
	"context"
	"errors"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// A partition that was made by a split has no log of what was before. That is in its parent's log, of the keys in its range,
// and what was before that in the parent's parent's. LSNs only grow from one to the next:
//
//	0: 1 ... 60 split     5: 1048580 ... 1049000 split     7: 2100000 ...
//
// So a history that begins at an LSN of a former partition reads on from log to log.

// ancestors are the partitions that were split into this one and whose logs are there, the first one first.
func (h *history) ancestors() (all []*store.FormerPartition) {
	info := h.container.Info()
	for f := info.ParentOf(h.partition.Number); f != nil; f = info.ParentOf(f.Number) {
		all = append(all, f)
	}
	slices.Reverse(all)
	return all
}

// first returns the first LSN that the log has, or those before it.
func (h *history) first(ctx context.Context) (feed.LSN, error) {
	for _, f := range h.ancestors() {
		log, err := feed.OpenLog(ctx, h.js, feed.Partition{Container: h.partition.Container, Number: f.Number}, feed.LogConfig{})
		if errors.Is(err, feed.ErrNoLog) {
			continue // it went a moment ago
		}
		if err != nil {
			return 0, err
		}
		first, _, err := log.Bounds(ctx)
		log.Close()
		return first, err
	}
	first, _, err := h.log.Bounds(ctx)
	return first, err
}

// openFormer finds the former partition whose log has the next commit, if it is not the partition's own that has.
func (h *history) openFormer() {
	h.former = nil
	for _, f := range h.ancestors() {
		if h.at < f.Last {
			h.former = f
			return
		}
		h.at = max(h.at, f.First-1)
	}
}

// tailFormer begins to read the log of a former partition.
func (h *history) tailFormer(ctx context.Context) error {
	log, err := feed.OpenLog(ctx, h.js, feed.Partition{Container: h.partition.Container, Number: h.former.Number}, feed.LogConfig{})
	if err != nil {
		return err
	}
	h.tail, err = log.Tail(ctx, h.at+1, feed.TailOptions{})
	return err
}

// endFormer ends the reading of a former partition's log behind its last commit.
func (h *history) endFormer() {
	if h.former == nil || h.at < h.former.Last {
		return
	}
	h.at = h.former.First - 1
	h.tail.Close()
	h.tail, h.former = nil, nil
}

// holds says whether an item of a former partition is one of the partition.
func (h *history) holds(e *event) bool {
	// By its range, which stays what it is when the partition is split while older logs are read.
	return h.span.Contains(e.Key.Hash())
}
