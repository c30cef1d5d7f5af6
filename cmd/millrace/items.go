package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// itemFlags are those of the verbs of items.
type itemFlags struct {
	key     string
	ifMatch string
	at      endpointFlags
}

func newItems(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "items",
		Short: "Read, write or delete one item, or see its last versions",
		Long: `Items reads, writes or deletes one item of a container, or tells of its last versions.
For many items there are query, import and export.`,
		Args: cobra.NoArgs,
	}
	for _, verb := range []*cobra.Command{newItemsGet(a), newItemsPut(a), newItemsDelete(a), newItemsHistory(a)} {
		checkArgs(verb)
		cmd.AddCommand(verb)
	}
	return cmd
}

// keyHelp tells of --key where an item is named.
const keyHelp = `--key is its partition key, a text, or JSON if it can be read as such: 12 is the number
and '"12"' the text, and '["eu", 7]' is a hierarchical key. It is not needed in a
container whose partition key is /id.`

func newItemsGet(a *app) *cobra.Command {
	var f itemFlags
	cmd := &cobra.Command{
		Use:   "get CONTAINER ID",
		Short: "Print an item",
		Long: `Get prints an item as it was written; with -o json or yaml also its partition key, its
etag and when it was written.

` + keyHelp + ` Without it elsewhere the id is looked for in
every physical partition.`,
		Example: "  millrace items get product p1 --key c1\n  millrace items get product p1 --key c1 -o json",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withItems(cmd, &f, args[0], func(ctx context.Context, ct container) error {
				item, err := findItem(ctx, ct, args[1], f.key)
				if err != nil {
					return err
				}
				return a.print(viewOf(item), func(w io.Writer) error {
					var text bytes.Buffer
					if err := json.Indent(&text, item.Body, "", "  "); err != nil {
						return err
					}
					_, err := fmt.Fprintln(w, text.String())
					return err
				})
			})
		},
	}
	cmd.Flags().StringVarP(&f.key, "key", "k", "", "partition key of the item")
	a.addConsistency(cmd, &f.at)
	a.addEndpoint(cmd, &f.at)
	return cmd
}

func newItemsPut(a *app) *cobra.Command {
	var f itemFlags
	cmd := &cobra.Command{
		Use:   "put CONTAINER [FILE]",
		Short: "Write an item",
		Long: `Put writes one item, a JSON object, from a file or from standard input. One that has
its id and partition key, which are in it, is replaced. With --if-match it is
replaced only if nobody has written it since it had that etag, which get -o json prints.`,
		Example: `  echo '{"id": "c1", "type": "category", "name": "Bicycles"}' | millrace items put productMeta
  millrace items put product p1.json --if-match 00000000000002a4-0`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := "-"
			if len(args) == 2 {
				file = args[1]
			}
			body, err := a.readItem(file)
			if err != nil {
				return err
			}
			return a.withItems(cmd, &f, args[0], func(ctx context.Context, ct container) error {
				id, _ := document.ID(body)
				item, err := ct.Put(ctx, body, f.ifMatch)
				if err != nil {
					return f.refusal(err, ct, id, nil)
				}
				return a.printText(viewOf(&item), "item %s of %s written to %s, etag %s\n", item.ID, item.Key, containerName(ct), dash(item.ETag.String()))
			})
		},
	}
	f.addIfMatch(cmd)
	a.addEndpoint(cmd, &f.at)
	return cmd
}

func newItemsDelete(a *app) *cobra.Command {
	var f itemFlags
	cmd := &cobra.Command{
		Use:   "delete CONTAINER ID",
		Short: "Delete an item",
		Long: `Delete deletes an item. With --if-match it does so only if nobody has written the item
since it had that etag, which get -o json prints.

` + keyHelp,
		Example: "  millrace items delete product p1 --key c1",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withItems(cmd, &f, args[0], func(ctx context.Context, ct container) error {
				key, err := keyOfItem(ct, args[1], f.key)
				if err != nil {
					return err
				}
				if key.IsZero() {
					return &usageError{fmt.Errorf("an item of %s is named by its id and its partition key, %s: --key is expected",
						containerName(ct), strings.Join(ct.Info().Spec.PartitionKey, " "))}
				}
				if err := ct.Delete(ctx, key, args[1], f.ifMatch); err != nil {
					return f.refusal(err, ct, args[1], &key)
				}
				v := map[string]any{"id": args[1], "partitionKey": json.RawMessage(key.String()), "action": "deleted"}
				return a.printText(v, "item %s of %s deleted from %s\n", args[1], key, containerName(ct))
			})
		},
	}
	cmd.Flags().StringVarP(&f.key, "key", "k", "", "partition key of the item")
	f.addIfMatch(cmd)
	a.addEndpoint(cmd, &f.at)
	return cmd
}

