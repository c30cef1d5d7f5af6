package script

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/rid"
)

// Answer answers a request of a script.
func (t *Transaction) Answer(ctx context.Context, a *Ask) *Answer {
	if t.failed != nil {
		return refusal(t.failed)
	}
	write := a.Op != "read" && a.Op != "query"
	if time.Now().After(t.until) || write && (len(t.order) >= store.GuardedOpsMax || t.bytes+len(a.Body) > store.BatchBytesMax) {
		return &Answer{Refused: true}
	}
	var answer *Answer
	var err error
	switch a.Op {
	case "create", "upsert", "replace", "delete":
		answer, err = t.change(ctx, a)
	case "read":
		answer, err = t.read(ctx, a)
	case "query":
		answer, err = t.query(ctx, a)
	default:
		err = store.Refuse(store.StatusBadRequest, "there is no request %q", a.Op)
	}
	if err != nil {
		return refusal(t.judge(err))
	}
	return answer
}

// judge keeps an error that tells nothing about items, such as that of an owner that does not answer.
func (t *Transaction) judge(err error) error {
	if errors.Is(err, store.ErrBadRequest) {
		return err // that of a query is no *store.Error
	}
	if e, ok := errors.AsType[*store.Error](err); ok && e.Status >= 400 && e.Status < 500 &&
		e.Status != store.StatusGone && e.Status != store.StatusTooManyRequests && e.Status != store.StatusUnknown {
		return err
	}
	t.failed = err
	return err
}

func refusal(err error) *Answer {
	if e, ok := errors.AsType[*store.Error](err); ok {
		return &Answer{Status: int(e.Status), Message: e.Message}
	}
	if errors.Is(err, store.ErrBadRequest) {
		return &Answer{Status: int(store.StatusBadRequest), Message: err.Error()}
	}
	return &Answer{Status: 500, Message: "the store did not answer"}
}

// change carries out a write that a script asks for.
func (t *Transaction) change(ctx context.Context, a *Ask) (*Answer, error) {
	op := store.Operation{Body: []byte(a.Body)}
	var err error
	switch a.Op {
	case "create", "upsert":
		op.Kind = store.OpCreate
		if a.Op == "upsert" {
			op.Kind = store.OpUpsert
		}
		if !t.isContainer(a.Link) {
			return nil, t.otherContainer(a.Link)
		}
		if _, named := document.Get(op.Body, idPath); !named && !a.NoID {
			op.Body = withID(op.Body, newID())
		}
	default:
		op.Kind = store.OpReplace
		if a.Op == "delete" {
			op.Kind, op.Body = store.OpDelete, nil
		}
		if op.ID, err = t.idOf(ctx, a.Link); err != nil {
			return nil, err
		}
	}
	op.IfMatch = etagOf(a.ETag)
	_, status, now, err := t.Apply(ctx, op)
	if err != nil {
		return nil, err
	}
	return &Answer{Status: int(status), Body: now}, nil
}

// idPath is where an item has its id.
var idPath = document.Path{{Name: "id"}}

// Apply carries out one operation, as the owner would: create, replace, upsert or delete. It returns the id of the item, which
// the operation names or its body has, and the item as scripts get it, nil where it is gone. The error is a *store.Error for a refusal.
func (t *Transaction) Apply(ctx context.Context, op store.Operation) (id string, status store.Status, now json.RawMessage, err error) {
	id = op.ID
	if op.Kind != store.OpDelete {
		var named string
		if op.Body, named, err = t.body(op.Body); err != nil {
			return id, 0, nil, err
		}
		if id != "" && named != id {
			return id, 0, nil, store.Refuse(store.StatusBadRequest, "the item is %q, the body has the id %q; an id cannot be changed", id, named)
		}
		id = named
	}
	i, err := t.item(ctx, id)
	if err != nil {
		return id, 0, nil, err
	}
	if err := precondition(&op, id, i.now); err != nil {
		return id, 0, nil, err
	}
	status = store.StatusOK
	switch {
	case op.Kind == store.OpDelete:
		t.write(id, i, nil)
		return id, store.StatusNoContent, nil, nil
	case i.now == nil:
		status = store.StatusCreated
	}
	t.write(id, i, &store.Item{Key: t.place.Key, ID: id, Body: op.Body, ETag: store.ETag{LSN: pendingLSN}, Modified: time.Now().UnixMilli()})
	return id, status, t.shown(i.now), nil
}

