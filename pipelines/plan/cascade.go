package plan

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/spec"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// cascadeCount counts the items whose copies are not what a cascade would make them.
type cascadeCount struct {
	*counting
	cascade *cascade.Cascade
	gone    map[store.ItemRef]cascade.Origin // sources that went
	is      func(body []byte) bool           // whether an item is a source
	full    bool                             // there are more of them
}

// cascade counts the effect of a cascade.
func (c *counting) cascade(ctx context.Context) error {
	compiled, err := c.next.Cascade(c.run.client, c.bound, cascade.Limits{})
	if err != nil {
		return err
	}
	n := &cascadeCount{counting: c, cascade: compiled}
	if err := c.expect(ctx, c.target); err != nil {
		return err
	}
	if len(c.target.Partitions()) > 0 {
		if err := n.departed(ctx); err != nil {
			return err
		}
	}
	return c.scan(ctx, c.target, n.page)
}

// planGoneMax bounds the sources that went which are kept in mind.
const planGoneMax = 200_000

// departed finds the sources that were deleted: the cascade reads so in their log, and does to
// their copies what onSourceDelete says. It leaves alone the copies of sources that were never
// there.
func (n *cascadeCount) departed(ctx context.Context) error {
	n.gone = map[store.ItemRef]cascade.Origin{}
	where := n.declared.Spec.Source.Where.Expr()
	n.is = func(body []byte) bool { return body != nil && (where == nil || where.True(body)) }
	for _, partition := range n.source.Partitions() {
		if err := n.departedFrom(ctx, partition, n.is); err != nil {
			return err
		}
	}
	if n.full {
		n.note("more than %s items of container %s were deleted; what becomes of the copies of some is not counted", format.Count(planGoneMax), n.source.Info().Name)
	}
	return nil
}

// departedFrom reads the log of one partition up to where it ends now.
func (n *cascadeCount) departedFrom(ctx context.Context, partition feed.Partition, is func([]byte) bool) error {
	log, err := feed.OpenLog(ctx, n.run.js, partition, feed.LogConfig{})
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", partition, err)
	}
	defer log.Close()
	first, last, err := log.Bounds(ctx)
	if err != nil || last == 0 {
		return err
	}
	if first > 1 {
		n.noteTrimmed(partition, first)
	}
	tail, err := log.Tail(ctx, first, feed.TailOptions{})
	if err != nil {
		return fmt.Errorf("read the log of %s: %w", partition, err)
	}
	defer tail.Close()
	for at := first - 1; at < last; {
		c, err := tail.Next(ctx)
		if err != nil {
			return fmt.Errorf("read the log of %s: %w", partition, err)
		}
		at = c.LSN
		for i := range c.Transactions {
			for j := range c.Transactions[i].Changes {
				if err := n.departs(&c.Transactions[i].Changes[j], c.Time, is); err != nil {
					return fmt.Errorf("commit %d of %s: %w", c.LSN, partition, err)
				}
			}
		}
	}
	return nil
}

// noteTrimmed says that a log does not tell of all sources that went.
func (n *cascadeCount) noteTrimmed(partition feed.Partition, first feed.LSN) {
	n.note("the log of %s was trimmed and begins at LSN %s: what becomes of copies of sources that were deleted before is not counted", partition, first)
}

// departs notes what one change, of a commit at a time, means for the sources that are gone:
//
//	created, or selected again         no longer gone
//	deleted, or not selected any more  gone, with what it was
func (n *cascadeCount) departs(ch *feed.Change, time int64, is func([]byte) bool) error {
	ref := store.ItemRef{Key: ch.Key, ID: ch.ID}
	if is(ch.After) {
		delete(n.gone, ref)
		return nil
	}
	before, err := ch.BeforeBody()
	if err != nil || !is(before) {
		return err
	}
	if len(n.gone) >= planGoneMax {
		n.full = true
		return nil
	}
	n.gone[ref] = n.cascade.OriginGone(before, time)
	return nil
}

