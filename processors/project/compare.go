package project

import (
	"context"
	"encoding/binary"
	"iter"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// Item is an item of the source. A nil Body means that there is none.
type Item struct {
	store.ItemRef
	Body []byte
}

// Expected yields, for each item, the rows that the sink must have of it, and the
// rejects; see RowsOf. Of several items that claim one key, one has the row and
// the others wait as rejects with Key: which, is not said here.
func (p *Projection) Expected(items iter.Seq[Item]) iter.Seq2[[]Row, []Reject] {
	return func(yield func([]Row, []Reject) bool) {
		for item := range items {
			if !yield(p.RowsOf(item.Key, item.ID, item.Body)) {
				return
			}
		}
	}
}

// Forgetful is a Sink that does not keep everything that it is told of rejects.
// Other sinks keep both.
type Forgetful interface {
	// Keeps says whether the sink keeps rejects, and whether its Reader yields
	// claims.
	Keeps() (rejects, claims bool)
}

// Comparison finds the items whose rows may not be in the sink as they should be,
// in one pass over all items and one over all rows, in memory of the order of the
// number of items: some hundred bytes for each. It may be told of both in any
// order, also while writes go on; what it finds is looked at more closely by
// Projection.Examine. It is not safe for concurrent use.
type Comparison struct {
	p       *Projection
	keeps   bool
	digests map[string]uint64 // by source: of what is expected minus what is there
	buf     []byte

	// Items counts what Expect was told, Rows what Read found in the sink.
	Items, Rows int64
}

// Compare begins a comparison.
func (p *Projection) Compare() *Comparison {
	c := &Comparison{p: p, keeps: true, digests: map[string]uint64{}}
	if f, ok := p.cfg.Sink.(Forgetful); ok {
		c.keeps, _ = f.Keeps()
	}
	return c
}

// Expect takes an item of the source as it is.
func (c *Comparison) Expect(key feed.PartitionKey, id string, body []byte) {
	c.Items++
	rows, rejects := c.p.RowsOf(key, id, body)
	for i := range rows {
		c.add(rows[i].Source, c.rowDigest(&rows[i]))
	}
	if c.keeps {
		for i := range rejects {
			c.add(rejects[i].Source, c.rejectDigest(&rejects[i]))
		}
	}
}

// Read takes all rows and rejects of the sink.
func (c *Comparison) Read(ctx context.Context, r Reader) error {
	for table := range c.p.schema.Tables {
		for row, err := range r.Rows(ctx, &c.p.schema, table) {
			if err != nil {
				return err
			}
			c.Rows++
			c.add(row.Source, -c.rowDigest(&row))
		}
		if !c.keeps {
			continue
		}
		for reject, err := range r.Rejects(ctx, &c.p.schema, table) {
			if err != nil {
				return err
			}
			if err := c.reject(&reject); err != nil {
				return err
			}
		}
	}
	return nil
}

// reject takes a reject of the sink; a claim stands for its row.
func (c *Comparison) reject(r *Reject) error {
	if !r.Claim() {
		c.add(r.Source, -c.rejectDigest(r))
		return nil
	}
	values, err := c.p.schema.Tables[r.Table].ParseRow(r.Row)
	if err != nil {
		return err
	}
	c.add(r.Source, -c.rowDigest(&Row{Table: r.Table, Values: values, Element: r.Element}))
	return nil
}

func (c *Comparison) add(source string, digest uint64) {
	if sum := c.digests[source] + digest; sum != 0 {
		c.digests[source] = sum
	} else {
		delete(c.digests, source)
	}
}

// Suspects returns the sources of the items whose rows differ, in order.
func (c *Comparison) Suspects() []string {
	suspects := make([]string, 0, len(c.digests))
	for source := range c.digests {
		suspects = append(suspects, source)
	}
	slices.Sort(suspects)
	return suspects
}

// rowDigest is equal for rows of which EqualRows is true.
func (c *Comparison) rowDigest(r *Row) uint64 {
	c.buf = binary.AppendUvarint(c.buf[:0], uint64(r.Table))
	c.buf = binary.AppendUvarint(c.buf, uint64(len(r.Element)))
	c.buf = append(c.buf, r.Element...)
	for i := range r.Values {
		if v := r.Values[i]; v.kind == JSON {
			c.buf = binary.LittleEndian.AppendUint64(append(c.buf, byte(JSON)), jsonDigest([]byte(v.s)))
		} else {
			c.buf = AppendKey(c.buf, r.Values[i:i+1])
		}
	}
	return max(xxhash.Sum64(c.buf), 1)
}

// rejectDigest tells rejects apart, not by their words.
func (c *Comparison) rejectDigest(r *Reject) uint64 {
	c.buf = binary.AppendUvarint(append(c.buf[:0], "reject"...), uint64(r.Table))
	c.buf = append(append(c.buf, r.Element...), 0)
	c.buf = append(c.buf, r.Column...)
	return max(xxhash.Sum64(c.buf), 1)
}

// jsonDigest is equal for JSON values of which document.Equal is true.
func jsonDigest(raw []byte) uint64 {
	buf := []byte{byte(document.KindOf(raw))}
	switch document.KindOf(raw) {
	case document.Object:
		var sum uint64 // members have no order
		document.Members(raw, func(name, value []byte) bool {
			member := binary.AppendUvarint(nil, uint64(len(name)))
			member = append(member, name...)
			sum += xxhash.Sum64(binary.LittleEndian.AppendUint64(member, jsonDigest(value)))
			return true
		})
		buf = binary.LittleEndian.AppendUint64(buf, sum)
	case document.Array:
		document.Elements(raw, func(_ int, value []byte) bool {
			buf = binary.LittleEndian.AppendUint64(buf, jsonDigest(value))
			return true
		})
	default:
		buf = document.AppendCanonical(buf, raw)
	}
	return xxhash.Sum64(buf)
}
