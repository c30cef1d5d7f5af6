package project

import (
	"context"
	"fmt"
	"iter"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// readPageItems bounds the items of one page of a Reader.
const readPageItems = 1000

// Rows yields the rows of a table, page by page, each behind a barrier.
func (s *ContainerSink) Rows(ctx context.Context, schema *Schema, table int) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		sh, err := s.shape(&schema.Tables[table])
		if err != nil {
			yield(Row{}, err)
			return
		}
		for item, err := range scan(ctx, sh.container) {
			if err != nil {
				yield(Row{}, err)
				return
			}
			r, ok, err := sh.row(table, &item)
			if err != nil {
				yield(Row{}, err)
				return
			}
			if ok && !yield(r, nil) {
				return
			}
		}
	}
}

// Rejects yields the pending rows of a table, which the store keeps beside its rows, and
// the rejects, if there is a container for them.
func (s *ContainerSink) Rejects(ctx context.Context, schema *Schema, table int) iter.Seq2[Reject, error] {
	return func(yield func(Reject, error) bool) {
		sh, err := s.shape(&schema.Tables[table])
		if err != nil {
			yield(Reject{}, err)
			return
		}
		for row, err := range pendingRows(ctx, sh.container, schema) {
			var r Reject
			if err == nil {
				r, err = sh.pendingReject(table, &row)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
		// The container of rejects may be shared by all pipelines: rejectOf tells ours.
		if s.rejects == nil {
			return
		}
		for item, err := range scan(ctx, s.rejects) {
			if err != nil {
				yield(Reject{}, err)
				return
			}
			r, ok := rejectOf(schema.Pipeline, table, schema.Tables[table].Name, &item)
			if ok && !yield(r, nil) {
				return
			}
		}
	}
}

// Positions returns none: a partition tells a position to its producer alone.
func (s *ContainerSink) Positions(context.Context, *Schema) (map[string]feed.Position, error) {
	return map[string]feed.Position{}, nil
}

// pendingRows yields all pending rows of a projection in a container.
func pendingRows(ctx context.Context, c *store.Container, schema *Schema) iter.Seq2[store.PendingRow, error] {
	return func(yield func(store.PendingRow, error) bool) {
		for _, p := range c.Partitions() {
			page := store.ReadPendingRows{Pipeline: schema.Pipeline, Generation: schema.Generation, Max: readPageItems}
			for {
				result, err := c.ReadPendingRows(ctx, p, &page)
				if err != nil {
					yield(store.PendingRow{}, fmt.Errorf("read the pending rows in %s: %w", p, err))
					return
				}
				for i := range result.Rows {
					if !yield(result.Rows[i], nil) {
						return
					}
				}
				if page.After = result.Last; page.After == nil {
					break
				}
			}
		}
	}
}

// scan yields all items of a container.
func scan(ctx context.Context, c *store.Container) iter.Seq2[store.Item, error] {
	return func(yield func(store.Item, error) bool) {
		for _, p := range c.Partitions() {
			page := store.Scan{ItemsMax: readPageItems, Barrier: true}
			for {
				result, err := c.Scan(ctx, p, page)
				if err != nil {
					yield(store.Item{}, fmt.Errorf("scan %s: %w", p, err))
					return
				}
				for i := range result.Items {
					if !yield(result.Items[i], nil) {
						return
					}
				}
				if result.Cursor == nil {
					break
				}
				page.After = result.Cursor
			}
		}
	}
}
