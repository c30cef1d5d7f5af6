package owner

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/query"
)

// copier is a compiled store.Copy.
type copier struct {
	action store.CopyAction
	where  *query.Expr
	match  []document.FieldValue // of the item; of the element when each is set
	setter *document.Setter
	each   *document.EachSetter
}

// copiers compiles the copies of one request, each once:
//
//	texts                               values             compiled
//	type = "order", lines, sku, name    "s1", "Apple"      texts, setter
//	the same                            "s2", "Pear"       setter
//	the same                            "s1", "Apple"      nothing
//
// A request is of one pipeline, whose texts are the same in all of its copies, while the
// values are those of the sources that its items copy: often one for a whole page.
// The zero value with a schema is ready for use, by one goroutine.
type copiers struct {
	schema *schema
	texts  map[string]*copyTexts
	whole  map[string]*copier
	key    []byte
	list   []*copier // of one item
	steps  [2][]byte // of an item that several copies change
}

// compileAll compiles copies up to the first that is refused.
func (cs *copiers) compileAll(copies []store.Copy) (list []*copier, refusal *store.Error) {
	list = cs.list[:0]
	for i := range copies {
		c, refusal := cs.compile(&copies[i])
		if refusal != nil {
			return list, refusal
		}
		list = append(list, c)
	}
	cs.list = list
	return list, nil
}

// copyTexts is what a Copy says but for its values, parsed.
type copyTexts struct {
	where      *query.Expr
	each       document.Path
	match, set []document.Path
}

// compile compiles a copy, or returns an equal one that was compiled before. Refusals are not
// kept: an equal copy is compiled, and refused, again.
func (cs *copiers) compile(c *store.Copy) (*copier, *store.Error) {
	// Looked up by all that the copy says, then by its texts. Compiling a copy for each item
	// of a repair of 1,000 cost 58,000 allocations, mostly of the parser; this 12,000.
	var texts int
	cs.key, texts = appendCopy(cs.key[:0], c)
	if known := cs.whole[string(cs.key)]; known != nil {
		return known, nil
	}
	t := cs.texts[string(cs.key[:texts])]
	if t == nil {
		var refusal *store.Error
		if t, refusal = parseCopy(c, cs.schema); refusal != nil {
			return nil, refusal
		}
		if cs.texts == nil {
			cs.texts, cs.whole = map[string]*copyTexts{}, map[string]*copier{}
		}
		cs.texts[string(cs.key[:texts])] = t
	}
	out, err := t.with(c)
	if err != nil {
		return nil, refuseCopy(err)
	}
	cs.whole[string(cs.key)] = out
	return out, nil
}

// appendCopy appends a key that is the same for equal copies only: first all of its texts,
// which end at texts, then its values. So one key serves both maps of copiers.
func appendCopy(dst []byte, c *store.Copy) (key []byte, texts int) {
	text := func(s string) { dst = append(binary.AppendUvarint(dst, uint64(len(s))), s...) }
	dst = append(dst, byte(c.Action))
	text(c.Where)
	text(c.Each)
	for _, fields := range [...][]store.Field{c.Match, c.Set} {
		dst = binary.AppendUvarint(dst, uint64(len(fields)))
		for i := range fields {
			text(fields[i].Path)
		}
	}
	texts = len(dst)
	for _, fields := range [...][]store.Field{c.Match, c.Set} {
		for i := range fields {
			if fields[i].Value == nil { // absent, which an empty value is not
				dst = append(dst, 0)
				continue
			}
			dst = append(binary.AppendUvarint(dst, uint64(len(fields[i].Value))+1), fields[i].Value...)
		}
	}
	return dst, texts
}

func refuseCopy(err error) *store.Error { return store.Refuse(store.StatusBadRequest, "copy: %v", err) }