// page counts the items of one page.
func (n *cascadeCount) page(ctx context.Context, partition feed.Partition, items []store.Item) error {
	// The sources of a page are read together, each once, however many items name it.
	refs := make([][]cascade.Reference, len(items))
	at := map[store.ItemRef]int{}
	var wanted []store.ItemRef
	for i := range items {
		refs[i] = n.cascade.Expected(items[i].Body)
		for _, r := range refs[i] {
			if _, known := at[r.Source]; !known && r.Possible {
				at[r.Source] = len(wanted)
				wanted = append(wanted, r.Source)
			}
		}
	}
	sources := make([]store.Item, len(wanted))
	if len(n.source.Partitions()) > 0 {
		var err error
		if sources, err = n.source.ReadMany(ctx, wanted, false); err != nil {
			return fmt.Errorf("read the sources of items in %s: %w", partition, err)
		}
	}
	var page Effect
	var samples []Sample
	room := n.room(partition)
	for i := range items {
		one := itemCount{n: n, item: &items[i], sampled: len(samples) < room}
		for j := range refs[i] {
			var source []byte
			if r := &refs[i][j]; r.Possible {
				source = sources[at[r.Source]].Body
			}
			one.copy(&refs[i][j], source)
		}
		if len(refs[i]) > 0 {
			one.add(&page)
		}
		if one.sampled && one.action != "" {
			samples = append(samples, one.sample())
		}
	}
	n.found(partition, &page, samples)
	return nil
}

// itemCount is what becomes of one item.
type itemCount struct {
	n        *cascadeCount
	item     *store.Item
	sampled  bool
	action   SampleAction
	copies   int64
	dangling int64
	edits    []Edit
}

// copy takes in one copy that the item holds, and its source, nil if there is none.
func (o *itemCount) copy(r *cascade.Reference, source []byte) {
	origin := o.n.cascade.OriginOf(source)
	// The item counts if it is there and is selected: it may have been made again since its log
	// was read.
	if gone, ok := o.n.gone[r.Source]; ok && r.Possible && !o.n.is(source) {
		origin = gone
	}
	switch o.n.cascade.Compare(r, &origin, o.item.Modified) {
	case cascade.Equal:
	case cascade.Drift:
		if origin.Deleted() {
			o.departed(r)
			return
		}
		o.changed()
		for i, want := range o.n.cascade.Wanted(&origin) {
			o.edit(o.path(r, r.Has[i].Path), r.Has[i].Value, want.Value)
		}
	case cascade.Dangling:
		o.dangling++
	}
}

// departed takes in a copy whose source went.
func (o *itemCount) departed(r *cascade.Reference) {
	if o.n.declared.Spec.Cascade.OnSourceDelete == spec.Delete {
		o.action, o.copies, o.edits = SampleDeleted, o.copies+1, nil
		return
	}
	if r.Element >= 0 {
		o.changed()
		path := o.path(r, "")
		element, _ := document.Get(o.item.Body, path)
		o.edit(path, element, nil)
		return
	}
	for _, has := range r.Has {
		if has.Value != nil {
			o.changed()
			o.edit(o.path(r, has.Path), has.Value, nil)
		}
	}
}

func (o *itemCount) changed() {
	o.copies++
	if o.action == "" {
		o.action = SampleChanged
	}
}

// path returns where a field of a copy is in the item; "" is the copy as a whole.
func (o *itemCount) path(r *cascade.Reference, field string) document.Path {
	var path document.Path
	if r.Element >= 0 {
		path = append(slices.Clip(o.n.declared.Spec.Cascade.Each.Path()), document.Step{Index: r.Element, IsIndex: true})
	}
	if field != "" {
		p, err := document.ParseField(field)
		if err != nil {
			return document.Path{{Name: field}}
		}
		path = append(path, p...)
	}
	return path
}

func (o *itemCount) edit(path document.Path, has, want []byte) {
	if o.sampled && o.action != SampleDeleted {
		o.edits = append(o.edits, diffJSON(path, has, want)...)
	}
}

// add adds the item to a page.
func (o *itemCount) add(page *Effect) {
	page.Compared++
	page.Dangling += o.dangling
	switch o.action {
	case SampleChanged:
		page.Changed++
	case SampleDeleted:
		page.Deleted++
	default:
		page.Equal++
		return
	}
	page.Copies += o.copies
	page.Cost.Writes += o.copies
	page.Cost.Bytes += o.copies * int64(len(o.item.Body))
}

func (o *itemCount) sample() Sample {
	s := Sample{Action: o.action, Item: store.ItemRef{Key: o.item.Key, ID: o.item.ID}.String()}
	s.show(o.edits)
	return s
}

// show keeps the first of edits.
func (s *Sample) show(edits []Edit) {
	s.Edits = edits[:min(len(edits), EditsMax)]
	s.More = len(edits) - len(s.Edits)
}
