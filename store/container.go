package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
)

// Container reads and writes the items of one container. Safe for concurrent
// use.
type Container struct {
	client *Client
	known  *known          // shared with all that were made of it
	paths  []document.Path // of the partition key
	reads  consistency
}

// WriteOptions guard a write.
type WriteOptions struct {
	// IfMatch must be the item's ETag; else 412.
	IfMatch ETag
	// Condition must be true of the item for a patch; else 412.
	Condition string
	// IdempotencyKey makes the write safe to send again; see Transact.
	IdempotencyKey string
}

// Container finds a container in the catalog; *NoContainerError if there is none
// or it is not ready. It reads the catalog anew at each call.
func (c *Client) Container(ctx context.Context, database, name string) (*Container, error) {
	info, err := c.catalog.Get(ctx, database, name)
	if err != nil {
		return nil, err
	}
	if info.State != ContainerReady {
		return nil, &NoContainerError{database, name}
	}
	return c.Open(info)
}

// Open returns the container that info describes, without asking the catalog.
func (c *Client) Open(info ContainerInfo) (*Container, error) {
	ct := &Container{client: c, known: newKnown(&info)}
	for _, p := range info.Spec.PartitionKey {
		path, err := document.ParsePointer(p)
		if err != nil {
			return nil, fmt.Errorf("container %s/%s: partition key %s: %w", info.Database, info.Name, p, err)
		}
		ct.paths = append(ct.paths, path)
	}
	return ct, nil
}

// Do asks the owner of one of the container's partitions, or for some reads a standby; see Client.Do.
// If the partition was split, the child is asked that has all items which r names: then PartitionFor knows it.
// The error is *SplitError if there is no such child.
func (c *Container) Do(ctx context.Context, r *Request) (*Response, error) {
	return c.client.do(ctx, r, c, false)
}

// doExactly is Do without going on in a child.
func (c *Container) doExactly(ctx context.Context, r *Request) (*Response, error) {
	return c.client.do(ctx, r, c, true)
}

// Info returns the container as the catalog held it when it was last read: when it was opened, or by Refresh.
func (c *Container) Info() ContainerInfo { return *c.present() }

// KeyOf returns the partition key value of an item's JSON.
func (c *Container) KeyOf(body []byte) (feed.PartitionKey, error) { return KeyAt(body, c.paths) }

// KeyAt returns the partition key value at paths in an item's JSON. A missing
// path is a component of its own kind, and an array or object the same, as in the service, whose clients send it so.
func KeyAt(body []byte, paths []document.Path) (feed.PartitionKey, error) {
	var buf [3]any
	components := buf[:0]
	for _, path := range paths {
		raw, ok := document.Get(body, path)
		if !ok {
			components = append(components, feed.Missing)
			continue
		}
		if len(paths) == 1 && isPlainString(raw) {
			key, err := feed.StringKey(raw[1 : len(raw)-1])
			if err != nil {
				return feed.PartitionKey{}, Refuse(StatusBadRequest, "partition key: %v", err)
			}
			return key, nil
		}
		v, err := keyComponent(raw)
		if err != nil {
			return feed.PartitionKey{}, Refuse(StatusBadRequest, "partition key %s: %v", path.Pointer(), err)
		}
		components = append(components, v)
	}
	key, err := feed.NewPartitionKey(components...)
	if err != nil {
		return feed.PartitionKey{}, Refuse(StatusBadRequest, "partition key: %v", err)
	}
	return key, nil
}

// isPlainString says whether a scalar is a string that reads as it is written.
func isPlainString(raw []byte) bool { return raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 }

func keyComponent(raw []byte) (any, error) {
	switch raw[0] {
	case '"':
		if isPlainString(raw) {
			return string(raw[1 : len(raw)-1]), nil
		}
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	case 't':
		return true, nil
	case 'f':
		return false, nil
	case 'n':
		return nil, nil
	case '{', '[':
		return feed.Missing, nil
	}
	return json.Number(raw), nil
}

