package gateway

import (
	"bytes"
	"net/http"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/rid"
)

// itemWrite is a write of one item, as its request asks for it.
type itemWrite struct {
	c   *collection
	key feed.PartitionKey
	op  store.Operation
	// mustExist says that the operation, a replace, stands for an upsert with If-Match: *, so that a
	// missing item is answered as a failed precondition.
	mustExist bool
}

func (s *Server) createItem(x *exchange) error {
	w, err := s.newWrite(x, store.OpCreate)
	if err != nil {
		return err
	}
	if isTrue(x.header(headerUpsert)) {
		w.op.Kind = store.OpUpsert
		if err := w.guardUpsert(x.header("If-Match"), x.header("If-None-Match")); err != nil {
			return err
		}
	}
	return s.write(x, w)
}

// guardUpsert applies the conditions of an upsert. With If-Match: * it must not create, so it
// becomes a replace; with If-None-Match: * it must not replace, so it becomes a create. An etag is asked of an item
// that is there: what is not there is created.
func (w *itemWrite) guardUpsert(ifMatch, ifNoneMatch string) error {
	match, none := parseMatching(ifMatch), parseMatching(ifNoneMatch)
	switch {
	case none.any && (match.any || match.etag != (store.ETag{})):
		return refuse(http.StatusBadRequest, "if-match and if-none-match: * exclude each other")
	case none.any:
		w.op.Kind, w.op.IfNoneMatch = store.OpCreate, noETag
	case match.any:
		w.op.Kind, w.mustExist = store.OpReplace, true
	case match.etag != (store.ETag{}):
		w.op.IfMatch, w.op.IfNoneMatch = match.etag, noETag
	}
	return nil
}

func (s *Server) replaceItem(x *exchange) error {
	w, err := s.newWrite(x, store.OpReplace)
	if err != nil {
		return err
	}
	if w.op.ID, err = w.c.itemID(x, w.key); err != nil {
		return s.explainAbsence(x, w.c, err)
	}
	w.op.IfMatch = parseMatching(x.header("If-Match")).etag
	return s.write(x, w)
}

func (s *Server) patchItem(x *exchange) error {
	w, err := s.newWrite(x, store.OpPatch)
	if err != nil {
		return err
	}
	if w.op.ID, err = w.c.itemID(x, w.key); err != nil {
		return s.explainAbsence(x, w.c, err)
	}
	w.op.IfMatch = parseMatching(x.header("If-Match")).etag
	return s.write(x, w)
}

func (s *Server) deleteItem(x *exchange) error {
	w, err := s.newWrite(x, store.OpDelete)
	if err != nil {
		return err
	}
	if w.op.ID, err = w.c.itemID(x, w.key); err != nil {
		return s.explainAbsence(x, w.c, err)
	}
	w.op.IfMatch = parseMatching(x.header("If-Match")).etag
	return s.write(x, w)
}

// newWrite reads what all writes of items share: container, key and body.
func (s *Server) newWrite(x *exchange, kind store.OpKind) (*itemWrite, error) {
	if kind == store.OpPatch && x.namesTriggers() {
		return nil, refuse(http.StatusBadRequest, "a patch has no triggers; replace the item")
	}
	c, err := s.collection(x)
	if err != nil {
		return nil, err
	}
	w := &itemWrite{c: c, op: store.Operation{Kind: kind}}
	key, given, err := c.parseKey(x.header(headerKey))
	if err != nil {
		return nil, err
	}
	w.key = key
	switch kind { //nolint:exhaustive // the others have a body
	case store.OpDelete:
		if !given {
			return nil, errNoKey
		}
		return w, nil
	case store.OpPatch:
		if !given {
			return nil, errNoKey
		}
		w.op.Patch, w.op.Condition, err = parsePatch(x.body)
		return w, err
	}
	return w, w.setBody(x.body, given)
}

// errNoKey refuses a request for an item without its partition key.
var errNoKey = refuse(http.StatusBadRequest, "the partition key is missing: the header x-ms-documentdb-partitionkey is expected, such as [\"a\"]")

// setBody checks a body and sets it. Its partition key must be that of the request; without one
// in the request it is taken from the body.
func (w *itemWrite) setBody(body []byte, given bool) error {
	if len(body) > store.ItemBytesMax {
		return refuse(http.StatusRequestEntityTooLarge, "the item has %d bytes; at most %d are allowed", len(body), store.ItemBytesMax)
	}
	if err := document.Check(body); err != nil {
		return refuse(http.StatusBadRequest, "the item is not served: %v", err)
	}
	w.op.Body = withoutSystem(body)
	key, err := w.c.KeyOf(w.op.Body)
	if err != nil {
		return err
	}
	if given && key != w.key {
		return refuseAs(http.StatusBadRequest, subKeyMismatch,
			"the partition key of the item is %s, the header names %s", key, w.key)
	}
	w.key = key
	return nil
}

