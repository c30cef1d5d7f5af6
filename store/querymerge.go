package store

import (
	"bytes"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/store/query"
)

// queryPartBytesMin is the least share of a page's bytes that one partition gets.
const queryPartBytesMin = 256 << 10

// source is a partition whose rows are merged with those of others.
type source struct {
	info  *PartitionInfo
	part  query.Part // what is not in the page yet
	asked bool
	after []byte // where it goes on
}

// merge brings the rows of all partitions together in the order of their keys.
func (p *pager) merge(ctx context.Context) error { return p.mergeFrom(ctx, nil, nil) }

// mergeFrom is merge where one partition has been asked already.
func (p *pager) mergeFrom(ctx context.Context, first *PartitionInfo, result *QueryResult) error {
	sources := make([]source, len(p.targets))
	for i := range sources {
		sources[i] = source{info: &p.targets[i], after: p.at.after}
		if sources[i].info == first {
			sources[i].part, sources[i].asked = partOf(result), true
		}
	}
	share := p.c.client.cfg.Queries.Share()
	defer share.Free()
	// A row may be given when every partition either shows its own next row or has none,
	// since only then is the least known. So no partition is merged while it is empty:
	//
	//	      p0: 1 4 |more      p1: 2 3 |more
	//	given 1 2 3              p1 is empty: asked behind 3
	//	      p0: 4   |more      p1: 7 9 |end
	//	given 4                  p0 is empty: asked behind 4
	for {
		if err := p.fetchMissing(ctx, sources); err != nil {
			return err
		}
		parts := make([]query.Part, len(sources))
		held := 0
		for i := range sources {
			parts[i] = sources[i].part
			held += sources[i].bytes()
		}
		// What one partition sends is bounded, but there may be a thousand of them.
		if err := share.Hold(held); err != nil {
			if len(p.page.Rows) > 0 {
				return p.setContinuation()
			}
			return RefuseQuery(err)
		}
		more, err := p.addRows(ctx, parts)
		if err != nil || !more {
			return err
		}
		if p.full() || p.overtime() {
			return p.setContinuation()
		}
		for i := range sources {
			sources[i].dropUpTo(p.at.after)
		}
	}
}

// rowOverhead is what a row takes in memory beside key and body.
const rowOverhead = 48

// bytes returns what the rows that are left take in memory.
func (s *source) bytes() (n int) {
	for i := range s.part.Rows {
		n += len(s.part.Rows[i].Key) + len(s.part.Rows[i].Body) + rowOverhead
	}
	return n
}

// dropUpTo removes the rows up to a key.
func (s *source) dropUpTo(after []byte) {
	n := slices.IndexFunc(s.part.Rows, func(r query.Row) bool { return bytes.Compare(r.Key, after) > 0 })
	if n < 0 {
		n = len(s.part.Rows)
	}
	// Its last row is about to go, and with it the knowledge of where to ask on.
	if n == len(s.part.Rows) && s.part.Until == nil && n > 0 {
		s.part.Until = s.part.Rows[n-1].Key
	}
	s.part.Rows = s.part.Rows[n:]
}

// fetchMissing asks the partitions of which no rows are left and more may come.
func (p *pager) fetchMissing(ctx context.Context, sources []source) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(queryFanOut)
	rows, size := p.shareOf(len(sources))
	results := make([]*QueryResult, len(sources))
	for i := range sources {
		s := &sources[i]
		if len(s.part.Rows) > 0 || s.asked && !s.part.More {
			continue
		}
		if s.asked && s.part.Until != nil {
			s.after = s.part.Until
		}
		g.Go(func() (err error) {
			results[i], err = p.askPartition(ctx, s.info, s.after, rows, size)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, result := range results {
		if result != nil {
			p.noteWork(sources[i].info, result)
			sources[i].part, sources[i].asked = partOf(result), true
		}
	}
	return nil
}

// shareOf returns how many rows and bytes each of n partitions is asked for. What one
// gives too much is read again for the next page, so a large page asks for little more
// than a partition's share.
func (p *pager) shareOf(n int) (rows, size int) {
	// 1,000 rows of 20 partitions: each is asked for 100, twice its share, so that one with
	// more than its share is rarely asked again. Asked for 1,000 each, they would send
	// 19,000 rows for nothing.
	rows = p.rowsWanted()
	if rows > queryRowsDefault && n > 2 {
		rows = max(queryRowsDefault, 2*rows/n)
	}
	size = min(p.r.BytesMax, max(queryPartBytesMin, 2*p.r.BytesMax/n))
	// All of them together leave most of what queries may hold to owners and to other queries.
	if most := p.c.client.cfg.Queries.Size(); most > 0 {
		size = min(size, max(1, int(most/4/int64(n))))
	}
	return rows, size
}
