//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
	"github.com/millrace/millrace/store"
)

// growth is the case of one store that fills up: what a write costs while it
// holds 1,000 items, then ten times as many, and so on.
func (b *bench) growth(ctx context.Context) error {
	set, err := b.dataset(false)
	if err != nil {
		return err
	}
	t := b.table("growth", "Cost of a write as the store grows", fmt.Sprintf(
		"%d writers replace items drawn at random, while the store holds so many.", b.cfg.writers))
	var sizes []int
	for n := 1000; n < set.Products(); n *= 10 {
		sizes = append(sizes, n)
	}
	sizes = append(sizes, set.Products())
	if err := b.growMillrace(ctx, t, set, sizes); err != nil {
		return err
	}
	if b.pg != nil {
		if err := b.growPostgres(ctx, t, set, sizes); err != nil {
			return err
		}
	}
	for _, n := range sizes {
		t.Beside(grown(ofMillrace, n), grown(ofJSONB, n), "writes/s", "times jsonb")
	}
	// Cost is time: what one system needs for a write, all its writers together. So the ratio of
	// costs is the inverse one of rates: 30,000 writes/s among 1,000 items and 20,000 among all is a
	// cost of 1.5 times.
	few, all := grown(ofMillrace, sizes[0]), grown(ofMillrace, set.Products())
	among := fmt.Sprintf("a write among %s items, beside 1,000", measure.Number(float64(set.Products())))
	t.AtMost("cost of "+among, t.Ratio(few, all, "writes/s"), flat, "times", b.cfg.judged())
	t.AtMost("processors' time of "+among, t.Ratio(all, few, "CPU µs/write"), flat, "times", b.cfg.judged())
	return nil
}

func grown(system string, n int) string {
	return fmt.Sprintf("%s, %s items", system, measure.Number(float64(n)))
}

// growMillrace fills a store from size to size and measures writes at each.
func (b *bench) growMillrace(ctx context.Context, t *measure.Table, set *dataset.Set, sizes []int) error {
	dir, err := b.scratch("growth")
	if err != nil {
		return err
	}
	defer b.remove(dir)
	m, err := openMillrace(ctx, dir)
	if err != nil {
		return err
	}
	grow := func() error {
		into, err := m.container(ctx, store.ContainerSpec{PartitionKey: []string{"/categoryId"}})
		if err != nil {
			return err
		}
		from := 0
		for _, n := range sizes {
			if err := load(ctx, into, set, from, n); err != nil {
				return err
			}
			from = n
			err := b.profiled("growth "+measure.Number(float64(n)), func() error {
				return b.growthAt(ctx, t, grown(ofMillrace, n), n, func(ctx context.Context, _, p int) error {
					_, err := into.Upsert(ctx, set.AppendProduct(nil, p))
					return err
				})
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	return errors.Join(grow(), m.close())
}

// growPostgres fills a table from size to size and measures writes at each. Its statistics
// are made and its log is written out first, so that no write pays for the filling.
func (b *bench) growPostgres(ctx context.Context, t *measure.Table, set *dataset.Set, sizes []int) error {
	conns, err := b.openItems(ctx, b.cfg.writers)
	if err != nil {
		return err
	}
	grow := func() error {
		from := 0
		category := func(p int) string { return set.Category(set.CategoryOf(p), 0).ID }
		for _, n := range sizes {
			_, err := conns[0].CopyFrom(ctx, pgx.Identifier{"items", "item"}, []string{"category_id", "id", "item"},
				pgx.CopyFromSlice(n-from, func(i int) ([]any, error) {
					return []any{category(from + i), set.ProductID(from + i), set.AppendProduct(nil, from+i)}, nil
				}))
			if err != nil {
				return err
			}
			from = n
			if _, err := conns[0].Exec(ctx, "vacuum analyze item"); err != nil {
				return err
			}
			if _, err := conns[0].Exec(ctx, "checkpoint"); err != nil {
				return err
			}
			err = b.growthAt(ctx, t, grown(ofJSONB, n), n, func(ctx context.Context, writer, p int) error {
				_, err := conns[writer].Exec(ctx, "update item set item = $3 where category_id = $1 and id = $2",
					category(p), set.ProductID(p), set.AppendProduct(nil, p))
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	return errors.Join(grow(), b.closeItems(ctx, conns))
}

// growthAt measures replacements of items that are drawn at random among n, in each round.
func (b *bench) growthAt(ctx context.Context, t *measure.Table, name string, n int, replace func(ctx context.Context, writer, p int) error) error {
	random := make([]*rand.Rand, b.cfg.writers)
	for i := range random {
		random[i] = rand.New(rand.NewPCG(b.cfg.seed, uint64(i)))
	}
	for range b.cfg.rounds {
		err := b.writesBy(ctx, t, name, func(ctx context.Context, writer, _ int) error {
			return replace(ctx, writer, random[writer].IntN(n))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