// withoutSystem returns an item without the properties that the store adds. Clients send them
// back as they got them.
func withoutSystem(body []byte) []byte {
	// Nearly all items have none, which one search tells. \u005f is an escaped underscore.
	if !bytes.Contains(body, []byte(`"_`)) && !bytes.Contains(body, []byte(`\u005`)) {
		return body
	}
	// The two characters may be elsewhere in the item. Only if a member of the item itself is
	// meant is it written again, which loses its white space.
	found := false
	document.Members(body, func(name, _ []byte) bool {
		found = isSystem(name)
		return !found
	})
	if !found {
		return body
	}
	out, first := append(make([]byte, 0, len(body)), '{'), true
	document.Members(body, func(name, raw []byte) bool {
		if isSystem(name) {
			return true
		}
		if !first {
			out = append(out, ',')
		}
		first = false
		out = append(document.AppendQuote(out, string(name)), ':')
		out = append(out, raw...)
		return true
	})
	return append(out, '}')
}

// isSystem reports whether a property is one that the store adds; _lsn is added by the change
// feed.
func isSystem(name []byte) bool {
	if string(name) == "_lsn" {
		return true
	}
	for _, s := range store.SystemProperties {
		if string(name) == s {
			return true
		}
	}
	return false
}

// write carries out one write and answers it.
func (s *Server) write(x *exchange, w *itemWrite) error {
	if x.namesTriggers() {
		return s.writeTriggered(x, w)
	}
	result, err := s.commit(x, w.c, &store.Transact{Key: w.key, Ops: []store.Operation{w.op}})
	if err != nil {
		x.saw(w.c.PartitionFor(w.key), refusedAt(err))
		return s.explainAbsence(x, w.c, w.explain(err))
	}
	res := &result.Results[0]
	x.session(sessionToken(w.c.PartitionFor(w.key), result.LSN))
	if w.op.Kind == store.OpDelete {
		x.answer(http.StatusNoContent, chargeWrite, nil)
		return nil
	}
	x.etag(res.Item.ETag.String())
	charge := writeCharge(len(res.Item.Body))
	if x.minimal() || len(res.Item.Body) == 0 {
		x.answer(int(res.Status), charge, nil)
		return nil
	}
	x.answer(int(res.Status), charge, w.c.appendItem(nil, &res.Item))
	return nil
}

// explain returns the error of a refused write with the protocol's status and substatus.
func (w *itemWrite) explain(err error) error {
	f := translate(err)
	switch {
	case w.mustExist && f.status == http.StatusNotFound && f.substatus == 0: // with one the container is gone
		return refuse(http.StatusPreconditionFailed, "%s", f.message)
	case f.status == http.StatusPreconditionFailed && w.op.Condition != "" && w.op.IfMatch == (store.ETag{}):
		return refuseAs(f.status, subConditionFailed, "%s", f.message)
	}
	return err
}

// appendItem appends an item as answers have it, with its system properties.
func (c *collection) appendItem(dst []byte, item *store.Item) []byte {
	self := rid.Item(c.rid, item.Key, item.ID)
	if dst == nil {
		dst = make([]byte, 0, len(item.Body)+256)
	}
	return store.AppendSystem(dst, item.Body, self.String(), self.ItemSelf(), item.ETag, item.Modified)
}

func (s *Server) readItem(x *exchange) error {
	c, err := s.collection(x)
	if err != nil {
		return err
	}
	key, given, err := c.parseKey(x.header(headerKey))
	if err != nil {
		return err
	}
	if !given {
		return errNoKey
	}
	id, err := c.itemID(x, key)
	if err != nil {
		return s.explainAbsence(x, c, err)
	}
	p := c.PartitionFor(key)
	resp, err := c.Do(x.ctx, &store.Request{Partition: p, Transact: &store.Transact{Key: key, Ops: []store.Operation{
		{Kind: store.OpRead, ID: id, IfNoneMatch: parseMatching(x.header("If-None-Match")).etag},
	}}})
	if err != nil {
		if ahead := s.strictlySeen(x, c, p.Number, refusedAt(err)); ahead != nil {
			return ahead
		}
		x.saw(p, refusedAt(err)) // that it is not there is seen too
		return s.explainAbsence(x, c, err)
	}
	if err := s.strictlySeen(x, c, p.Number, resp.Transact.LSN); err != nil {
		return err
	}
	res := &resp.Transact.Results[0]
	x.session(sessionToken(p, resp.Transact.LSN))
	// The owner compares one etag. * matches whatever the item is, so it is judged here.
	if res.Status == store.StatusNotModified || parseMatching(x.header("If-None-Match")).any {
		if res.Item.ETag != (store.ETag{}) {
			x.etag(res.Item.ETag.String())
		} else {
			// Unmodified, the owner sends no item: its etag is the one that the client has named.
			x.etag(parseMatchingText(x.header("If-None-Match")))
		}
		x.answer(http.StatusNotModified, chargeRead, nil)
		return nil
	}
	x.etag(res.Item.ETag.String())
	x.answer(http.StatusOK, readCharge(len(res.Item.Body)), c.appendItem(nil, &res.Item))
	return nil
}
