package plan

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store"
)

// keepPair takes a row of which a sample can be made. Those of the least keys are shown, so
// that it is always the same ones, in whatever order a sink tells its rows.
func (n *rowCount) keepPair(p rowPair) {
	// A list of a few, kept in order, in place of all rows that differ.
	at, _ := slices.BinarySearchFunc(n.pairs, p, func(a, b rowPair) int {
		return cmp.Or(cmp.Compare(a.of.Name, b.of.Name), cmp.Compare(a.key, b.key))
	})
	if at == n.run.cfg.SamplesMax {
		return
	}
	n.pairs = slices.Insert(n.pairs, at, p)
	n.pairs = n.pairs[:min(len(n.pairs), n.run.cfg.SamplesMax)]
}

// samples makes samples of rows that change, and if there is room, of some that come.
func (n *rowCount) samples(ctx context.Context) (samples []Sample, err error) {
	room := n.room(feed.Partition{})
	for i := range n.pairs[:min(len(n.pairs), room)] {
		pair := &n.pairs[i]
		s := Sample{Action: SampleDeleted, Table: pair.of.Name, Row: verify.KeyJSON(pair.old.Key), Source: pair.old.Source}
		var is []byte
		if pair.name != 0 {
			s.Action = SampleChanged
			if is, err = n.currentRow(ctx, pair, &s); err != nil {
				return nil, err
			}
		}
		if s.Action == SampleChanged {
			s.show(diffJSON(nil, pair.of.AppendRow(nil, pair.old.Values), is))
		}
		samples = append(samples, s)
	}
	if len(samples) >= room || len(n.rows) == 0 {
		return samples, nil
	}
	fresh, err := n.newRowSamples(ctx, room-len(samples))
	return append(samples, fresh...), err
}

// currentRow returns the row that comes in the place of one that is in the sink.
func (n *rowCount) currentRow(ctx context.Context, pair *rowPair, s *Sample) ([]byte, error) {
	_, key, id, err := project.ParseSource(pair.old.Source)
	if err != nil {
		return []byte("{}"), nil //nolint:nilerr // it is no row of ours
	}
	items, err := n.source.ReadMany(ctx, []store.ItemRef{{Key: key, ID: id}}, false)
	if err != nil || items[0].ETag == (store.ETag{}) {
		return []byte("{}"), err
	}
	schema, d := n.projection.Schema(), rowDigester{}
	rows, _ := n.projection.RowsOf(key, id, items[0].Body)
	for i := range rows {
		if t := &schema.Tables[rows[i].Table]; d.name(t, rows[i].Key) == pair.name {
			s.Row = verify.KeyJSON(rows[i].Key)
			return t.AppendRow(nil, rows[i].Values), nil
		}
	}
	return []byte("{}"), nil
}

// newRowSamples makes samples of rows that are not in the sink.
func (n *rowCount) newRowSamples(ctx context.Context, room int) (samples []Sample, err error) {
	schema, d := n.projection.Schema(), rowDigester{}
	for _, partition := range n.source.Partitions() {
		err = n.partition(ctx, n.source, partition, func(_ context.Context, _ feed.Partition, items []store.Item) error {
			n.run.tell(func(p *Progress) { p.Total += int64(len(items)) })
			for i := range items {
				rows, _ := n.projection.RowsOf(items[i].Key, items[i].ID, items[i].Body)
				for j := range rows {
					t := &schema.Tables[rows[j].Table]
					if _, is := n.rows[d.name(t, rows[j].Key)]; !is {
						continue
					}
					if len(samples) == room {
						return errEnough
					}
					s := Sample{Action: SampleCreated, Table: t.Name, Row: verify.KeyJSON(rows[j].Key), Source: rows[j].Source}
					s.show(diffJSON(nil, []byte("{}"), t.AppendRow(nil, rows[j].Values)))
					samples = append(samples, s)
				}
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			return samples, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return samples, nil
}

func rejectSample(schema *project.Schema, r *project.Reject) *Sample {
	reason := strings.TrimSpace(r.Column + " " + r.Reason)
	return &Sample{Action: SampleRejected, Table: schema.Tables[r.Table].Name, Row: slices.Clone(r.Row), Source: r.Source, Reason: reason}
}
