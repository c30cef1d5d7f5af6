package owner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/snapshot"
)

// Hold says that somebody still reads a log.
type Hold struct {
	// Reader is who, for people, such as "pipeline order-stats".
	Reader string
	// Doing is what he does meanwhile, such as "reads a snapshot"; "" if he just reads on.
	Doing string
	// After is the last LSN that he has read: what is behind it he needs. The commit at it is
	// kept for him too while it is there, for his next holder compares its checksum, and goes
	// on without where it is gone.
	After feed.LSN
	// Walks says that he adds up the items of a snapshot: until he is done with them the partition is not split, because its
	// children's items are others, in another order.
	Walks bool
}

// Holds returns who reads the logs of partitions and how far each has come. Nothing is
// trimmed while barred tells a reason against it, which is no failure and may last, or an
// error says that who reads is not known. A node asks the registry of pipelines
// (cmd/millrace/node/holds.go).
type Holds func(ctx context.Context) (holds map[feed.Partition][]Hold, barred string, err error)

// why says by what he holds a log.
func (h *Hold) why() string {
	if h.Doing != "" {
		return h.Reader + " " + h.Doing + " and has not read more"
	}
	return h.Reader + " has not read more"
}

// readers returns who reads a log and how far, or why it may not be trimmed whoever does.
func (t *trimmer) readers(ctx context.Context, l *trimming, now time.Time) (held []Hold, barred string, err error) {
	if _, known := t.ends[l.p]; !known || now.Sub(t.askedAt) >= holdsInterval {
		t.ends = map[*Partition]feed.LSN{}
		for _, p := range t.s.partitions() {
			t.ends[p] = p.state.Load().lsn
		}
		t.holds, t.notNow, t.failed = nil, "", nil
		if t.s.cfg.Holds != nil {
			t.holds, t.notNow, t.failed = t.s.cfg.Holds(ctx)
		}
		t.askedAt = now
	}
	if t.failed != nil {
		return nil, "", fmt.Errorf("who reads it is not known: %w", t.failed)
	}
	if t.notNow != "" {
		return nil, t.notNow, nil
	}
	held = slices.Clone(t.holds[l.p.id])
	pins, err := snapshot.Pins(ctx, t.s.cfg.snapshots, l.p.id)
	if err != nil {
		return nil, "", err
	}
	for i := range pins {
		held = append(held, Hold{Reader: pins[i].Holder, Doing: "reads a snapshot", After: pins[i].LSN})
	}
	return held, "", nil
}

// noteLate notes whom retentionMax will cut off.
func (t *trimmer) noteLate(ctx context.Context, l *trimming, held []Hold, clock time.Time) error {
	l.state.Late = nil
	most, times := l.spec.RetentionMax, map[feed.LSN]time.Time{}
	for _, h := range held {
		if most == 0 || h.After >= l.lsn {
			continue
		}
		next, known := l.times[h.After+1]
		if !known {
			var err error
			if next, err = l.p.feed.Time(ctx, h.After+1); errors.Is(err, feed.ErrNotFound) {
				continue // trimmed already
			} else if err != nil {
				return err
			}
		}
		times[h.After+1] = next
		// Told in the second half of the time that it has: a pipeline that lags for a moment
		// is no news, and one that stands still is known for long enough.
		if clock.Sub(next) > most/2 {
			l.state.Late = append(l.state.Late, store.LateReader{Reader: h.Reader, After: h.After, CutOff: next.Add(most)})
		}
	}
	l.times = times
	return nil
}

// cutOff says of each reader who loses what he has not read that he is cut off. The trim
// point is in the log, and what lies up to upTo is about to go.
func (t *trimmer) cutOff(l *trimming, held []Hold, shape *feed.Shape, upTo feed.LSN) {
	for _, h := range held {
		// A log that begins with LSN 14, trimmed up to 20:
		//
		//	read up to 12    was cut off before, by whoever trimmed then
		//	read up to 13    loses 14 to 20; told once, however many attempts the purge takes
		//	read up to 20    loses nothing
		//	told at 20, went on from 30, trimmed up to 40    told again
		if h.After+1 < shape.First || h.After >= upTo || l.cutOff[h.Reader] > h.After {
			continue
		}
		l.cutOff[h.Reader] = upTo
		l.p.log.Error("a reader is cut off: what it has not read is older than changeFeed.retentionMax and goes",
			"reader", h.Reader, "read up to", uint64(h.After), "trimmed up to", uint64(upTo), "retentionMax", l.spec.RetentionMax)
	}
}

