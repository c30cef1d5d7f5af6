package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// Container reads and writes the items of one container.
type Container struct {
	client *Client
	sdk    *azcosmos.ContainerClient
	info   store.ContainerInfo
	paths  []document.Path            // of the partition key
	level  *azcosmos.ConsistencyLevel // of reads; nil: that of the account
}

// Eventual returns the container with reads and queries that may lack the latest writes.
func (c *Container) Eventual() *Container {
	with := *c
	with.level = azcosmos.ConsistencyLevelEventual.ToPtr()
	return &with
}

// Info returns what the protocol tells of the container. Its ID is of this endpoint
// and changes when the container is made anew.
func (c *Container) Info() store.ContainerInfo { return c.info }

// Upsert creates an item or replaces the one with its id. The key is found in the
// item.
func (c *Container) Upsert(ctx context.Context, body []byte) error {
	if len(body) > store.ItemBytesMax {
		return store.Refuse(store.StatusTooLarge, "the item has %d bytes, at most %d are taken", len(body), store.ItemBytesMax)
	}
	key, err := store.KeyAt(body, c.paths)
	if err != nil {
		return err
	}
	err = c.client.do(withKey(ctx, key), func(ctx context.Context) error {
		_, err := c.sdk.UpsertItem(ctx, azcosmos.NewPartitionKey(), body, nil)
		return err
	})
	return c.absence(err)
}

// Put is Upsert and returns the item as it is then. With an etag it replaces the item that
// has it: 412 if it has another, 404 if there is none.
func (c *Container) Put(ctx context.Context, body []byte, etag string) (item store.Item, err error) {
	if len(body) > store.ItemBytesMax {
		return item, store.Refuse(store.StatusTooLarge, "the item has %d bytes, at most %d are taken", len(body), store.ItemBytesMax)
	}
	key, err := store.KeyAt(body, c.paths)
	if err != nil {
		return item, err
	}
	o := guard(etag)
	o.EnableContentResponseOnWrite = true
	err = c.client.do(withKey(ctx, key), func(ctx context.Context) (err error) {
		var answer azcosmos.ItemResponse
		if etag == "" {
			answer, err = c.sdk.UpsertItem(ctx, azcosmos.NewPartitionKey(), body, o)
		} else {
			id, _ := document.ID(body)
			answer, err = c.sdk.ReplaceItem(ctx, azcosmos.NewPartitionKey(), id, body, o)
		}
		if err == nil {
			item, err = c.item(answer.Value)
		}
		return err
	})
	if etag == "" {
		err = c.absence(err)
	}
	return item, err
}

// Delete removes an item: 404 if there is none, 412 if it has another etag than one that is
// not "".
func (c *Container) Delete(ctx context.Context, key feed.PartitionKey, id, etag string) error {
	return c.client.do(withKey(ctx, key), func(ctx context.Context) error {
		_, err := c.sdk.DeleteItem(ctx, azcosmos.NewPartitionKey(), id, guard(etag))
		return err
	})
}

// guard makes a write look at the etag, in quotes as the protocol has it; "" is none.
func guard(etag string) *azcosmos.ItemOptions {
	o := new(azcosmos.ItemOptions)
	if etag != "" {
		quoted := azcore.ETag(`"` + strings.Trim(etag, `"`) + `"`)
		o.IfMatchEtag = &quoted
	}
	return o
}

// absence translates the 404 of a request that names no item: it is the container that is away. The
// status is the same where an item is, so what names one, such as Read, does without.
func (c *Container) absence(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return &NoContainerError{Endpoint: c.client.endpoint, Database: c.info.Database, Name: c.info.Name}
	}
	return err
}

// Read returns an item, or 404.
func (c *Container) Read(ctx context.Context, key feed.PartitionKey, id string) (store.Item, error) {
	var body []byte
	err := c.client.do(withKey(ctx, key), func(ctx context.Context) error {
		resp, err := c.sdk.ReadItem(ctx, azcosmos.NewPartitionKey(), id, &azcosmos.ItemOptions{ConsistencyLevel: c.level})
		body = resp.Value
		return err
	})
	if err != nil {
		return store.Item{}, err
	}
	return c.item(body)
}

