package console

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/declaration"
	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
)

const (
	// itemsShown is how many items a page of a container shows.
	itemsShown = 50
	// previewMax bounds what a list shows of one item, in bytes.
	previewMax = 160
	// formMax bounds the form with which an item is written: it encodes most signs of JSON in three
	// bytes.
	formMax = 16 << 20
)

func (c *Console) containers(x *exchange) error {
	all, err := c.client.Catalog().List(x.r.Context())
	if err != nil {
		return err
	}
	return c.show(x, "containers", "Containers", all, all)
}

// containerPage is a container and some of its items.
type containerPage struct {
	*inspect.Container
	Declaration string
	Items       []itemRow
	// Next is the query of the page that follows; "" if there is none.
	Next string
	// Missing are partitions whose items cannot be shown; Unread says why none can.
	Missing []missing
	Unread  string
}

// itemRow is an item in a list.
type itemRow struct {
	Ref     string // what parseRef reads
	ID, Key string
	Preview string
	ETag    store.ETag
}

func (c *Console) container(x *exchange) error {
	ctx := x.r.Context()
	if !wantsJSON(x.r) {
		// The rest of the page's time is for the items, of which there are some wherever an owner answers.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ownersTimeout)
		defer cancel()
	}
	inspector := inspect.New(&c.cfg.Inspect)
	defer inspector.Close()
	now, err := inspector.Container(ctx, x.r.PathValue("database"), x.r.PathValue("name"), wantsJSON(x.r))
	if err != nil {
		return err
	}
	doc, err := declaration.JSON(registry.ContainerDocument(&now.ContainerInfo))
	if err != nil {
		return err
	}
	if wantsJSON(x.r) {
		return writeJSON(x.w, now.JSON(doc))
	}
	var text strings.Builder
	if err := declaration.WriteYAML(&text, doc); err != nil {
		return err
	}
	page := containerPage{Container: now, Declaration: text.String()}
	ct, err := c.client.Open(now.ContainerInfo)
	if err == nil {
		err = page.listItems(x.r.Context(), ct.Scan, ct.Partitions(), x.r.URL.Query().Get("from"))
	}
	if err != nil {
		page.Unread = err.Error()
	}
	return c.show(x, "container", "Container "+now.Name, page, nil)
}

// missing is a partition whose items are not in a list.
type missing struct {
	Partition string
	Why       string
	From      string // where the list goes on with them
}

const (
	// ownersTimeout bounds how long a page waits until all owners have said how their partitions are.
	ownersTimeout = pageTimeout / 2
	// scanTimeout bounds how long a list waits for one partition: others may have what is looked for.
	scanTimeout = 5 * time.Second
	// listTimeout bounds how long it waits for all of them: then it ends, and leads on. With ownersTimeout it is less
	// than pageTimeout.
	listTimeout = 12 * time.Second
)

// scanFunc reads items of a partition.
type scanFunc func(context.Context, feed.Partition, store.Scan) (*store.ScanResult, error)

// listItems reads a page of items, partition after partition. Where it goes on stands in the
// page's address: the place of the partition among all, a dot, and the cursor. A partition that does
// not answer is named, and passed over; one whose owner has just not said how it is, is not asked at all.
func (p *containerPage) listItems(ctx context.Context, scan scanFunc, partitions []feed.Partition, from string) error {
	at, after, err := parseFrom(from)
	if err != nil {
		return err
	}
	listing, stop := context.WithTimeout(ctx, listTimeout)
	defer stop()
	for ; at < len(partitions) && len(p.Items) < itemsShown; at, after = at+1, nil {
		if now := &p.Partitions[at]; now.Status == nil {
			p.Missing = append(p.Missing, missing{partitions[at].String(), now.Error, fromText(at, after)})
			continue
		}
		one, cancel := context.WithTimeout(listing, scanTimeout)
		found, err := scan(one, partitions[at], store.Scan{After: after, ItemsMax: itemsShown - len(p.Items)})
		// Not deferred: the timers of all partitions would stay until the end.
		cancel()
		// The browser has gone. Without this every other partition would be asked, and called missing.
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		if err != nil && listing.Err() != nil {
			break // what follows was not asked: the next page begins there
		}
		if err != nil {
			p.Missing = append(p.Missing, missing{partitions[at].String(), err.Error(), fromText(at, after)})
			continue
		}
		for i := range found.Items {
			p.Items = append(p.Items, rowOf(&found.Items[i]))
		}
		// The page is full, or the owner has ended it for its bytes: the next one goes on there.
		if found.Cursor != nil {
			p.Next = fromText(at, found.Cursor)
			return nil
		}
	}
	if at < len(partitions) {
		p.Next = fromText(at, after)
	}
	return nil
}

// fromText is what parseFrom reads.
func fromText(partition int, after []byte) string {
	return strconv.Itoa(partition) + "." + base64.RawURLEncoding.EncodeToString(after)
}

