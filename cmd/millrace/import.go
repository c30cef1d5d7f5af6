package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/ingest"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

// importFlags are those of import.
type importFlags struct {
	state        string
	writers      int
	partitionKey []string
	partitions   int
	show         int
	at           endpointFlags
}

// importReport tells what an import did.
type importReport struct {
	Container string `json:"container"`
	Input     string `json:"input"`
	Format    string `json:"format"`
	// Resumed is the number of records that an earlier run had finished.
	Resumed    int64              `json:"resumed,omitempty"`
	Written    int64              `json:"written"`
	Rejected   int64              `json:"rejected"`
	Rejections []ingest.Rejection `json:"rejections,omitempty"`
	Seconds    float64            `json:"seconds"`
}

func newImport(a *app) *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import CONTAINER FILE...",
		Short: "Write items from files: a JSON array, or an item in each line, gzipped or not",
		Long: `Import writes every item of the files into a container; an item that is there is
replaced. The form of a file is told by its content: a JSON array of items, or
one item in each line; either may be gzipped. - is standard input.

What cannot be taken is told with its line and the reason, and the others go on.
An import that was stopped goes on where it stood when it is started again: its
state lies beside the file, as FILE.import, until it is finished.

It exits with 1 if anything was rejected.`,
		Example: "  millrace import product product.json\n  zcat old.ndjson.gz | millrace import customer -",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.writers < 1 || f.writers > 4096 {
				return &usageError{fmt.Errorf("--writers %d: 1 to 4096 are expected", f.writers)}
			}
			if f.state != "" && len(args) > 2 {
				return &usageError{errors.New("--state is for one file at a time")}
			}
			return a.withClient(cmd, &f.at, func(ctx context.Context, c client) error {
				if f.at.url != "" && cmd.Flags().Changed("partitions") {
					return &usageError{fmt.Errorf("--partitions: %s decides itself how many a container gets; of a Millrace node, gateway.partitions says so", f.at.url)}
				}
				ct, err := a.importInto(ctx, c, args[0], &f)
				if err != nil {
					return err
				}
				return a.importFiles(ctx, ct, args[1:], &f)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.state, "state", "", "file that keeps how far the import is (default FILE.import; none for standard input)")
	flags.IntVar(&f.writers, "writers", 64, "items under way at a time")
	flags.StringSliceVar(&f.partitionKey, "partition-key", nil, "paths, such as /categoryId: make the container if it is not there")
	flags.IntVar(&f.partitions, "partitions", 1, "with --partition-key: physical partitions of a container that is made")
	flags.IntVar(&f.show, "show", 100, "rejections to show of each file; all are counted")
	a.addEndpoint(cmd, &f.at)
	return cmd
}

// importInto finds the container, or makes it if the flags say how.
func (a *app) importInto(ctx context.Context, c client, arg string, f *importFlags) (container, error) {
	database, name := a.splitName(arg)
	ct, err := c.Container(ctx, database, name)
	if !errors.Is(err, store.ErrNotFound) || len(f.partitionKey) == 0 {
		return ct, err
	}
	spec := store.ContainerSpec{PartitionKey: f.partitionKey, Partitions: f.partitions}
	if err := c.Create(ctx, database, name, spec); err != nil {
		return nil, err
	}
	fmt.Fprintf(a.err, "container %s/%s created\n", database, name)
	return c.Container(ctx, database, name)
}

func (a *app) importFiles(ctx context.Context, ct container, files []string, f *importFlags) error {
	var reports []importReport
	var rejected int64
	var failed error
	// The first file that fails ends the import. What the files before it did is printed first.
	for _, file := range files {
		report, err := a.importFile(ctx, ct, file, f)
		if err != nil {
			failed = fmt.Errorf("import %s: %w", file, err)
			break
		}
		reports = append(reports, *report)
		rejected += report.Rejected
	}
	err := a.print(map[string]any{"imports": append([]importReport{}, reports...)}, func(w io.Writer) error {
		for i := range reports {
			fmt.Fprintln(w, reports[i].line())
		}
		return nil
	})
	if failed != nil || err != nil {
		return errors.Join(failed, err)
	}
	if rejected > 0 {
		return bad("%s rejected\nnext: correct them in the file and import it again; the items that were written are replaced by themselves",
			format.Plural(rejected, "record was", "records were"))
	}
	return nil
}

func (r *importReport) line() string {
	rate := ""
	if r.Seconds > 0 {
		rate = fmt.Sprintf(" in %s (%s/s)", time.Duration(r.Seconds*float64(time.Second)).Round(time.Millisecond),
			format.Count(int64(float64(r.Written-r.Resumed)/r.Seconds)))
	}
	s := fmt.Sprintf("%s: %s written to %s%s", r.Input, format.Plural(r.Written, "item", "items"), r.Container, rate)
	if r.Resumed > 0 {
		s += fmt.Sprintf(", of those %s by an earlier run", format.Count(r.Resumed))
	}
	if r.Rejected > 0 {
		s += fmt.Sprintf(", %s rejected", format.Count(r.Rejected))
	}
	return s
}

