package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/remote"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// queryFlags are those of query.
type queryFlags struct {
	container, id, key string
	limit              int
	limited            bool // limit was asked for
	output             string
	explain            bool
	params             []string
	at                 endpointFlags
}

func newQuery(a *app) *cobra.Command {
	var f queryFlags
	cmd := &cobra.Command{
		Use:   "query 'SELECT …' | CONTAINER [--key KEY] [--id ID]",
		Short: "Answer a query, or read an item or the items of a partition key",
		Long: `Query answers a query of the SQL dialect of docs/sql.md, with all its rows, of the
container that --container or FROM names. With --key it reads one logical partition,
else all. A parameter is JSON, or a text if it cannot be read as such. With --explain
it says how the query would be answered, and reads nothing; an endpoint tells it only
beside a row, which is read, and other endpoints than a Millrace node tell just the
indexes.

With the name of a container it reads the item with --id in the logical partition
--key, or all items of that partition. Without --key, the first items of the
container are read; with --id alone, the id is looked for in every physical partition.

A key is a text, or JSON if it can be read as such: 12 is the number and '"12"' the
text, and '["eu", 7]' is a hierarchical key, or the beginning of one.`,
		Example: `  millrace query "SELECT TOP 10 c.id, c.salesOrderCount FROM customer c ORDER BY c.salesOrderCount DESC"
  millrace query 'SELECT * FROM c WHERE c.price < @most' -c product --param most=20 -o ndjson
  millrace query product --key 75BF1ACB-… --id 0A7E57DA-…`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.limit < 1 {
				return &usageError{fmt.Errorf("--limit %d: at least 1 is expected", f.limit)}
			}
			f.limited = cmd.Flags().Changed("limit")
			if isQuery(args[0]) {
				return a.querySQL(cmd, args[0], &f)
			}
			return a.queryItems(cmd, args[0], &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.container, "container", "c", "", "container of the query; default what FROM names")
	flags.StringVar(&f.id, "id", "", "id of the item")
	flags.StringVarP(&f.key, "key", "k", "", "partition key value")
	flags.IntVar(&f.limit, "limit", 100, "items to read at most; of a query, rows, and all by default")
	flags.BoolVar(&f.explain, "explain", false, "say how the query would be answered")
	flags.StringArrayVarP(&f.params, "param", "p", nil, "value of a parameter, as in --param name=json")
	flags.StringVarP(&f.output, "output", "o", "table", "form of the output: "+strings.Join(queryOutputs, ", "))
	// The root's shorthand of this flag is --container here.
	a.addConsistency(cmd, &f.at)
	a.addEndpoint(cmd, &f.at)
	flags.StringVar(&a.configFile, "config", a.configFile, "configuration file; its keys are explained in configs/millrace.yaml")
	return cmd
}

// isQuery tells a query from the name of a container.
func isQuery(text string) bool {
	word := strings.TrimLeft(text, " \t\r\n")
	return strings.HasPrefix(word, "--") || len(word) > 6 && strings.EqualFold(word[:6], "SELECT") && strings.ContainsAny(word[6:7], " \t\r\n*'\"(-[{@")
}

// queryItems prints items of a container.
func (a *app) queryItems(cmd *cobra.Command, container string, f *queryFlags) error {
	if f.container != "" || f.explain || len(f.params) > 0 {
		return &usageError{errors.New("--container, --explain and --param belong to a query: millrace query 'SELECT …'")}
	}
	if a.output = f.output; !slices.Contains(outputs, a.output) {
		return &usageError{fmt.Errorf("--output %s: %s is expected where no query is asked", a.output, strings.Join(outputs, ", "))}
	}
	return a.withClient(cmd, &f.at, func(ctx context.Context, c client) error {
		database, name := a.splitName(container)
		ct, err := c.Container(ctx, database, name)
		if err != nil {
			return err
		}
		items, more, err := readItems(ctx, ct, f)
		if err != nil {
			return err
		}
		return a.printItems(items, more, f.limit)
	})
}

// errEnough ends a scan.
var errEnough = errors.New("enough")

// readItems reads items: one, those of a logical partition, or the first ones of all;
// more says that there are more than the limit.
func readItems(ctx context.Context, ct itemReader, f *queryFlags) (items []store.Item, more bool, err error) {
	s := remote.Selection{ID: f.id, PageMax: scanItems}
	if f.id == "" {
		s.PageMax = min(f.limit+1, scanItems) // the one that is too many tells that there are more
	}
	if f.key != "" {
		if s.Key, err = parseKey(f.key, len(ct.Info().Spec.PartitionKey)); err != nil {
			return nil, false, err
		}
		if f.id != "" {
			item, err := ct.Read(ctx, s.Key, f.id)
			if errors.Is(err, store.ErrNotFound) {
				return nil, false, bad("there is no item %s in the logical partition %s of %s", f.id, s.Key, containerName(ct))
			}
			return []store.Item{item}, false, err
		}
	}
	err = ct.Items(ctx, s, func(page []store.Item) error {
		items = append(items, page...)
		if more = len(items) > f.limit; more {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, false, err
	}
	if f.id != "" && len(items) == 0 {
		return nil, false, bad("there is no item %s in %s", f.id, containerName(ct))
	}
	return items[:min(len(items), f.limit)], more, nil
}

// parseKey reads a partition key of a number of levels from the command line.
func parseKey(text string, levels int) (feed.PartitionKey, error) {
	key, n, err := parsePrefix(text)
	if err == nil && n != levels {
		return key, wrongLevels(text, n, levels)
	}
	return key, err
}

func wrongLevels(text string, n, levels int) error {
	return &usageError{fmt.Errorf("--key %s has %d components; the container's partition key has %d: %s",
		text, n, levels, strings.TrimSuffix(`["a", "b", "c"`, `, "c"`)+"]")}
}

// parsePrefix reads a partition key, or the beginning of one, and counts its
// components.
func parsePrefix(text string) (key feed.PartitionKey, n int, err error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	err = dec.Decode(&v)
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
	if key, err = feed.NewPartitionKey(components...); err != nil {
		return key, 0, &usageError{fmt.Errorf("--key %s: %w", text, err)}
	}
	return key, len(components), nil
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