// KeyOfValues returns the partition key of items that have raw JSON values, one at each path, as KeyAt does; ok is
// false if no item can have them.
func KeyOfValues(values [][]byte) (key feed.PartitionKey, ok bool) {
	components := make([]any, len(values))
	for i, raw := range values {
		if len(raw) == 0 {
			return key, false
		}
		v, err := keyComponent(raw)
		if err != nil {
			return key, false
		}
		components[i] = v
	}
	key, err := feed.NewPartitionKey(components...)
	return key, err == nil
}

// PartitionFor returns the physical partition that holds key.
func (c *Container) PartitionFor(key feed.PartitionKey) feed.Partition {
	info := c.present()
	return feed.Partition{Container: info.ID, Number: info.number(key)}
}

func (i *ContainerInfo) number(key feed.PartitionKey) uint32 {
	if len(i.Partitions) == 1 {
		return i.Partitions[0].Number
	}
	return i.HolderOf(key.Hash()).Number
}

// Partitions returns the physical partitions in order of their ranges.
func (c *Container) Partitions() []feed.Partition {
	info := c.present()
	ps := make([]feed.Partition, len(info.Partitions))
	for i, p := range info.Partitions {
		ps[i] = feed.Partition{Container: info.ID, Number: p.Number}
	}
	return ps
}

// Create stores a new item: 409 if its id or a unique key is taken.
func (c *Container) Create(ctx context.Context, body []byte, opts ...WriteOptions) (Item, error) {
	return c.put(ctx, OpCreate, "", body, opts)
}

// Upsert creates the item or replaces the one with its id.
func (c *Container) Upsert(ctx context.Context, body []byte, opts ...WriteOptions) (Item, error) {
	return c.put(ctx, OpUpsert, "", body, opts)
}

// Replace replaces the item id, which must exist (404) under the partition key
// that body has.
func (c *Container) Replace(ctx context.Context, id string, body []byte, opts ...WriteOptions) (Item, error) {
	return c.put(ctx, OpReplace, id, body, opts)
}

func (c *Container) put(ctx context.Context, kind OpKind, id string, body []byte, opts []WriteOptions) (Item, error) {
	key, err := c.KeyOf(body)
	if err != nil {
		// Without a key there is no owner to check the item. It may have none because it is no JSON, and
		// that is the better thing to say.
		if syntax := document.Check(body); syntax != nil {
			return Item{}, Refuse(StatusBadRequest, "item: %v", syntax)
		}
		return Item{}, err
	}
	return c.one(ctx, key, Operation{Kind: kind, ID: id, Body: body}, opts)
}

// Delete removes an item: 404 if there is none.
func (c *Container) Delete(ctx context.Context, key feed.PartitionKey, id string, opts ...WriteOptions) error {
	_, err := c.one(ctx, key, Operation{Kind: OpDelete, ID: id}, opts)
	return err
}

// Patch changes parts of an item and returns it as it is then.
func (c *Container) Patch(ctx context.Context, key feed.PartitionKey, id string, ops []document.Op, opts ...WriteOptions) (Item, error) {
	return c.one(ctx, key, Operation{Kind: OpPatch, ID: id, Patch: ops}, opts)
}

// Read returns an item, or 404.
func (c *Container) Read(ctx context.Context, key feed.PartitionKey, id string) (Item, error) {
	return c.one(ctx, key, Operation{Kind: OpRead, ID: id}, nil)
}

func (c *Container) one(ctx context.Context, key feed.PartitionKey, op Operation, opts []WriteOptions) (Item, error) {
	t := &Transact{Key: key}
	if len(opts) > 0 {
		op.IfMatch, op.Condition = opts[0].IfMatch, opts[0].Condition
		t.IdempotencyKey = opts[0].IdempotencyKey
	}
	t.Ops = []Operation{op}
	resp, err := c.Do(ctx, &Request{Partition: c.PartitionFor(key), Transact: t})
	if err != nil {
		return Item{}, err
	}
	res := resp.Transact.Results[0]
	if resp.Transact.Failed {
		return Item{}, &Error{Status: res.Status, Message: res.Message, LSN: resp.Transact.LSN}
	}
	if res.Status == StatusNotModified {
		return Item{}, ErrNotModified
	}
	return res.Item, nil
}

