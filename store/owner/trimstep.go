package owner

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// trimStepBytes is about how much one purge takes: eight blocks of the server's store, which
// stands still meanwhile. An error in it makes the server refuse appends.
const trimStepBytes = 8 * 4 << 20

// trimData is the Data of a control transaction that raises the trim point.
type trimData struct {
	UpTo feed.LSN `json:"upTo"`
}

// commitTrim raises the trim point in the log, and waits until that is applied. Only then
// may anything go: whoever finds the log shorter must find the reason in it.
func (p *Partition) commitTrim(ctx context.Context, upTo feed.LSN) error {
	data, err := json.Marshal(trimData{upTo})
	if err != nil {
		return fmt.Errorf("trim point %d: %w", upTo, err)
	}
	var lsn feed.LSN
	var generation uint64
	if !p.onDecider(ctx, func(d *decider) {
		d.dropLost()
		if upTo > d.schema.trimmed() {
			t := newTxn(d.view(), d.draft)
			t.control = &feed.Control{Kind: store.ControlTrim, Data: data}
			d.draft.add(t, nil)
			d.draft.trimmed = upTo
			d.schema = d.schema.trimmedTo(upTo) // settings that are decided from here on repeat it
		}
		lsn, generation = d.decided(), d.generation
	}) {
		return errStopped
	}
	return p.waitApplied(ctx, lsn, generation)
}

// purge removes the commits up to the trim point, in steps. A process that dies on the way
// leaves a log that begins lower, which is no damage; the next owner goes on.
func (t *trimmer) purge(ctx context.Context, l *trimming, upTo feed.LSN) error {
	began, gone := time.Now(), uint64(0)
	shape, err := l.p.feed.Shape(ctx)
	if err != nil {
		return err
	}
	before := shape
	for shape.First <= upTo {
		if l.p.isClosed() || !l.p.lease.Valid() {
			return errStopped
		}
		step := max(t.stepBytes/max(shape.Bytes/max(shape.Commits, 1), 1), 1)
		to := min(upTo, shape.First-1+feed.LSN(step))
		var purged uint64
		if purged, err = l.p.feed.Trim(ctx, to); err != nil {
			break
		}
		if gone += purged; purged == 0 {
			return fmt.Errorf("partition %s: the purge up to LSN %d took nothing", l.p.id, to)
		}
		if err = t.pacer.Pace(ctx); err != nil {
			break
		}
		now, failed := l.p.feed.Shape(ctx)
		if err = failed; err != nil {
			break
		}
		shape = now
	}
	if gone == 0 {
		return err
	}
	freed := before.Bytes - min(shape.Bytes, before.Bytes)
	l.p.logShrank(freed)
	l.state.First = shape.First
	l.p.shape.Store(shape)
	meters.trims.Add(ctx, 1)
	meters.trimmedBytes.Add(ctx, int64(freed))
	l.p.log.Info("log trimmed", "up to", uint64(upTo), "commits", gone, "bytes", freed, "left", shape.Bytes,
		"took", time.Since(began).Round(time.Millisecond))
	return err
}

// logShrank takes what was trimmed from the size of the log at the last snapshot, so that it
// goes on telling by how much the log has grown since.
func (p *Partition) logShrank(bytes uint64) {
	p.logBytes.Store(p.logBytes.Load() - min(bytes, p.logBytes.Load()))
	if last := p.copied.Load(); last != nil {
		next := *last
		next.LogBytes -= min(bytes, next.LogBytes)
		p.copied.CompareAndSwap(last, &next)
	}
}
