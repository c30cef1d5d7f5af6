package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/propose"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/store"
)

// The bounds of what init looks at.
const (
	initSample        = 1000 // items of a container, unless more are asked for
	initSampleMax     = 100_000
	initContainersMax = 100
	initTypesMax      = 8 // searches for types of items that the first ones are not of
)

// initFlags are those of init.
type initFlags struct {
	out    string
	sample int
}

func newInit(a *app) *cobra.Command {
	var f initFlags
	cmd := &cobra.Command{
		Use:   "init [CONTAINER...]",
		Short: "Write a first pipeline from what containers hold",
		Long: `Init looks at some items of each container of the database and writes the cascades
that they suggest, with comments: a field such as categoryId, or the elements of an
array such as tags, whose values are ids of items in another container, and the fields
beside it that are copies of that item's. It says of how many items that is true. With
names it proposes cascades into these containers alone.

It changes nothing. What it writes is what apply reads: look at it, then ask
millrace plan -f FILE what it would do.

It is written to standard output, as by -o yaml, or to the file that -o names, which must
not be there; -o json tells the same as JSON. It exits with 1 if nothing suggests a copy.`,
		Example: "  millrace init -o first.yaml && millrace plan -f first.yaml\n  millrace init product --sample 5000",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.sample < 1 || f.sample > initSampleMax {
				return &usageError{fmt.Errorf("--sample %d: 1 to %d are allowed", f.sample, initSampleMax)}
			}
			if f.out == "table" {
				return &usageError{errors.New("-o table: init writes YAML; -o yaml, -o json or the name of a file is expected")}
			}
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				return a.init(ctx, s, args, &f)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.out, "output", "o", "", "file to write, which must not be there, or yaml or json")
	flags.IntVar(&f.sample, "sample", initSample, "items of each container to look at, at most")
	return cmd
}

// init proposes pipelines and writes them.
func (a *app) init(ctx context.Context, s *session, wanted []string, f *initFlags) error {
	infos, err := s.containers(ctx, a.database, "")
	if err != nil {
		return err
	}
	// Before the samples are read, which may take long.
	for _, name := range wanted {
		if !slices.ContainsFunc(infos, func(i store.ContainerInfo) bool { return i.Name == name }) {
			return &store.NoContainerError{Database: a.database, Name: name}
		}
	}
	if len(infos) > initContainersMax {
		return bad("database %s has %d containers, and init looks at %d at most", a.database, len(infos), initContainersMax)
	}
	var samples []propose.Sample
	opened := map[string]*store.Container{}
	for i := range infos {
		ct, err := s.client.Container(ctx, a.database, infos[i].Name)
		if err != nil {
			return err
		}
		opened[infos[i].Name] = ct
		items, err := sampleOf(ctx, ct, f.sample)
		if err != nil {
			return err
		}
		samples = append(samples, propose.Sample{Container: infos[i], Items: items})
	}
	world, err := s.registry.World(ctx)
	if err != nil {
		return err
	}
	read := func(ctx context.Context, container string, refs []store.ItemRef) ([]store.Item, error) {
		// Without the barrier: shares of a sample need no newest item.
		return opened[container].ReadMany(ctx, refs, false)
	}
	result, err := propose.Run(ctx, samples, wanted, world.Existing(), a.database, read)
	if err != nil {
		return err
	}
	return a.writeInit(result, f)
}

// writeInit writes what was proposed where it was asked for.
func (a *app) writeInit(result *propose.Result, f *initFlags) error {
	if f.out == "json" {
		if err := writeJSON(a.out, result); err != nil || len(result.Proposals) > 0 {
			return err
		}
		return &badNews{errTold}
	}
	if len(result.Proposals) == 0 {
		return nothingSuggested(result)
	}
	text := initText(result)
	if f.out == "" || f.out == "yaml" {
		_, err := io.WriteString(a.out, text)
		return err
	}
	// Never over what is there: it may be what somebody made of the first proposal.
	file, err := os.OpenFile(f.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return &usageError{fmt.Errorf("-o %s: the file is there; name another, or remove it", f.out)}
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "%s: %s\nnext: millrace plan -f %s\n", f.out, format.Plural(len(result.Proposals), "pipeline", "pipelines"), quoted(f.out))
	return err
}

