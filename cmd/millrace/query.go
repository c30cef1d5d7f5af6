package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// queryFlags are those of query.
type queryFlags struct {
	id, key string
	limit   int
}

func newQuery(a *app) *cobra.Command {
	var f queryFlags
	cmd := &cobra.Command{
		Use:   "query CONTAINER --key KEY [--id ID]",
		Short: "Read an item by id and partition key, or all items of a partition key",
		Long: `Query reads the item with --id in the logical partition --key, or all items of
that partition. Without --key, the first items of the container are read; with
--id alone, the id is looked for in every physical partition.

A key is a text, or JSON if it can be read as such: 12 is the number and '"12"' the
text, and '["eu", 7]' is a hierarchical key.`,
		Example: "  millrace query productMeta --key tag --id 4F3…\n  millrace query product --key 75BF1ACB-… -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.limit < 1 {
				return &usageError{fmt.Errorf("--limit %d: at least 1 is expected", f.limit)}
			}
			return a.with(cmd.Context(), func(ctx context.Context, s *session) error {
				database, name := a.split(args[0])
				ct, err := s.client.Container(ctx, database, name)
				if err != nil {
					return err
				}
				items, more, err := query(ctx, ct, &f)
				if err != nil {
					return err
				}
				return a.printItems(items, more, f.limit)
			})
		},
	}
	cmd.Flags().StringVar(&f.id, "id", "", "id of the item")
	cmd.Flags().StringVarP(&f.key, "key", "k", "", "partition key value")
	cmd.Flags().IntVar(&f.limit, "limit", 100, "items to read at most")
	return cmd
}

// query reads items; more says that there are more than the limit.
func query(ctx context.Context, ct *store.Container, f *queryFlags) (items []store.Item, more bool, err error) {
	if f.key == "" {
		return queryAll(ctx, ct, f)
	}
	key, err := parseKey(f.key, len(ct.Info().Spec.PartitionKey))
	if err != nil {
		return nil, false, err
	}
	if f.id != "" {
		item, err := ct.Read(ctx, key, f.id)
		if errors.Is(err, store.ErrNotFound) {
			return nil, false, bad("there is no item %s in the logical partition %s of %s", f.id, key, containerName(ct))
		}
		return []store.Item{item}, false, err
	}
	page, err := ct.Scan(ctx, ct.PartitionFor(key), store.Scan{Scope: store.Scope{Key: key}, ItemsMax: min(f.limit, scanItems)})
	for err == nil && page.Cursor != nil && len(items)+len(page.Items) < f.limit {
		items = append(items, page.Items...)
		page, err = ct.Scan(ctx, ct.PartitionFor(key), store.Scan{
			Scope: store.Scope{Key: key}, ItemsMax: min(f.limit-len(items), scanItems), After: page.Cursor,
		})
	}
	if err != nil {
		return nil, false, err
	}
	return append(items, page.Items...), page.Cursor != nil, nil
}

// errEnough ends a scan.
var errEnough = errors.New("enough")

// queryAll reads the first items of all partitions, those with the id if one is
// named.
func queryAll(ctx context.Context, ct *store.Container, f *queryFlags) (items []store.Item, more bool, err error) {
	for _, p := range ct.Partitions() {
		err := scan(ctx, ct, p, func(page []store.Item) error {
			for i := range page {
				if f.id != "" && page[i].ID != f.id {
					continue
				}
				if len(items) == f.limit {
					more = true
					return errEnough
				}
				items = append(items, page[i])
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			break
		}
		if err != nil {
			return nil, false, err
		}
	}
	if f.id != "" && len(items) == 0 {
		return nil, false, bad("there is no item %s in %s", f.id, containerName(ct))
	}
	return items, more, nil
}

// parseKey reads a partition key of a number of levels from the command line.
func parseKey(text string, levels int) (feed.PartitionKey, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	if err == nil {
		_, err = dec.Token()
	}
	if !errors.Is(err, io.EOF) {
		v = text // no JSON, or more behind it: 75BF1ACB-28DA is a text
	}
	components, isList := v.([]any)
	if !isList {
		components = []any{v}
	}
	if len(components) != levels {
		return feed.PartitionKey{}, &usageError{fmt.Errorf("--key %s has %d components; the container's partition key has %d: %s",
			text, len(components), levels, strings.TrimSuffix(`["a", "b", "c"`, `, "c"`)+"]")}
	}
	key, err := feed.NewPartitionKey(components...)
	if err != nil {
		return key, &usageError{fmt.Errorf("--key %s: %w", text, err)}
	}
	return key, nil
}

// itemView is an item as commands print it.
type itemView struct {
	ID       string            `json:"id"`
	Key      feed.PartitionKey `json:"-"`
	KeyText  json.RawMessage   `json:"partitionKey"`
	ETag     store.ETag        `json:"etag"`
	Modified time.Time         `json:"modified"`
	Item     json.RawMessage   `json:"item"`
}

func viewOf(item *store.Item) itemView {
	return itemView{
		ID: item.ID, Key: item.Key, KeyText: json.RawMessage(item.Key.String()), ETag: item.ETag,
		Modified: time.UnixMilli(item.Modified).UTC(), Item: item.Body,
	}
}

func (a *app) printItems(items []store.Item, more bool, limit int) error {
	views := []itemView{}
	for i := range items {
		views = append(views, viewOf(&items[i]))
	}
	return a.print(map[string]any{"items": views, "more": more}, func(w io.Writer) error {
		if len(views) == 0 {
			fmt.Fprintln(w, "no items")
			return nil
		}
		width, ok := terminal(w)
		if !ok {
			width = 0
		}
		for i := range views {
			var line bytes.Buffer
			if err := json.Compact(&line, views[i].Item); err != nil {
				return err
			}
			fmt.Fprintln(w, cut(line.String(), width))
		}
		if more {
			fmt.Fprintf(w, "and more; --limit %d reads further\n", 10*limit)
		}
		return nil
	})
}