// Query returns a page of a query. Range and BytesMax of the request are not of this
// protocol. With Explain it reads the first row, since the protocol tells of indexes
// only beside rows. What the SDK counts as metrics of the store stays zero.
func (c *Container) Query(ctx context.Context, r store.QueryRequest) (*store.QueryPage, error) {
	o := &azcosmos.QueryOptions{PageSizeHint: int32(r.RowsMax), PopulateIndexMetrics: r.Explain, ConsistencyLevel: c.level}
	if r.Explain {
		o.PageSizeHint = 1
	}
	if r.Continuation != "" {
		o.ContinuationToken = &r.Continuation
	}
	for _, p := range r.Params {
		o.QueryParameters = append(o.QueryParameters, azcosmos.QueryParameter{Name: "@" + p.Name, Value: json.RawMessage(p.Value)})
	}
	pager := c.sdk.NewQueryItemsPager(r.Text, azcosmos.NewPartitionKey(), o)
	var answer azcosmos.QueryItemsResponse
	err := c.client.do(withKey(ctx, r.Key), func(ctx context.Context) (err error) {
		answer, err = pager.NextPage(ctx)
		return err
	})
	if err != nil {
		return nil, c.absence(err)
	}
	page := &store.QueryPage{}
	if answer.ContinuationToken != nil {
		page.Continuation = *answer.ContinuationToken
	}
	if r.Explain {
		page.Metrics.Access, err = access(answer.IndexMetrics)
		return page, err
	}
	if page.Rows, err = rowsOf(&answer); err != nil {
		return nil, err
	}
	// A whole item comes with _rid, _ts and the like, which it does not have over NATS. A
	// row that a query has made of one does not, and may have such names of its own.
	for i := range page.Rows {
		if !r.System && isItem(page.Rows[i]) {
			if page.Rows[i], err = withoutSystem(page.Rows[i]); err != nil {
				return nil, err
			}
		}
	}
	return page, nil
}

// rowsOf returns the rows of a page byte for byte; the SDK escapes some of their
// characters.
func rowsOf(answer *azcosmos.QueryItemsResponse) ([][]byte, error) {
	body, err := runtime.Payload(answer.RawResponse)
	var page struct {
		Documents []json.RawMessage
	}
	if err == nil {
		err = json.Unmarshal(body, &page)
	}
	if err != nil {
		return nil, fmt.Errorf("read a page of the query: %w", err)
	}
	rows := make([][]byte, len(page.Documents))
	for i, row := range page.Documents {
		rows[i] = row
	}
	return rows, nil
}

// Selection says which items are read. The zero Selection is all of them.
type Selection struct {
	// Key is a partition key, or the beginning of a hierarchical one.
	Key feed.PartitionKey
	// ID is that of the items; "" is any.
	ID string
	// PageMax bounds the items of a page; 0 leaves it to the store.
	PageMax int
}

// Items calls f with page after page of items.
func (c *Container) Items(ctx context.Context, s Selection, f func([]store.Item) error) error {
	r := store.QueryRequest{Text: "SELECT * FROM c", Key: s.Key, RowsMax: s.PageMax, System: true}
	if s.ID != "" {
		id, err := json.Marshal(s.ID)
		if err != nil {
			return fmt.Errorf("id: %w", err)
		}
		r.Text += " WHERE c.id = @id"
		r.Params = []store.QueryParam{{Name: "id", Value: id}}
	}
	for {
		page, err := c.Query(ctx, r)
		if err != nil {
			return err
		}
		items := make([]store.Item, len(page.Rows))
		for i, row := range page.Rows {
			if items[i], err = c.item(row); err != nil {
				return err
			}
		}
		if err := f(items); err != nil {
			return err
		}
		if r.Continuation = page.Continuation; r.Continuation == "" {
			return nil
		}
	}
}

// Count counts the items. It is 0 where the endpoint does not count over partitions.
func (c *Container) Count(ctx context.Context) (int, error) {
	r := store.QueryRequest{Text: "SELECT VALUE COUNT(1) FROM c"}
	for {
		page, err := c.Query(ctx, r)
		if errors.Is(err, store.ErrBadRequest) { // Cosmos DB refuses some aggregates over partitions
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		if len(page.Rows) > 0 {
			n, err := strconv.Atoi(string(page.Rows[0]))
			if err != nil {
				return 0, fmt.Errorf("count the items: %w", err)
			}
			return n, nil
		}
		if r.Continuation = page.Continuation; r.Continuation == "" {
			return 0, nil
		}
	}
}
