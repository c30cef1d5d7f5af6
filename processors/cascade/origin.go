package cascade

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/query"
	"github.com/millrace/millrace/store/tombstone"
)

// Origin is a source as it is: there, gone with a tombstone, or not known ever to
// have been.
type Origin struct{ v version }

// Position is the change that made the source what it is, zero if it never was.
func (o *Origin) Position() feed.Position { return o.v.position }

// Deleted says that the source is gone, has left a tombstone, and is not kept.
func (o *Origin) Deleted() bool { return o.v.left }

// Tombstones returns what the source container has to keep of items that go.
func (c *Cascade) Tombstones() tombstone.Wish { return c.wish }

// planTombstones decides what is kept of sources that go: the copied fields.
func (c *Cascade) planTombstones() {
	c.wish = tombstone.Wish{Where: c.cfg.SourceWhere, Expressions: query.MeaningNow}
	for _, s := range c.set {
		c.wish.Fields = append(c.wish.Fields, s.source.String())
	}
	slices.Sort(c.wish.Fields)
	c.wish.Fields = slices.Compact(c.wish.Fields)
	for _, s := range c.set {
		c.kept = append(c.kept, slices.Index(c.wish.Fields, s.source.String()))
	}
}

// Origins reads sources as they are now, behind a barrier, in the order asked. The error is 503
// if one is missing where tombstones are not in force.
func (c *Cascade) Origins(ctx context.Context, refs []store.ItemRef) ([]Origin, error) {
	sources, err := c.cfg.Source.ReadSources(ctx, refs, c.wish)
	if err != nil {
		return nil, err
	}
	origins := make([]Origin, len(sources))
	for i := range sources {
		s := &sources[i]
		// Without tombstones in force "not there" may be a source that was deleted and is
		// not known any more, or one that never was. The copies must not be judged by it.
		if !s.Known && !c.selects(s.Body) {
			return nil, &store.Error{
				Status: store.StatusUnavailable, RetryAfter: processors.RetryFirst,
				Message: fmt.Sprintf("source %s of pipeline %s is not there, and the tombstones of container %s are not in force yet: they are brought from its log",
					refs[i], c.cfg.Pipeline, c.cfg.Source.Info().Name),
			}
		}
		origins[i] = c.originOf(s)
	}
	return origins, nil
}

func (c *Cascade) originOf(s *store.Source) Origin {
	if s.Gone == nil || c.selects(s.Body) {
		return Origin{c.version(feed.Position(s.ETag), s.Body)}
	}
	v := version{position: s.Gone.Position, gone: true, left: !s.Expiring, time: s.Gone.Time, digest: c.digest(nil)}
	// With keep, a tombstone is a source that does not change any more: it is there, with
	// the fields that it had.
	if c.action() == store.CopySet {
		v.gone, v.left, v.set = false, false, c.keptFields(s.Gone)
		v.digest = c.digest(v.set)
	}
	return Origin{v}
}

// keptFields are the fields of copies whose source has left a tombstone.
func (c *Cascade) keptFields(s *tombstone.Stone) []store.Field {
	set := make([]store.Field, len(c.set))
	for i := range c.set {
		set[i] = store.Field{Path: c.set[i].Target, Value: s.Values[c.kept[i]]}
	}
	return set
}

// OriginOf returns a source that is there, or has never been if body is nil.
func (c *Cascade) OriginOf(body []byte) Origin { return Origin{c.version(feed.Position{}, body)} }

// OriginGone returns a source that was body until it went at a time, in unix
// milliseconds.
func (c *Cascade) OriginGone(body []byte, time int64) Origin {
	stone := &tombstone.Stone{Time: time, Values: make([][]byte, len(c.wish.Fields))}
	for i := range c.set {
		if raw, ok := document.Get(body, c.set[i].source); ok {
			stone.Values[c.kept[i]] = slices.Clone(raw)
		}
	}
	return c.originOf(&store.Source{Gone: stone})
}

// judge says how a copy is whose fields has returns, in an item that a client wrote
// last at modified.
func (c *Cascade) judge(v *version, has func(i int) []byte, modified int64) Verdict {
	switch {
	case !v.gone:
		for i := range v.set {
			if !sameValue(has(i), v.set[i].Value) {
				return Drift
			}
		}
		return Equal
	case !v.left:
		return Dangling
	case c.action() == store.CopyDelete:
		// A client that wrote the item after the deletion meant it to be there.
		if modified <= v.time {
			return Drift
		}
		return Dangling
	case len(c.each) > 0: // the element has to go
		return Drift
	}
	for i := range c.set {
		if has(i) != nil {
			return Drift
		}
	}
	return Equal
}

// repairCopy is the copy by which a repair makes what match names equal to v.
func (c *Cascade) repairCopy(v *version, match []store.Field) store.Copy {
	return c.copy(&targets{match: match}, v)
}