func parseFrom(text string) (partition int, after []byte, err error) {
	if text == "" {
		return 0, nil, nil
	}
	number, cursor, ok := strings.Cut(text, ".")
	partition, err = strconv.Atoi(number)
	if err == nil && ok && cursor != "" {
		after, err = base64.RawURLEncoding.DecodeString(cursor)
	}
	if err != nil || partition < 0 {
		return 0, nil, &refusal{http.StatusBadRequest, "The address of the page is cut off; begin at the container again."}
	}
	return partition, after, nil
}

func rowOf(item *store.Item) itemRow {
	row := itemRow{Ref: store.ItemRef{Key: item.Key, ID: item.ID}.String(), ID: item.ID, Key: item.Key.String(), ETag: item.ETag}
	var flat bytes.Buffer
	if json.Compact(&flat, item.Body) == nil {
		row.Preview = strings.ToValidUTF8(string(flat.Next(previewMax)), "")
		if flat.Len() > 0 {
			row.Preview += "…"
		}
	}
	return row
}

// itemPage is one item, or the form for a new one.
type itemPage struct {
	Info store.ContainerInfo
	Ref  string
	Item *store.Item // nil: a new one
	// ETag is the version that is replaced or deleted; zero if it cannot be any more.
	ETag store.ETag
	// Text is what stands in the form.
	Text string
	// Problem says why it was not written.
	Problem string
	// Gone are the items that are not there and may have been: their versions can be looked for.
	Gone []string
	// Derived are the fields that pipelines keep; Unread says why they are not known.
	Derived []inspect.Derived
	Unread  string
}

// errSystem says who keeps the database system: a dead letter that somebody deletes or makes up
// hides what a pipeline has not done.
var errSystem = &refusal{
	http.StatusForbidden, "The database " + store.SystemDatabase + " is Millrace's own: its items can be seen and not written. Dead letters are tried again and dropped on their own page.",
}

// writable tells whether items of a database can be written here.
func writable(database string) bool { return database != store.SystemDatabase }

// opened returns the container that the path names.
func (c *Console) opened(x *exchange) (*store.Container, error) {
	return c.client.Container(x.r.Context(), x.r.PathValue("database"), x.r.PathValue("name"))
}

func (c *Console) item(x *exchange) error {
	ct, err := c.opened(x)
	if err != nil {
		return err
	}
	page := itemPage{Info: ct.Info()}
	if x.r.URL.Query().Has("new") {
		if !writable(page.Info.Database) {
			return errSystem
		}
		page.Text = "{\n  \"id\": \"\"\n}"
		return c.show(x, "item", "New item", page, nil)
	}
	ref, err := parseRef(x.r.URL.Query())
	if err != nil {
		return err
	}
	page.Gone = []string{ref.String()}
	item, err := ct.Read(x.r.Context(), ref.Key, ref.ID)
	// Whoever types 42 does not say whether the key is a number or a text. Both are tried, and both
	// are named if neither is there.
	if text, ok := textKey(x.r.URL.Query()); ok && text != ref.Key && errors.Is(err, store.ErrNotFound) {
		ref.Key = text
		page.Gone = append(page.Gone, ref.String())
		item, err = ct.Read(x.r.Context(), ref.Key, ref.ID)
	}
	if errors.Is(err, store.ErrNotFound) && !wantsJSON(x.r) {
		c.write(x.w, x.r, http.StatusNotFound, "item", &view{Title: "No such item", Role: x.role, Page: page})
		return nil
	}
	if err != nil {
		return err
	}
	page.Gone = nil
	page.Ref, page.Item, page.ETag, page.Text = ref.String(), &item, item.ETag, string(indented(item.Body))
	inspector := inspect.New(&c.cfg.Inspect)
	defer inspector.Close()
	if page.Derived, err = inspector.Derived(x.r.Context(), &page.Info, &item); err != nil {
		page.Unread = err.Error()
	}
	return c.show(x, "item", "Item "+item.ID, page, map[string]any{
		"id": item.ID, "partitionKey": json.RawMessage(item.Key.String()), "etag": item.ETag, "modified": time.UnixMilli(item.Modified).UTC(),
		"item": json.RawMessage(item.Body), "derived": page.Derived,
	})
}

// indented is JSON indented, or as it is where it has more than indentMax, or is none.
func indented(raw []byte) []byte {
	var out bytes.Buffer
	if len(raw) > indentMax || json.Indent(&out, raw, "", "  ") != nil {
		return raw
	}
	return out.Bytes()
}

