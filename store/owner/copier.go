package owner

import (
	"bytes"
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

func compileCopy(c *store.Copy, s *schema) (*copier, *store.Error) {
	bad := func(err error) (*copier, *store.Error) {
		return nil, store.Refuse(store.StatusBadRequest, "copy: %v", err)
	}
	out := &copier{action: c.Action}
	if c.Where != "" {
		e, err := query.ParseExpr(c.Where)
		if err != nil {
			return bad(err)
		}
		out.where = e
	}
	for _, pointer := range copyPaths(c) {
		if reason := s.protected(pointer); reason != "" && c.Action != store.CopyDelete {
			return nil, store.Refuse(store.StatusBadRequest, "copy to %s: %s", pointer, reason)
		}
	}
	match, err := fieldValues(c.Match, false)
	if err != nil {
		return bad(err)
	}
	set, err := fieldValues(c.Set, c.Action == store.CopyClear)
	if err != nil {
		return bad(err)
	}
	switch {
	case c.Action == store.CopyDelete && c.Each == "":
		out.match = match
	case c.Action != store.CopySet && c.Action != store.CopyClear:
		return nil, store.Refuse(store.StatusBadRequest, "copy: action %d is not known here", c.Action)
	case c.Each != "":
		array, err := document.ParseField(c.Each)
		if err != nil {
			return bad(err)
		}
		clear := c.Action == store.CopyClear
		if clear {
			set = nil
		}
		if out.each, err = document.NewEachSetter(array, match, set, clear); err != nil {
			return bad(err)
		}
	default:
		out.match = match
		if out.setter, err = document.NewSetter(set); err != nil {
			return bad(err)
		}
	}
	return out, nil
}

func fieldValues(fields []store.Field, clear bool) ([]document.FieldValue, error) {
	values := make([]document.FieldValue, len(fields))
	for i, f := range fields {
		path, err := document.ParseField(f.Path)
		if err != nil {
			return nil, err
		}
		values[i] = document.FieldValue{Path: path, Value: f.Value}
		if clear {
			values[i].Value = nil
		}
	}
	return values, nil
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

// apply decides what the copy makes of one item: nothing if it is as it should
// be, or is not the copy's business.
func (c *copier) apply(t *txn, itemKey []byte, item *engine.Item) (changed bool, refusal *store.Error) {
	if c.where != nil && !c.where.True(item.Body) {
		return false, nil
	}
	for i := range c.match {
		raw, ok := document.Get(item.Body, c.match[i].Path)
		if !ok || !document.Equal(raw, c.match[i].Value) {
			return false, nil
		}
	}
	if c.action == store.CopyDelete {
		gone := *item
		gone.Body = bytes.Clone(item.Body)
		t.remove(slices.Clone(itemKey), &gone, feed.OpDelete)
		return true, nil
	}
	body, undo := t.arena.room(len(item.Body)+copyGrowth), t.arena.undo()
	var err error
	if c.each != nil {
		body, undo, changed, err = c.each.Append(body, undo, item.Body)
	} else {
		body, undo, changed, err = c.setter.Append(body, undo, item.Body)
	}
	switch tooLarge := new(document.SizeError); {
	case errors.As(err, &tooLarge):
		return false, store.Refuse(store.StatusTooLarge, "item would be %d bytes; at most %d are allowed", tooLarge.Size, store.ItemBytesMax)
	case err != nil:
		return false, store.Refuse(store.StatusBadRequest, "%v", err)
	case !changed:
		return false, nil
	}
	body, undo = t.arena.took(body), t.arena.tookUndo(undo)
	after := &engine.Item{Key: item.Key, ID: item.ID, Body: body}
	if refusal := t.put(itemKey, after, item, undo, true); refusal != nil {
		return false, refusal
	}
	return true, nil
}

// decideRepair decides guarded repairs of single items, each by itself.
func decideRepair(t *txn, r *store.Repair) (*store.RepairResult, *store.Error) {
	if len(r.Items) == 0 || len(r.Items) > store.ReadManyMax {
		return nil, store.Refuse(store.StatusBadRequest, "a repair has 1 to %d items, this one has %d", store.ReadManyMax, len(r.Items))
	}
	_, plant, refusal := t.fence(r.Producer, r.Epoch)
	if refusal != nil {
		return nil, refusal
	}
	t.sent = t.schema.rule(r.Producer.Pipeline, r.Producer.Generation)
	result := &store.RepairResult{
		LSN: t.lsn, Statuses: make([]store.Status, len(r.Items)), Reasons: make([]string, len(r.Items)),
	}
	for i := range r.Items {
		status, refusal := t.repairOne(&r.Items[i])
		if refusal != nil {
			if refusal.Status == store.StatusInternal {
				return nil, refusal
			}
			status, result.Reasons[i] = refusal.Status, refusal.Message
		}
		result.Statuses[i] = status
	}
	if len(t.changes) > 0 || plant {
		t.effect = &feed.Effect{Producer: r.Producer, Epoch: r.Epoch}
		t.setRecord(recordProducer, r.Producer.String(), producerState{Epoch: r.Epoch}.encode())
	}
	return result, nil
}

func (t *txn) repairOne(r *store.RepairItem) (store.Status, *store.Error) {
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
	status := store.StatusNotModified
	for i := range r.Copies {
		c, refusal := compileCopy(&r.Copies[i], t.schema)
		if refusal != nil {
			return 0, refusal
		}
		changed, refusal := c.apply(t, itemKey, item)
		if refusal != nil {
			return 0, refusal
		}
		if changed {
			status = store.StatusOK
			if r.Copies[i].Action == store.CopyDelete {
				return status, nil
			}
			if item, err = t.get(r.Ref.Key, r.Ref.ID, itemKey); err != nil {
				return 0, store.Refuse(store.StatusInternal, "read item %s: %v", r.Ref, err)
			}
		}
	}
	return status, nil
}
