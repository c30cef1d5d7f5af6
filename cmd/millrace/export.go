package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/cmd/millrace/internal/remote"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/store"
)

// scanItems is the size of a page of a scan.
const scanItems = 1000

func newExport(a *app) *cobra.Command {
	var file string
	var at endpointFlags
	cmd := &cobra.Command{
		Use:   "export CONTAINER",
		Short: "Write the items of a container to a file, one a line",
		Long: `Export writes every item of a container as it stands in the store, one a line, to
standard output or to a file; a file whose name ends in .gz is gzipped. Each
physical partition is read in order while writes go on: an item that is written
meanwhile may be in the file as it was before or as it is after.

A file has its name only once all items are in it: until then they are in
FILE.PID.partial, and an earlier FILE stays as it is. What export writes, import takes.`,
		Example: `  millrace export product --file product.ndjson.gz
  MILLRACE_KEY=… millrace export product --endpoint https://shop:8081 --ca ca.pem`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, &at, func(ctx context.Context, c client) error {
				database, name := a.splitName(args[0])
				ct, err := c.Container(ctx, database, name)
				if err != nil {
					return err
				}
				return a.export(ctx, ct, file)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file to write (default standard output)")
	a.addEndpoint(cmd, &at)
	return cmd
}

func (a *app) export(ctx context.Context, ct itemReader, file string) (err error) {
	out, err := a.exportTo(file)
	if err != nil {
		return err
	}
	defer func() { err = out.finish(err) }()
	// For the progress alone. It is as of now, and writes go on.
	total, err := ct.Count(ctx)
	if err != nil {
		return err
	}
	bar := newProgress(a.err, "exporting "+containerName(ct), "items")
	defer bar.done()
	written := int64(0)
	err = ct.Items(ctx, remote.Selection{PageMax: scanItems}, func(items []store.Item) error {
		for i := range items {
			if err := writeLine(out, items[i].Body); err != nil {
				return err
			}
		}
		written += int64(len(items))
		bar.set(written, int64(total), containerName(ct))
		return nil
	})
	if err != nil {
		return err
	}
	if err := out.finish(nil); err != nil {
		return err
	}
	if file != "" {
		bar.done()
		fmt.Fprintf(a.err, "%s of %s written to %s\n", format.Plural(written, "item", "items"), containerName(ct), file)
	}
	return nil
}

// exported is what an export writes to: standard output, or a file that has its name only
// when all is in it. A part of an export looks like a whole one, gzipped too, and stands for
// all items where it is imported.
type exported struct {
	io.Writer
	steps    []func() error // that end it, from the outermost writer
	partial  string         // its name meanwhile; "" if it has no other
	name     string
	finished bool
}

// exportTo opens what is written to.
func (a *app) exportTo(file string) (*exported, error) {
	if file == "" {
		out := bufio.NewWriterSize(a.out, 256<<10)
		return &exported{Writer: out, steps: []func() error{out.Flush}}, nil
	}
	e := &exported{name: file}
	target := file
	if named, err := filepath.EvalSymlinks(file); err == nil {
		e.name, target = named, named // a link stays one
	}
	mode := fs.FileMode(0o666)
	info, err := os.Stat(file)
	// What is there and no file, such as a pipe, is written to as it is.
	if err != nil || info.Mode().IsRegular() {
		e.partial = fmt.Sprintf("%s.%d.partial", e.name, os.Getpid())
		target = e.partial
	}
	if err == nil {
		mode = info.Mode().Perm() // that of the file which the new one replaces
	}
	f, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return nil, err
	}
	out := bufio.NewWriterSize(f, 256<<10)
	e.Writer, e.steps = out, []func() error{out.Flush}
	if strings.HasSuffix(file, ".gz") {
		zip := gzip.NewWriter(out)
		e.Writer, e.steps = zip, []func() error{zip.Close, out.Flush}
	}
	if e.partial != "" { // before the rename: else the name could outlive a loss of power and the content not
		e.steps = append(e.steps, f.Sync)
	}
	e.steps = append(e.steps, f.Close)
	return e, nil
}

// finish writes what is buffered and gives the file its name, or removes it if the export
// has failed. A second call does nothing.
func (e *exported) finish(failed error) error {
	if e.finished {
		return failed
	}
	e.finished = true
	err := failed
	for _, step := range e.steps {
		err = errors.Join(err, step())
	}
	if e.partial == "" {
		return err
	}
	if err == nil {
		err = os.Rename(e.partial, e.name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w; nothing was written to %s", err, e.name), os.Remove(e.partial))
	}
	return nil
}

// writeLine writes one item in one line. White space between its tokens may be
// new lines, which mean nothing and become blanks; inside a string there is none.
func writeLine(w io.Writer, body []byte) error {
	line := make([]byte, 0, len(body)+1)
	for _, c := range body {
		if c == '\n' || c == '\r' {
			c = ' '
		}
		line = append(line, c)
	}
	_, err := w.Write(append(line, '\n'))
	return err
}

// scan calls f with every page of a physical partition.
func scan(ctx context.Context, ct *store.Container, p feed.Partition, request store.Scan, f func([]store.Item) error) error {
	for {
		page, err := ct.Scan(ctx, p, request)
		if err != nil {
			return fmt.Errorf("scan %s: %w", p, err)
		}
		if err := f(page.Items); err != nil {
			return err
		}
		if page.Cursor == nil {
			return nil
		}
		request.After = page.Cursor
	}
}

// countItems counts the items of all physical partitions.
func countItems(ctx context.Context, ct *store.Container) (int, error) {
	partitions := ct.Partitions() // once: a split that is found meanwhile makes them more
	counts := make([]int, len(partitions))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, p := range partitions {
		g.Go(func() (err error) {
			counts[i], err = ct.Count(ctx, p, store.Scope{})
			return err
		})
	}
	err := g.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return total, err
}