// Batch runs operations on one logical partition in order, all or nothing. A
// refused batch is not an error: its result says Failed.
func (c *Container) Batch(ctx context.Context, key feed.PartitionKey, ops []Operation, idempotencyKey string) (*TransactResult, error) {
	resp, err := c.Do(ctx, &Request{
		Partition: c.PartitionFor(key),
		Transact:  &Transact{Key: key, Ops: ops, Batch: true, IdempotencyKey: idempotencyKey},
	})
	if err != nil {
		return nil, err
	}
	return resp.Transact, nil
}

// ReadMany reads items of any partitions, in the order asked; an item that is
// not there has a zero ETag. With barrier, see ReadItems.Barrier.
func (c *Container) ReadMany(ctx context.Context, refs []ItemRef, barrier bool) ([]Item, error) {
	items := make([]Item, len(refs))
	return items, c.byPartition(ctx, refs, func(ctx context.Context, p feed.Partition, some []ItemRef, at []int) error {
		resp, err := c.Do(ctx, &Request{Partition: p, Read: &ReadItems{Barrier: barrier, Refs: some}})
		if err != nil {
			return err
		}
		// No two calls have a place in common, so they write to items without a lock.
		for i, n := range at {
			items[n] = resp.Read[i]
		}
		return nil
	})
}

// byPartition calls ask for refs of one partition, ReadManyMax at most, with where they
// stand in refs: for several at the same time, until all are asked or one call fails.
func (c *Container) byPartition(ctx context.Context, refs []ItemRef, ask askItems) error {
	all := make([]int, len(refs))
	for i := range all {
		all[i] = i
	}
	return c.askByPartition(ctx, refs, all, ask)
}

// askItems asks a partition for some items, which stand at some places in a list.
type askItems func(ctx context.Context, p feed.Partition, some []ItemRef, at []int) error

func (c *Container) askByPartition(ctx context.Context, refs []ItemRef, all []int, ask askItems) error {
	places := map[feed.Partition][]int{}
	for _, i := range all {
		p := c.PartitionFor(refs[i].Key)
		places[p] = append(places[p], i)
	}
	if len(places) == 1 && len(all) <= ReadManyMax { // the usual case needs no goroutine
		// The partition that was found above, and no other: looked up again it may have been split since, and a child would
		// say of what the other one holds that it is not there.
		for p := range places {
			return c.askFor(ctx, p, refs, all, ask)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for p, some := range places {
		for at := range slices.Chunk(some, ReadManyMax) {
			g.Go(func() error { return c.askFor(ctx, p, refs, at, ask) })
		}
	}
	return g.Wait()
}

// askFor calls ask for those of refs that stand at some places. An answer has items whole, and may be larger than a message:
// then it asks for half of them at a time. An item alone fits. Where the partition was split its children are asked.
func (c *Container) askFor(ctx context.Context, p feed.Partition, refs []ItemRef, at []int, ask askItems) error {
	some := make([]ItemRef, len(at))
	for i, n := range at {
		some[i] = refs[n]
	}
	err := ask(ctx, p, some, at)
	if _, split := errors.AsType[*SplitError](err); split {
		return c.askByPartition(ctx, refs, at, ask)
	}
	if len(at) == 1 || !errors.Is(err, ErrTooLarge) {
		return err
	}
	half := len(at) / 2
	if err := c.askFor(ctx, p, refs, at[:half], ask); err != nil {
		return err
	}
	return c.askFor(ctx, p, refs, at[half:], ask)
}