// precondition judges existence and ETag as the owner does.
func precondition(op *store.Operation, id string, now *store.Item) error {
	switch {
	case op.Kind == store.OpCreate && now != nil && op.IfNoneMatch != (store.ETag{}):
		return store.Refuse(store.StatusPreconditionFailed, "item %q exists already in its logical partition, and the request expects that it does not", id)
	case op.Kind == store.OpCreate && now != nil:
		return store.Refuse(store.StatusConflict, "item %q exists already in its logical partition", id)
	case op.Kind == store.OpCreate, op.Kind == store.OpUpsert && now == nil && (op.IfMatch == (store.ETag{}) || op.IfNoneMatch != (store.ETag{})):
		return nil
	case op.Kind == store.OpUpsert && now == nil:
		return store.Refuse(store.StatusPreconditionFailed, "item %q does not exist, the request expects version %s", id, op.IfMatch)
	case now == nil:
		return absent(id)
	case op.IfMatch != (store.ETag{}) && op.IfMatch != now.ETag:
		return store.Refuse(store.StatusPreconditionFailed, "item %q is at version %s, the request expects %s", id, now.ETag, op.IfMatch)
	}
	return nil
}

func absent(id string) error {
	return store.Refuse(store.StatusNotFound, "item %q does not exist in its logical partition", id)
}

// etagOf reads the condition of a script: none, any, or that of a version. What is no ETag is one that no item has.
func etagOf(text string) store.ETag {
	if text == "" || text == "*" {
		return store.ETag{}
	}
	etag, err := store.ParseETag(text)
	if err != nil || etag == (store.ETag{}) {
		return store.ETag{LSN: math.MaxUint64}
	}
	return etag
}

func (t *Transaction) read(ctx context.Context, a *Ask) (*Answer, error) {
	id, err := t.idOf(ctx, a.Link)
	if err != nil {
		return nil, err
	}
	i, err := t.item(ctx, id)
	switch none := etagOf(a.NoneMatch); {
	case err != nil:
		return nil, err
	case i.now == nil:
		return nil, absent(id)
	case a.NoneMatch == "*", none != (store.ETag{}) && none == i.now.ETag:
		return &Answer{Status: int(store.StatusNotModified)}, nil
	}
	return &Answer{Status: int(store.StatusOK), Body: t.shown(i.now)}, nil
}

// pendingLSN is where ETags of items begin that were written and not committed: no log comes so far.
const pendingLSN = math.MaxUint64 - 1<<32

// write keeps a write of an item; nil removes it.
func (t *Transaction) write(id string, i *item, now *store.Item) {
	if i.written {
		t.order = slices.DeleteFunc(t.order, func(other string) bool { return other == id })
		if i.now != nil {
			t.bytes -= len(i.now.Body)
		}
	}
	t.order = append(t.order, id)
	if now != nil {
		t.bytes += len(now.Body)
		t.writes++
		now.ETag.Index = t.writes
	}
	i.now, i.written = now, true
}

// body checks the body of an item and returns it as it is stored, and its id.
func (t *Transaction) body(body []byte) (stored []byte, id string, err error) {
	if len(body) > store.ItemBytesMax {
		return nil, "", store.Refuse(store.StatusTooLarge, "the item has %d bytes; at most %d are allowed", len(body), store.ItemBytesMax)
	}
	if err := document.Check(body); err != nil {
		return nil, "", store.Refuse(store.StatusBadRequest, "the item: %v", err)
	}
	stored = t.place.Strip(body)
	if raw, named := document.Get(stored, idPath); named {
		if err := json.Unmarshal(raw, &id); err != nil {
			return nil, "", store.Refuse(store.StatusBadRequest, "the id of an item is a text")
		}
	}
	if err := document.CheckID(id); err != nil {
		return nil, "", store.Refuse(store.StatusBadRequest, "%v", err)
	}
	key, err := t.place.Container.KeyOf(stored)
	if err != nil {
		return nil, "", err
	}
	if key != t.place.Key {
		return nil, "", store.Refuse(store.StatusBadRequest,
			"the item has the partition key %s, and the script runs for %s: it writes to no other", key, t.place.Key)
	}
	return stored, id, nil
}

// withID returns an object that has no id with one.
func withID(body []byte, id string) []byte {
	rest := bytes.TrimSpace(bytes.TrimSpace(body)[1:])
	made := append(make([]byte, 0, len(rest)+64), `{"id":"`+id+`"`...)
	if rest[0] != '}' {
		made = append(made, ',')
	}
	return append(made, rest...)
}

// newID makes an id for an item that has none.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// item returns what the run knows of an item; it asks the owner once. That it is not there is known too.
func (t *Transaction) item(ctx context.Context, id string) (*item, error) {
	if i := t.items[id]; i != nil {
		return i, nil
	}
	resp, err := t.place.Container.Do(ctx, &store.Request{
		Partition: t.partition, Read: &store.ReadItems{Refs: []store.ItemRef{{Key: t.place.Key, ID: id}}},
	})
	if err != nil {
		return nil, err
	}
	if err := t.sees(resp.ReadLSN); err != nil {
		return nil, err
	}
	i := &item{was: resp.Read[0].ETag}
	if i.was != (store.ETag{}) {
		i.now = &resp.Read[0]
	}
	t.items[id] = i
	return i, nil
}