// parseRef reads which item is asked for: item is a whole reference; key and id are what somebody
// types, where a key that is no JSON is a text.
func parseRef(q url.Values) (store.ItemRef, error) {
	if text := q.Get("item"); text != "" {
		ref, err := store.ParseItemRef(text)
		if err != nil {
			return ref, &refusal{http.StatusBadRequest, err.Error()}
		}
		return ref, nil
	}
	id, text := q.Get("id"), strings.TrimSpace(q.Get("key"))
	if id == "" || text == "" {
		return store.ItemRef{}, &refusal{http.StatusBadRequest, "An item is found by its partition key and its id."}
	}
	var v any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if dec.Decode(&v) != nil || dec.More() {
		v = text // no JSON, or more behind it: 75BF1ACB-28DA is a text
	}
	levels, isList := v.([]any)
	if !isList {
		levels = []any{v}
	}
	key, err := feed.NewPartitionKey(levels...)
	if err != nil {
		return store.ItemRef{}, &refusal{http.StatusBadRequest, "The partition key cannot be read: " + err.Error()}
	}
	return store.ItemRef{Key: key, ID: id}, nil
}

// textKey returns what somebody typed as a text: 42 finds the number, and where there is none the text.
func textKey(q url.Values) (key feed.PartitionKey, ok bool) {
	text := strings.TrimSpace(q.Get("key"))
	if q.Get("item") != "" || text == "" {
		return key, false
	}
	key, err := feed.NewPartitionKey(text)
	return key, err == nil
}

// writeItem creates, replaces or deletes an item. It replaces or deletes only the version that
// was shown: if somebody has written it since, nothing is changed.
func (c *Console) writeItem(x *exchange) error {
	if !writable(x.r.PathValue("database")) {
		return errSystem
	}
	ct, err := c.opened(x)
	if err != nil {
		return err
	}
	if err := x.parseForm(formMax); err != nil {
		return err
	}
	form := x.r.PostForm
	page := itemPage{Info: ct.Info(), Ref: form.Get("item"), Text: form.Get("text")}
	if form.Get("act") == "delete" && !form.Has(sureField) {
		here := "/containers/" + joinEscaped([]string{page.Info.Database, page.Info.Name}) + "/item"
		return c.confirm(x, "Delete the item?", &confirmation{
			Says:   []string{fmt.Sprintf("%s of %s, in the version %s.", page.Ref, page.Info.Name, form.Get("etag"))},
			Action: here, Back: here + "?item=" + url.QueryEscape(page.Ref), Button: "Delete it",
			Fields: [][2]string{{"act", "delete"}, {"item", page.Ref}, {"etag", form.Get("etag")}, {sureField, "yes"}},
		})
	}
	written, err := c.change(x, ct, form)
	if err != nil && form.Get("act") != "delete" {
		// The form keeps what was typed.
		switch page.Problem = err.Error(); {
		case errors.Is(err, store.ErrPreconditionFailed):
			page.Problem = "Somebody has written the item since it was shown. Open it again; this is your text."
		case errors.Is(err, store.ErrUnknown):
			page.Problem = "Nobody knows whether it was written. Open the item and see before you try again; this is your text."
		default:
			page.ETag, _ = store.ParseETag(form.Get("etag")) // it can be tried again
		}
		c.write(x.w, x.r, statusOf(err), "item", &view{Title: "Item", Role: x.role, Page: page})
		return nil
	}
	if err != nil {
		return err
	}
	to := "/containers/" + joinEscaped([]string{page.Info.Database, page.Info.Name})
	if written != nil {
		to += "/item?item=" + url.QueryEscape(store.ItemRef{Key: written.Key, ID: written.ID}.String())
	}
	c.log.Info("console: an item was changed", "container", page.Info.Database+"/"+page.Info.Name, "act", form.Get("act"), "from", x.r.RemoteAddr)
	http.Redirect(x.w, x.r, to, http.StatusSeeOther)
	return nil
}

// change does what a form asks for; it returns the item that is there then, nil if it was deleted.
func (c *Console) change(x *exchange, ct *store.Container, form url.Values) (*store.Item, error) {
	ctx, body := x.r.Context(), []byte(form.Get("text"))
	if form.Get("act") == "create" {
		item, err := ct.Create(ctx, body)
		return &item, err
	}
	ref, err := parseRef(form)
	if err != nil {
		return nil, err
	}
	etag, err := store.ParseETag(form.Get("etag"))
	if err != nil || etag == (store.ETag{}) { // which the store takes for any version
		return nil, &refusal{http.StatusBadRequest, "The form lacks the version of the item; open it again."}
	}
	switch form.Get("act") {
	case "replace":
		// Replace finds the item by the key that is in the body. With another one it would look for
		// another item, and say that there is none.
		if key, err := ct.KeyOf(body); err == nil && !key.Equal(ref.Key) {
			return nil, store.Refuse(store.StatusBadRequest, "The partition key of an item cannot change: create another item, and delete this one.")
		}
		item, err := ct.Replace(ctx, ref.ID, body, store.WriteOptions{IfMatch: etag})
		return &item, err
	case "delete":
		return nil, ct.Delete(ctx, ref.Key, ref.ID, store.WriteOptions{IfMatch: etag})
	}
	return nil, &refusal{http.StatusBadRequest, "An item can be created, replaced and deleted."}
}