// parseCopy parses the texts of a copy, and refuses what no copy may change.
func parseCopy(c *store.Copy, s *schema) (*copyTexts, *store.Error) {
	t := &copyTexts{}
	var err error
	if c.Where != "" {
		if t.where, err = query.ParseExpr(c.Where); err != nil {
			return nil, refuseCopy(err)
		}
	}
	for _, pointer := range copyPaths(c) {
		if reason := s.protected(pointer); reason != "" && c.Action != store.CopyDelete {
			return nil, store.Refuse(store.StatusBadRequest, "copy to %s: %s", pointer, reason)
		}
	}
	if t.match, err = fieldPaths(c.Match); err != nil {
		return nil, refuseCopy(err)
	}
	if t.set, err = fieldPaths(c.Set); err != nil {
		return nil, refuseCopy(err)
	}
	switch {
	case c.Action == store.CopyDelete && c.Each == "":
	case c.Action != store.CopySet && c.Action != store.CopyClear:
		return nil, store.Refuse(store.StatusBadRequest, "copy: action %d is not known here", c.Action)
	case c.Each != "":
		if t.each, err = document.ParseField(c.Each); err != nil {
			return nil, refuseCopy(err)
		}
	}
	return t, nil
}

// with compiles the copy whose texts were parsed.
func (t *copyTexts) with(c *store.Copy) (out *copier, err error) {
	out = &copier{action: c.Action, where: t.where}
	match, clear := fieldValues(t.match, c.Match), c.Action == store.CopyClear
	switch {
	case c.Each != "":
		var set []document.FieldValue
		if !clear {
			set = fieldValues(t.set, c.Set)
		}
		out.each, err = document.NewEachSetter(t.each, match, set, clear)
		return out, err
	case c.Action == store.CopyDelete:
	case clear:
		// Fields without values: the setter removes what is there.
		out.setter, err = document.NewSetter(fieldValues(t.set, make([]store.Field, len(c.Set))))
	default:
		out.setter, err = document.NewSetter(fieldValues(t.set, c.Set))
	}
	out.match = match
	return out, err
}

