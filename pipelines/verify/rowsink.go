package verify

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
)

// elsewhere says that the sink is not the one to which the pipeline has written, or
// not any more: there is nothing to compare then, and a repair must not fill it.
func (c *rowCheck) elsewhere(ctx context.Context, at registry.Checkpoints) (string, error) {
	if c.p.Record.Spec.Project.Sink.Container != nil {
		return "", nil // partitions tell positions to nobody else
	}
	// A sink that has recorded less than the pipeline's checkpoint says is
	// another one under the same name: the same relative directory on another
	// host, a database restored from yesterday. All rows would count as missing,
	// and a repair would fill the wrong one.
	recorded, err := c.reader.Positions(ctx, c.p.Projection.Schema())
	if err != nil {
		return "", fmt.Errorf("read the positions of its sink: %w", err)
	}
	for _, h := range c.sources {
		r := c.p.Projection.Resource(h.partition)
		known := at.Of(&c.p.Record, processors.RoleSource, h.partition).Recorded
		if is := recorded[r.Producer().Source]; is.Before(known) {
			return fmt.Sprintf("its sink, %s, has recorded the changes of %s up to %s, and they were written up to %s: "+
				"it is not where the workers write to, or it was emptied or restored older; run this where the workers run, or fill it again with millrace rewind",
				c.p.Record.Spec.Destination(), h.partition, is, known), nil
		}
	}
	return "", nil
}

// subtractSink takes what is there from the sums.
func (c *rowCheck) subtractSink(ctx context.Context) error {
	digests := newRowSums(c.p.Projection, c.keeps)
	return c.readSink(ctx, func(table int, row project.Row) {
		c.subtract(table, row.Source, digests.rowDigest(&row))
	}, func(table int, reject project.Reject) error {
		digest, err := digests.rejectOrClaim(&reject)
		if err != nil {
			return err
		}
		c.subtract(table, reject.Source, digest)
		return nil
	})
}

// readSink calls seeRow for each row that the sink has, and seeReject for each of its rejects where it is judged
// what of them there is: table by table, at leisure.
func (c *rowCheck) readSink(ctx context.Context, seeRow func(table int, row project.Row), seeReject func(table int, reject project.Reject) error) error {
	schema := c.p.Projection.Schema()
	for table := range schema.Tables {
		c.reading = time.Now()
		for row, err := range c.reader.Rows(ctx, schema, table) {
			if err != nil {
				return fmt.Errorf("read the rows of table %s: %w", schema.Tables[table].Name, err)
			}
			seeRow(table, row)
			if err := c.pace(ctx); err != nil {
				return err
			}
		}
		if !c.keeps && !c.claims {
			continue
		}
		for reject, err := range c.reader.Rejects(ctx, schema, table) {
			if err != nil {
				return fmt.Errorf("read the rejects of table %s: %w", schema.Tables[table].Name, err)
			}
			if err := seeReject(table, reject); err != nil {
				return err
			}
			if err := c.pace(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// leisureMax bounds the time in which one table is read at leisure: files that were
// superseded meanwhile do not stay for ever.
const leisureMax = 5 * time.Minute

// pace lets the sink be read at leisure, unless it holds a transaction open
// meanwhile, or that takes too long: then the rest comes afterwards.
func (c *rowCheck) pace(ctx context.Context) error {
	c.looked++
	if c.looked%c.run.cfg.PageItems != 0 || c.p.Record.Spec.Project.Sink.Postgres != nil || time.Since(c.reading) > leisureMax {
		return nil
	}
	return c.run.pacer.Pace(ctx)
}

// subtract takes away what a row of the sink says.
func (c *rowCheck) subtract(table int, source string, digest uint64) {
	name := sumName(table, source)
	if !c.slices.Now.Has(name) {
		return
	}
	// No item has given it a sum. It may still: a row of a change behind high is
	// read here before noteInFlight tells of the change.
	one, again := c.unknown[name]
	if _, known := c.sums[name]; !known || again {
		// In an archive over a log that was trimmed most rows may be those of items
		// that nobody remembers. They are counted, and not kept in memory.
		if c.forgetsExpired() && !again && len(c.sums)*sumBytes+len(c.unknown)*unknownBytes > c.run.cfg.BytesMax {
			c.run.countUnjudged(c.p, 1)
			return
		}
		c.unknown[name] = unknownRows{source, one.rows + 1}
	}
	c.rows++
	c.sums[name] -= digest
}

// forgetsExpired says that rows of expired items stay, and that no log tells of all of them.
func (c *rowCheck) forgetsExpired() bool { return len(c.partial) > 0 && !c.p.dropsExpired() }

// suspects returns the sums that come to nothing nowhere.
func (c *rowCheck) suspects() map[uint64]bool {
	suspects := map[uint64]bool{}
	for name, sum := range c.sums {
		if !c.explained(name, sum) {
			suspects[name] = true
		}
	}
	return suspects
}

func (c *rowCheck) explained(name, sum uint64) bool {
	if sum == 0 {
		return true
	}
	// The item gave `would`, and no row has taken any of it away.
	if would, ok := c.unasked[name]; ok && sum == would {
		return true // nothing is there, and nothing must be
	}
	for _, change := range c.flight[name] {
		if sum+change == 0 {
			return true
		}
	}
	return false
}