// importFile imports one file and returns what it did.
func (a *app) importFile(ctx context.Context, ct container, file string, f *importFlags) (*importReport, error) {
	in, size, state, stateFile, err := a.openInput(ct, file, f.state)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // only read
	interrupt := func(error) {}
	if p, ok := in.(*io.PipeReader); ok {
		interrupt = func(err error) { _ = p.CloseWithError(err) } // never fails
		defer context.AfterFunc(ctx, func() { interrupt(context.Cause(ctx)) })()
	}
	began := time.Now()
	counted := &countingReader{r: in}
	r, err := ingest.NewReader(counted)
	if err != nil {
		return nil, err
	}
	report := &importReport{Container: containerName(ct), Input: shown(file), Format: string(r.Format()), Resumed: state.Written}
	if state.Done > 0 {
		fmt.Fprintf(a.err, "%s: going on behind %s of an earlier run\n", report.Input, format.Plural(state.Done, "record", "records"))
	}
	bar := newProgress(a.err, "importing "+filepath.Base(report.Input), unitBytes)
	shownSoFar := 0
	cfg := ingest.Config{
		Writers: f.writers,
		Write:   ct.Upsert,

		Interrupt: interrupt,
		Rejected: func(rejection ingest.Rejection) {
			if shownSoFar++; shownSoFar <= f.show {
				fmt.Fprintf(a.err, "%s:%d: rejected: %s\n", report.Input, rejection.Line, rejection.Reason)
			}
		},
		Progress: func(done int64) { bar.set(counted.n.Load(), size, format.Plural(done, "item", "items")) },
	}
	if stateFile != "" {
		cfg.Save = func(s *ingest.State) error { return s.Save(stateFile) }
	}
	err = ingest.Run(ctx, r, state, cfg)
	bar.end(err == nil, size, format.Plural(state.Done, "item", "items"))
	if errors.Is(err, ingest.ErrChanged) && file == "-" {
		return nil, fmt.Errorf("%w; to begin anew remove %s", err, stateFile)
	}
	if errors.Is(err, ingest.ErrChanged) {
		a.warnStale(true, stateFile)
		if err := os.Remove(stateFile); err != nil {
			return nil, err
		}
		return a.importFile(ctx, ct, file, f)
	}
	if shownSoFar > f.show {
		fmt.Fprintf(a.err, "%s: and %s more rejected\n", report.Input, format.Count(shownSoFar-f.show))
	}
	if err != nil {
		return nil, stopped(err, state, stateFile)
	}
	// Done: with the state left there, the same command would do nothing the next time.
	if stateFile != "" {
		if err := os.Remove(stateFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("remove the state of the import: %w", err)
		}
	}
	report.Written, report.Rejected, report.Rejections = state.Written, state.Rejected, state.Rejections
	report.Seconds = time.Since(began).Seconds()
	return report, nil
}

// stopped adds to the error of an unfinished import how to continue it.
func stopped(err error, state *ingest.State, stateFile string) error {
	if stateFile == "" || isCanceled(err) && state.Done == 0 {
		return err
	}
	return fmt.Errorf("%w\nnext: %s finished; the same command goes on behind them (%s)",
		err, format.Plural(state.Done, "record is", "records are"), stateFile)
}

// openInput opens a file, and the state of an import of it.
func (a *app) openInput(ct container, file, stateFile string) (in io.ReadCloser, size int64, state *ingest.State, stateAt string, err error) {
	target := containerName(ct) + "@" + string(ct.Info().ID)
	if file == "-" {
		// Without a file for it there is no state to keep: standard input cannot be told from
		// another one before it is read, and then it cannot be read again.
		state, stale, err := &ingest.State{Container: target}, false, error(nil)
		if stateFile != "" {
			state, stale, err = ingest.LoadState(stateFile, "standard input", target)
			a.warnStale(stale, stateFile)
		}
		return pump(a.in), 0, state, stateFile, err
	}
	if stateFile == "" {
		stateFile = file + ".import"
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, nil, "", err
	}
	fail := func(err error) (io.ReadCloser, int64, *ingest.State, string, error) {
		return nil, 0, nil, "", errors.Join(err, f.Close())
	}
	info, err := f.Stat()
	if err != nil {
		return fail(err)
	}
	if info.IsDir() {
		return fail(errors.New("is a directory; name the files in it"))
	}
	// The state is of this content and this container. Another file of the name begins anew.
	content, err := ingest.Fingerprint(f)
	if err != nil {
		return fail(err)
	}
	state, stale, err := ingest.LoadState(stateFile, content, target)
	if err != nil {
		return fail(err)
	}
	a.warnStale(stale, stateFile)
	if !writable(stateFile) {
		stateFile = "" // a small file on a read-only disk is imported from its beginning
	}
	return f, info.Size(), state, stateFile, nil
}

// pump makes a reader of standard input that can be closed while a read of it waits, which
// standard input itself cannot.
func pump(in io.Reader) *io.PipeReader {
	out, to := io.Pipe()
	go func() {
		_, err := io.Copy(to, in)
		_ = to.CloseWithError(err) // never fails; nil is io.EOF
	}()
	return out
}

func (a *app) warnStale(stale bool, stateFile string) {
	if stale {
		fmt.Fprintf(a.err, "%s is of another file or container; beginning anew\n", stateFile)
	}
}

// writable says whether a file can be made beside name.
func writable(name string) bool {
	f, err := os.CreateTemp(filepath.Dir(name), ".millrace-*")
	if err != nil {
		return false
	}
	return errors.Join(f.Close(), os.Remove(f.Name())) == nil
}

func shown(file string) string {
	if file == "-" {
		return "stdin"
	}
	return file
}

func containerName(ct interface{ Info() store.ContainerInfo }) string {
	info := ct.Info()
	return strings.TrimPrefix(info.Database+"/"+info.Name, spec.DatabaseDefault+"/")
}

// countingReader counts what was read.
type countingReader struct {
	r io.Reader
	n atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}