func fieldPaths(fields []store.Field) ([]document.Path, error) {
	paths := make([]document.Path, len(fields))
	for i := range fields {
		var err error
		if paths[i], err = document.ParseField(fields[i].Path); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// fieldValues joins paths with the values of their fields.
func fieldValues(paths []document.Path, fields []store.Field) []document.FieldValue {
	values := make([]document.FieldValue, len(fields))
	for i := range fields {
		values[i] = document.FieldValue{Path: paths[i], Value: fields[i].Value}
	}
	return values
}

// copyPaths are the JSON pointers that a copy may change, * standing for the
// elements of an array; the whole item for a delete.
func copyPaths(c *store.Copy) []string {
	if c.Action == store.CopyDelete {
		return []string{""}
	}
	prefix := ""
	if c.Each != "" {
		path, err := document.ParseField(c.Each)
		if err != nil {
			return []string{""}
		}
		prefix = path.Pointer() + "/*"
		if c.Action == store.CopyClear {
			return []string{prefix}
		}
	}
	var paths []string
	for _, f := range c.Set {
		path, err := document.ParseField(f.Path)
		if err != nil {
			return []string{""}
		}
		paths = append(paths, prefix+path.Pointer())
	}
	return paths
}

// copyGrowth is how much longer a copy usually makes an item, at most.
const copyGrowth = 256

// wants reports whether the copy applies to an item with this body.
func (c *copier) wants(body []byte) bool {
	if c.where != nil && !c.where.True(body) {
		return false
	}
	for i := range c.match {
		raw, ok := document.Get(body, c.match[i].Path)
		if !ok || !document.Equal(raw, c.match[i].Value) {
			return false
		}
	}
	return true
}

// edit appends to dst the body that the copy makes of one that it wants, and to undo the
// splices that lead back; changed is false if the body is as it should be.
func (c *copier) edit(dst []byte, undo []document.Splice, body []byte) (_ []byte, _ []document.Splice, changed bool, refusal *store.Error) {
	var err error
	if c.each != nil {
		dst, undo, changed, err = c.each.Append(dst, undo, body)
	} else {
		dst, undo, changed, err = c.setter.Append(dst, undo, body)
	}
	switch tooLarge := new(document.SizeError); {
	case errors.As(err, &tooLarge):
		refusal = store.Refuse(store.StatusTooLarge, "item would be %d bytes; at most %d are allowed", tooLarge.Size, store.ItemBytesMax)
	case err != nil:
		refusal = store.Refuse(store.StatusBadRequest, "%v", err)
	}
	return dst, undo, changed, refusal
}

// apply applies the copy to one item. changed is false if the copy does not apply to the item,
// or the item is as it should be.
func (c *copier) apply(t *txn, itemKey []byte, item *engine.Item) (changed bool, refusal *store.Error) {
	if !c.wants(item.Body) {
		return false, nil
	}
	if c.action == store.CopyDelete {
		t.removeCopied(itemKey, item)
		return true, nil
	}
	body, undo, changed, refusal := c.edit(t.arena.room(len(item.Body)+copyGrowth), t.arena.undoRoom(), item.Body)
	if refusal != nil || !changed {
		return false, refusal
	}
	body, undo = t.arena.use(body), t.arena.useUndo(undo)
	return t.putCopied(itemKey, body, item, undo)
}

// removeCopied removes an item because the item that it named is gone.
func (t *txn) removeCopied(itemKey []byte, item *engine.Item) {
	// The item may be what a scan shows, whose memory the next one overwrites.
	gone := *item
	gone.Body = bytes.Clone(item.Body)
	t.remove(slices.Clone(itemKey), &gone, feed.OpDelete)
}

// putCopied replaces the body of an item by one that copies made.
func (t *txn) putCopied(itemKey, body []byte, item *engine.Item, undo []document.Splice) (changed bool, refusal *store.Error) {
	if refusal := t.put(itemKey, &engine.Item{Key: item.Key, ID: item.ID, Body: body}, item, undo, true); refusal != nil {
		return false, refusal
	}
	return true, nil
}

var repairHandler = handler{
	decide: func(_ *decider, t *txn, r *store.Request, _ int) (*store.Response, bool) {
		result, write, refusal := decideRepair(t, r.Repair)
		if refusal != nil {
			return &store.Response{Err: refusal}, false
		}
		return &store.Response{Repair: result}, write
	},
	about: func(r *store.Request) string { return "repairs of pipeline " + r.Repair.Producer.Pipeline },
}

// decideRepair decides guarded repairs of single items. A refusal of one does not stop the
// others. write says whether there is something to commit.
func decideRepair(t *txn, r *store.Repair) (result *store.RepairResult, write bool, refusal *store.Error) {
	if len(r.Items) == 0 || len(r.Items) > store.ReadManyMax {
		return nil, false, store.Refuse(store.StatusBadRequest, "a repair has 1 to %d items, this one has %d", store.ReadManyMax, len(r.Items))
	}
	_, plant, refusal := t.fence(r.Producer, r.Epoch)
	if refusal != nil {
		return nil, false, refusal
	}
	t.senderRule = t.schema.rule(r.Producer.Pipeline, r.Producer.Generation)
	result = &store.RepairResult{
		LSN: t.lsn, Statuses: make([]store.Status, len(r.Items)), Reasons: make([]string, len(r.Items)),
	}
	copies := copiers{schema: t.schema}
	for i := range r.Items {
		status, refusal := t.repairItem(&copies, &r.Items[i])
		if refusal != nil {
			if refusal.Status == store.StatusInternal {
				return nil, false, refusal
			}
			status, result.Reasons[i] = refusal.Status, refusal.Message
		}
		result.Statuses[i] = status
	}
	if len(t.changes) > 0 || plant {
		t.effect = &feed.Effect{Producer: r.Producer, Epoch: r.Epoch}
		// Nothing but the epoch stays, as when the commit is applied. So a producer of repairs must have no
		// fan-outs and no intervals: where those are finished would be forgotten (cascade.repairPart).
		t.setRecord(recordProducer, r.Producer.String(), producerState{Epoch: r.Epoch}.encode())
	}
	return result, t.effect != nil, nil
}

func (t *txn) repairItem(copies *copiers, r *store.RepairItem) (store.Status, *store.Error) {
	itemKey := engine.ItemKey(r.Ref.Key, r.Ref.ID)
	item, err := t.get(r.Ref.Key, r.Ref.ID, itemKey)
	switch {
	case err != nil:
		return 0, store.Refuse(store.StatusInternal, "read item %s: %v", r.Ref, err)
	case item == nil || expired(item, t.now):
		return store.StatusNotFound, nil
	case store.ETag(item.Position) != r.IfMatch:
		return store.StatusPreconditionFailed, nil
	}
	// One bad copy does not cost the item the copies before it: they are applied, and then
	// the refusal is the answer.
	list, uncompiled := copies.compileAll(r.Copies)
	changed, refusal := t.applyTogether(copies, list, itemKey, item)
	if refusal != nil && len(list) > 1 {
		changed, refusal = t.applyEach(list, r.Ref, itemKey)
	}
	switch {
	case refusal != nil:
		return 0, refusal
	case uncompiled != nil && !t.removed(itemKey): // to an item that is gone it does not matter
		return 0, uncompiled
	case changed:
		return store.StatusOK, nil
	}
	return store.StatusNotModified, nil
}

// removed tells whether the transaction has removed an item.
func (t *txn) removed(itemKey []byte) bool {
	item, changed := t.items.get(itemKey)
	return changed && item == nil
}

// applyTogether decides what all copies make of one item, as one change. What a change
// costs is the whole item in the log, in the engine, and for all who read it:
//
//	an order of 2 KB with 4 lines, each a copy from another product
//	one by one   4 changes, 8 KB of log
//	together     1 change, 2 KB
func (t *txn) applyTogether(copies *copiers, list []*copier, itemKey []byte, item *engine.Item) (changed bool, refusal *store.Error) {
	if len(list) == 1 {
		return list[0].apply(t, itemKey, item)
	}
	body, next := item.Body, 0
	var undo []document.Splice
	for _, c := range list {
		if !c.wants(body) {
			continue
		}
		if c.action == store.CopyDelete {
			t.removeCopied(itemKey, item)
			return true, nil
		}
		// A step reads what the step before has made, so they write by turns to two buffers.
		after, back, edited, refusal := c.edit(copies.steps[next][:0], t.arena.undoRoom(), body)
		copies.steps[next] = after
		if refusal != nil {
			return false, refusal
		}
		if edited {
			body, next = after, 1-next
			undo = append(t.arena.useUndo(back), undo...) // the last step is undone first
		}
	}
	if len(undo) == 0 || bytes.Equal(body, item.Body) {
		return false, nil
	}
	return t.putCopied(itemKey, t.arena.keep(body), item, undo)
}

// applyEach applies copies one by one, each as a change of its own, after all of them together
// were refused. The refusal may be of their sum: each of two copies may fit into the item, and
// both together not.
func (t *txn) applyEach(list []*copier, ref store.ItemRef, itemKey []byte) (changed bool, refusal *store.Error) {
	for _, c := range list {
		item, err := t.get(ref.Key, ref.ID, itemKey)
		if err != nil {
			return false, store.Refuse(store.StatusInternal, "read item %s: %v", ref, err)
		}
		if item == nil { // a copy before has removed it
			break
		}
		one, refusal := c.apply(t, itemKey, item)
		if refusal != nil {
			return false, refusal
		}
		changed = changed || one
	}
	return changed, nil
}