// slowest returns how much of a log up to an LSN none of its readers needs, and who needs
// what is behind that.
func slowest(held []Hold, shape *feed.Shape, upTo feed.LSN) (feed.LSN, string) {
	why := ""
	for i := range held {
		// A log that begins with LSN 14:
		//
		//	read up to 12    needs 13, which is gone and comes back by no waiting
		//	read up to 13    needs 14: nothing goes
		//	read up to 20    needs 21, and compares 20: up to 19 may go
		h := &held[i]
		if to := max(h.After, shape.First, 1) - 1; h.After+1 >= shape.First && to < upTo {
			upTo, why = to, h.why()
		}
	}
	return upTo, why
}

// snapshotFloor returns the LSN up to which snapshots hold what the log says: that of the
// older one of two, so that one may turn out to be damaged; at rest that of the newest, for
// what is kept then should follow from what lives and not from when it was written.
func (t *trimmer) snapshotFloor(ctx context.Context, l *trimming, now time.Time) (feed.LSN, string, error) {
	usable, why, err := t.usableSnapshots(ctx, l)
	switch {
	case err != nil || len(usable) == 0:
		return 0, why, err
	case l.rests(&t.s.cfg, now):
		return usable[0].LSN, "the newest snapshot is of LSN " + usable[0].LSN.String(), nil
	case len(usable) == 1:
		return 0, "there is one snapshot, and two are kept", nil
	}
	return usable[1].LSN, "the older snapshot is of LSN " + usable[1].LSN.String(), nil
}

// usableSnapshots returns the snapshots of a log that nobody has found damaged, the newest first,
// or says why there is none.
func (t *trimmer) usableSnapshots(ctx context.Context, l *trimming) ([]*snapshot.Manifest, string, error) {
	newest := l.p.copied.Load()
	if newest == nil {
		return nil, "snapshots are not known yet", nil
	}
	if newest != l.seen || l.kept == nil {
		all, _, err := snapshot.Newest(ctx, t.s.cfg.snapshots, l.p.id)
		if err != nil {
			return nil, "", err
		}
		l.seen, l.kept = newest, nil
		for _, m := range all {
			if m.Log == l.p.feed.ID() {
				l.kept = append(l.kept, m)
			}
		}
	}
	usable := slices.DeleteFunc(slices.Clone(l.kept), func(m *snapshot.Manifest) bool {
		return l.p.isUnusable(m.ID())
	})
	switch {
	case len(l.kept) == 0:
		return nil, "there is no snapshot yet", nil
	case len(usable) == 0:
		return nil, "the snapshots are damaged, and another one is to be taken", nil
	}
	return usable, "", nil
}

// wholeSnapshot returns the LSN of the newest snapshot that is whole: this process has taken it,
// loaded it, or reads it now. It alone holds what goes from the log. An owner that opens with an
// engine of its own has read no snapshot, and what another one has found is not known here.
func (t *trimmer) wholeSnapshot(ctx context.Context, l *trimming) (feed.LSN, string, error) {
	usable, why, err := t.usableSnapshots(ctx, l)
	if err != nil {
		return 0, "", err
	}
	for _, m := range usable {
		damage, err := l.p.damageOf(ctx, m, func() error { return t.pacer.Pace(ctx) })
		if err != nil {
			return 0, "", err
		}
		if damage == nil {
			return m.LSN, "the newest snapshot that is whole is of LSN " + m.LSN.String(), nil
		}
		named, err := t.stillNamed(ctx, l, m)
		if err != nil {
			return 0, "", err
		}
		if !named {
			l.p.unusable.Delete(m.ID())
			return 0, "newer snapshots have taken the place of those that were being read", nil
		}
		l.p.log.Error("a snapshot cannot be used", "snapshot", m.ID(), "error", damage)
		l.p.doubt()
		why = "the snapshots are damaged, and another one is to be taken"
	}
	return 0, why, nil
}

// stillNamed tells whether a snapshot is one of those that are kept, by what is kept now. It is read in a share of the
// time, and may go meanwhile: its parts are gone then, and nothing is damaged.
func (t *trimmer) stillNamed(ctx context.Context, l *trimming, m *snapshot.Manifest) (bool, error) {
	l.kept = nil
	all, _, err := snapshot.Newest(ctx, t.s.cfg.snapshots, l.p.id)
	return slices.ContainsFunc(all, func(is *snapshot.Manifest) bool { return is.ID() == m.ID() }), err
}
