package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/snapshot"
)

// copyLog copies what the log holds behind the base of p, or all of it, up to where shape says
// that it ends.
func (c *partitionCopy) copyLog(ctx context.Context, log *feed.Log, p *Partition, shape *feed.Shape) error {
	next, prev := p.First, snapshot.Sum(0)
	if p.Base != nil {
		next, prev = p.Last+1, p.Sum
	}
	held, err := c.heldSegments(ctx, p, next, prev, shape.Last)
	if err != nil {
		return err
	}
	if p.Segments = held; len(held) > 0 {
		last := &held[len(held)-1]
		next, prev = last.To+1, last.Sum
		p.Last, p.Sum = last.To, last.Sum
	}
	if next <= shape.Last {
		if err := c.readCommits(ctx, log, p, next, prev, shape.Last); err != nil {
			return err
		}
	}
	if p.Base == nil && len(p.Segments) > 0 {
		p.Since = p.Segments[0].Since
	}
	return nil
}

// heldSegments returns the segments that are there and hold the commits from next on, each
// behind the one before. The first may begin with commits that the base holds.
func (c *partitionCopy) heldSegments(ctx context.Context, p *Partition, next feed.LSN, prev snapshot.Sum, end feed.LSN) (held []Segment, err error) {
	folder := logFolder(c.id, p.Log)
	names, err := c.place.List(ctx, folder)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.place, err)
	}
	slices.Sort(names)
	for {
		found := false
		for _, name := range slices.Backward(names) { // of several with one beginning the longest
			s, ok := parseSegment(name)
			begins := s.From == next || len(held) == 0 && p.Base != nil && s.From < next
			if !ok || !begins || s.To < next || s.To > end {
				continue
			}
			if s, ok = c.knownSegment(ctx, folder+name, &s, p.Log, next, prev); ok {
				held, next, prev, found = append(held, s), s.To+1, s.Sum, true
				break
			}
		}
		if !found {
			return held, nil
		}
	}
}

// knownSegment returns what is known of a segment that is there; false if it is not whole, or
// does not follow the commit before next, whose checksum is prev. A segment that no backup
// names was written by a run that did not end: it is read through before it counts.
func (c *partitionCopy) knownSegment(ctx context.Context, name string, s *Segment, log feed.LogID, next feed.LSN, prev snapshot.Sum) (Segment, bool) {
	known, ok := c.known[name]
	// One that begins before next has the commit before next inside, so its own Prev says
	// nothing of the base:
	//
	//	base as of 40, next 41     segment 41..60: its Prev must be the base's checksum
	//	                           segment 30..60: the Prev of its commit 41 must be
	if !ok || s.From < next {
		data, err := c.place.Get(ctx, name)
		if err != nil {
			return known, false
		}
		known = *s
		follows := true
		err = readSegment(s, log, data, func(commit *feed.Commit) error {
			if commit.LSN == s.From {
				known.Prev, known.Since = snapshot.Sum(commit.Prev), commit.Time
			}
			if commit.LSN == next {
				follows = snapshot.Sum(commit.Prev) == prev
			}
			known.Sum, known.Until = snapshot.Sum(commit.Sum), commit.Time
			return nil
		})
		known.Bytes = uint64(len(data))
		return known, err == nil && follows
	}
	return known, known.Prev == prev || prev == 0
}

// readCommits copies the commits from next to end.
func (c *partitionCopy) readCommits(ctx context.Context, log *feed.Log, p *Partition, next feed.LSN, prev snapshot.Sum, end feed.LSN) error {
	tail, err := log.Tail(ctx, next, feed.TailOptions{Prev: feed.Checksum(prev), FromStream: true})
	if err != nil {
		return err
	}
	defer tail.Close()
	w, err := newSegmentWriter()
	if err != nil {
		return err
	}
	defer w.encoder.Close() //nolint:errcheck // nothing is streamed
	flush := func() error {
		s, data := w.end()
		if err := c.putObject(ctx, logFolder(c.id, p.Log)+s.file(), data, c.id); err != nil {
			return err
		}
		p.Segments = append(p.Segments, s)
		p.Last, p.Sum = s.To, s.Sum
		return nil
	}
	for next <= end {
		commit, err := tail.Next(ctx)
		if _, trimmed := errors.AsType[*feed.TrimmedError](err); trimmed || feed.Damaged(err) {
			return fmt.Errorf("%w: the log lacks what is behind LSN %d: %w", errMoved, next-1, err)
		}
		if err != nil {
			return err
		}
		if w.full(tail.Data()) {
			if err := flush(); err != nil {
				return err
			}
		}
		w.add(commit, tail.Data())
		next = commit.LSN + 1
	}
	return flush()
}