func (f *itemFlags) addIfMatch(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.ifMatch, "if-match", "", "etag that the item must have")
}

// withItems runs work with a container.
func (a *app) withItems(cmd *cobra.Command, f *itemFlags, name string, work func(ctx context.Context, ct container) error) error {
	// An empty one is that of a script whose variable is not set: it wants to be guarded.
	if cmd.Flags().Changed("if-match") && strings.Trim(f.ifMatch, `"`) == "" {
		return &usageError{errors.New("--if-match is empty; an etag is expected, as millrace items get -o json prints it")}
	}
	return a.withClient(cmd, &f.at, func(ctx context.Context, c client) error {
		database, name := a.splitName(name)
		ct, err := c.Container(ctx, database, name)
		if err != nil {
			return err
		}
		return work(ctx, ct)
	})
}

// keyOfItem is the partition key that the command line names; that of the id where the id is
// the key, and else none.
func keyOfItem(ct itemReader, id, text string) (feed.PartitionKey, error) {
	paths := ct.Info().Spec.PartitionKey
	switch {
	case text != "":
		return parseKey(text, len(paths))
	case len(paths) == 1 && paths[0] == "/id":
		return feed.NewPartitionKey(id)
	}
	return feed.PartitionKey{}, nil
}

// findItem reads an item, looking for it everywhere if its key is not known.
func findItem(ctx context.Context, ct container, id, keyText string) (*store.Item, error) {
	key, err := keyOfItem(ct, id, keyText)
	if err != nil {
		return nil, err
	}
	if !key.IsZero() {
		item, err := ct.Read(ctx, key, id)
		if errors.Is(err, store.ErrNotFound) {
			return nil, noItem(ct, id, &key)
		}
		return &item, err
	}
	// An id is one item in a logical partition, so there may be one in each. Ten name enough of
	// them; none at all is an error of readItems.
	items, more, err := readItems(ctx, ct, &queryFlags{id: id, limit: 10})
	if err != nil {
		return nil, err
	}
	if len(items) == 1 {
		return &items[0], nil
	}
	keys := make([]string, len(items))
	for i := range items {
		keys[i] = items[i].Key.String()
	}
	if more {
		keys = append(keys, "more")
	}
	return nil, bad("%s has several items %s, with the partition keys %s\nnext: name one of them with --key", containerName(ct), id, strings.Join(keys, ", "))
}

func noItem(ct itemReader, id string, key *feed.PartitionKey) error {
	if key == nil {
		return bad("there is no item %s in %s with the partition key that it has here; without --if-match it is made", id, containerName(ct))
	}
	return bad("there is no item %s in the logical partition %s of %s", id, key, containerName(ct))
}

// refusal tells why a write was refused, in the words of the command line. key is nil where the
// item says it.
func (f *itemFlags) refusal(err error, ct itemReader, id string, key *feed.PartitionKey) error {
	switch {
	case errors.Is(err, store.ErrPreconditionFailed):
		return bad("item %s of %s was written since it had the etag %s; nothing was changed\nnext: read it again with millrace items get %s %s -o json",
			id, containerName(ct), f.ifMatch, containerName(ct), id)
	case errors.Is(err, store.ErrNotFound):
		return noItem(ct, id, key)
	}
	return err
}

// readItem reads an item from a file, or from standard input if it is named -.
func (a *app) readItem(file string) ([]byte, error) {
	in := a.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // it was read
		in = f
	} else {
		file = "standard input"
	}
	// One byte more than fits tells that there is more.
	body, err := io.ReadAll(io.LimitReader(in, store.ItemBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	body = bytes.TrimSpace(body)
	switch {
	case len(body) == 0:
		return nil, bad("%s is empty; a JSON object is expected", file)
	case len(body) > store.ItemBytesMax:
		return nil, bad("%s has more than the %d bytes that an item may have", file, store.ItemBytesMax)
	}
	if err := document.Check(body); err != nil {
		return nil, bad("%s: %v; one item, a JSON object, is expected, and many are taken by millrace import", file, err)
	}
	return body, nil
}