// nothingSuggested says why there is no proposal.
func nothingSuggested(result *propose.Result) error {
	var why strings.Builder
	for i := range result.Refused {
		p := &result.Refused[i]
		fmt.Fprintf(&why, "\n  %s of %s names an item of %s in %s: %s", p.Field, p.Into, p.Source, p.Names, p.Finding)
	}
	if result.Left > 0 {
		fmt.Fprintf(&why, "\n  not looked into: %s; name containers to look at fewer", leftText(result.Left))
	}
	if why.Len() > 0 {
		return bad("nothing new is suggested by the %s of %s that were looked at:%s",
			format.Plural(result.Items, "item", "items"), format.Plural(result.Containers, "container", "containers"), why.String())
	}
	return bad("nothing in the %s of %s that were looked at names an item of another; millrace explain pipeline.spec tells how a pipeline is written",
		format.Plural(result.Items, "item", "items"), format.Plural(result.Containers, "container", "containers"))
}

// leftText says what was not looked into, so that what was read is bounded.
func leftText(n int) string {
	return "whether " + format.Plural(n, "more field names", "more fields name") + " items of another container"
}

// initText is the file of the proposals.
func initText(result *propose.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# What millrace init found in %s of %s. Nothing is applied yet:
#
#   millrace plan -f FILE                     what apply would do, item by item
#   millrace apply -f FILE                    do it, and keep it so
#   millrace explain pipeline.spec.cascade    what each key means
#
`, format.Plural(result.Items, "item", "items"), format.Plural(result.Containers, "container", "containers"))
	for i := range result.Refused {
		p := &result.Refused[i]
		fmt.Fprintf(&b, "# Left out: %s of %s names an item of %s in %s, but %s\n", p.Field, p.Into, p.Source, p.Names, p.Finding)
	}
	if result.Left > 0 {
		fmt.Fprintf(&b, "# Not looked into: %s; name containers to look at fewer.\n", leftText(result.Left))
	}
	for i := range result.Proposals {
		if i > 0 {
			b.WriteString("---\n")
		}
		b.WriteString(result.Proposals[i].YAML)
	}
	return b.String()
}

// sampleOf returns some items of a container: the first ones of each physical partition,
// and where these are of few logical partitions, the first ones of others. Items lie in
// the order of their keys, so of a container that is divided by type the first thousand
// may all be tags, and the categories behind them.
func sampleOf(ctx context.Context, ct *store.Container, most int) ([][]byte, error) {
	partitions := ct.Partitions()
	each := max(most/len(partitions), 1)
	var items [][]byte
	keys := map[string]bool{}
	more := false
	for _, p := range partitions {
		request := store.Scan{ItemsMax: min(each, scanItems)}
		for n := 0; n < each; {
			page, err := ct.Scan(ctx, p, request)
			if err != nil {
				return nil, fmt.Errorf("scan %s: %w", p, err)
			}
			for i := range page.Items {
				items = append(items, page.Items[i].Body)
				keys[page.Items[i].Key.String()] = true
			}
			n += len(page.Items)
			if request.After = page.Cursor; page.Cursor == nil {
				break
			}
			more = more || n >= each
		}
	}
	paths := ct.Info().Spec.PartitionKey
	// Others are only looked for where the items may be divided by type: by one field of theirs, of
	// which few values were seen, and not all items were. The query names the field as c["type"],
	// so it is one of the item itself.
	if !more || len(paths) != 1 || len(keys) > initTypesMax || strings.Count(paths[0], "/") != 1 {
		return items, nil
	}
	others, err := othersOf(ctx, ct, strings.TrimPrefix(paths[0], "/"), items, most/initTypesMax+1)
	return append(items, others...), err
}

// othersOf returns items whose value of a field none of items has: at most most at a time,
// and of one page of a query, so that what is read is bounded.
func othersOf(ctx context.Context, ct *store.Container, field string, items [][]byte, most int) ([][]byte, error) {
	name, err := json.Marshal(field)
	if err != nil {
		return nil, err
	}
	var seen []json.RawMessage
	know := func(items [][]byte) {
		for _, body := range items {
			var o map[string]json.RawMessage
			if json.Unmarshal(body, &o) == nil && !slices.ContainsFunc(seen, func(v json.RawMessage) bool { return string(v) == string(o[field]) }) {
				seen = append(seen, o[field])
			}
		}
	}
	know(items)
	var others [][]byte
	for range initTypesMax {
		values, err := json.Marshal(seen)
		if err != nil {
			return nil, err
		}
		page, err := ct.Query(ctx, store.QueryRequest{
			Text:    "SELECT * FROM c WHERE NOT ARRAY_CONTAINS(@seen, c[" + string(name) + "])",
			Params:  []store.QueryParam{{Name: "seen", Value: values}},
			RowsMax: min(most, store.QueryRowsMax),
		})
		if err != nil {
			return nil, fmt.Errorf("look for other items of %s: %w", ct.Info().Name, err)
		}
		if len(page.Rows) == 0 {
			break
		}
		others = append(others, page.Rows...)
		know(page.Rows)
	}
	return others, nil
}
