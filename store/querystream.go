package store

import (
	"context"

	"github.com/millrace/millrace/store/query"
)

// stream reads the partition where the page before ended, and if that is not enough
// the others behind it side by side. Rows come in the order of item keys, and so do the
// partitions.
func (p *pager) stream(ctx context.Context) error {
	if p.at.after != nil {
		// The partition of the continuation may have been split, and the place is in one of its children then. Whether
		// it is a place, its owner tells.
		_ = p.locateNext()
	}
	for i := range p.targets {
		part := &p.targets[i]
		if part.Range.Max <= p.at.from {
			continue
		}
		if part.Range.Min > p.at.from {
			p.at.from, p.at.after = part.Range.Min, nil
		}
		done, err := p.streamOne(ctx, part)
		switch {
		case err != nil, p.merges() && len(p.targets) > 1:
			return err
		case !done:
			return p.setContinuation()
		case i == len(p.targets)-1:
			return nil
		}
		p.at.from, p.at.after, p.at.via = part.Range.Max, nil, QueryItems
		if p.full() || p.overtime() || p.r.Apart {
			return p.setContinuation()
		}
		p.targets = p.targets[i+1:]
		return p.merge(ctx)
	}
	return nil
}

// streamOne reads one partition until the page is full. done says that the partition
// has no more.
func (p *pager) streamOne(ctx context.Context, part *PartitionInfo) (done bool, err error) {
	for {
		result, err := p.askPartition(ctx, part, p.at.after, p.rowsWanted(), p.r.BytesMax-p.bytes)
		if err != nil {
			return false, err
		}
		p.noteWork(part, result)
		p.at.via = result.Via
		if p.merges() && len(p.targets) > 1 {
			return false, p.switchOver(ctx, part, result)
		}
		more, err := p.addRows(ctx, []query.Part{partOf(result)})
		if err != nil || !more {
			return true, err
		}
		if p.full() || p.overtime() {
			return false, nil
		}
	}
}

// switchOver continues with all partitions, in the order of the index that the first one
// chose. Where another one has not built that index yet, all come in the order of item keys,
// from the beginning. Behind the first page the refusal is returned: rows were given in the
// other order.
func (p *pager) switchOver(ctx context.Context, first *PartitionInfo, result *QueryResult) error {
	err := p.mergeFrom(ctx, first, result)
	if !isRefused(err, StatusBadRequest) || p.r.Continuation != "" {
		return err
	}
	p.at.via, p.at.after, p.at.from = QueryItems, nil, ""
	p.page.Rows, p.bytes, p.at.passed = nil, 0, 0
	return p.stream(ctx)
}