// sees checks that a state is not older than the one with which the transaction began.
func (t *Transaction) sees(lsn feed.LSN) error {
	if lsn < t.since {
		return fmt.Errorf("%w: a read of LSN %d behind LSN %d", store.ErrUnavailable, lsn, t.since)
	}
	return nil
}

// shown returns an item as scripts get it.
func (t *Transaction) shown(i *store.Item) json.RawMessage {
	self := rid.Item(t.place.RID, i.Key, i.ID)
	t.ids[self] = i.ID
	return store.AppendSystem(make([]byte, 0, len(i.Body)+256), i.Body, self.String(), self.ItemSelf(), i.ETag, i.Modified)
}

// isContainer tells whether a link is that of the container.
func (t *Transaction) isContainer(link string) bool {
	link = strings.Trim(link, "/")
	return link == strings.Trim(t.place.SelfLink, "/") || link == strings.Trim(t.place.AltLink, "/")
}

func (t *Transaction) otherContainer(link string) error {
	return store.Refuse(store.StatusBadRequest, "the link %.200q is not that of the container in which the script runs, %s", link, t.place.AltLink)
}

// idOf returns the id of the item that a link names.
func (t *Transaction) idOf(ctx context.Context, link string) (string, error) {
	link = strings.TrimPrefix(link, "/")
	if id, ok := strings.CutPrefix(link, strings.Trim(t.place.AltLink, "/")+"/docs/"); ok {
		return id, nil
	}
	text, ok := strings.CutPrefix(strings.TrimSuffix(link, "/"), strings.Trim(t.place.SelfLink, "/")+"/docs/")
	if !ok {
		return "", t.otherContainer(link)
	}
	meant, err := rid.ParseInside(text)
	if err != nil {
		return "", store.Refuse(store.StatusBadRequest, "%v", err)
	}
	if id, ok := t.ids[meant]; ok {
		return id, nil
	}
	r := store.QueryRequest{Text: "SELECT VALUE c.id FROM c", Key: t.place.Key}
	for {
		page, err := t.page(ctx, &r)
		if err != nil {
			return "", err
		}
		for _, row := range page.Rows {
			var id string
			if err := json.Unmarshal(row, &id); err != nil {
				return "", err
			}
			self := rid.Item(t.place.RID, t.place.Key, id)
			if t.ids[self] = id; self == meant {
				return id, nil
			}
		}
		if r.Continuation = page.Continuation; r.Continuation == "" {
			return "", store.Refuse(store.StatusNotFound, "no item of the logical partition has the resource id %s", meant)
		}
	}
}

// page asks for a page of a query.
func (t *Transaction) page(ctx context.Context, r *store.QueryRequest) (*store.QueryPage, error) {
	page, err := t.place.Container.Query(ctx, *r)
	if err != nil {
		return nil, err
	}
	for _, lsn := range page.LSNs {
		if err := t.sees(lsn); err != nil {
			return nil, err
		}
	}
	return page, nil
}

// query answers a page of a query over the logical partition. It does not see what the run has written.
func (t *Transaction) query(ctx context.Context, a *Ask) (*Answer, error) {
	if !t.isContainer(a.Link) {
		return nil, t.otherContainer(a.Link)
	}
	if a.Query == nil {
		return nil, store.Refuse(store.StatusBadRequest, "the query is missing")
	}
	r := store.QueryRequest{Text: a.Query.Query, Key: t.place.Key, Continuation: a.Continue, System: true}
	for _, p := range a.Query.Parameters {
		r.Params = append(r.Params, store.QueryParam{Name: strings.TrimPrefix(p.Name, "@"), Value: p.Value})
	}
	if len(a.PageSize) > 0 && string(a.PageSize) != "null" {
		if err := json.Unmarshal(a.PageSize, &r.RowsMax); err != nil || r.RowsMax == 0 || r.RowsMax < -1 {
			return nil, store.Refuse(store.StatusBadRequest, "pageSize is %.40s; -1 or a number from 1 is expected", a.PageSize)
		}
		r.RowsMax = max(r.RowsMax, 0)
	}
	page, err := t.page(ctx, &r)
	if err != nil {
		return nil, err
	}
	rows := append(make([]byte, 0, 1024), '[')
	for i, row := range page.Rows {
		if i > 0 {
			rows = append(rows, ',')
		}
		rows = append(rows, row...)
	}
	return &Answer{Status: int(store.StatusOK), Body: append(rows, ']'), Continuation: page.Continuation}, nil
}
