package delta_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
)

// python returns an interpreter that has delta-rs, or skips the test.
func python(t *testing.T) string {
	t.Helper()
	name := os.Getenv("DELTA_PYTHON")
	if name == "" {
		name = "python3"
	}
	if out, err := exec.CommandContext(t.Context(), name, "-c", "import deltalake, pyarrow").CombinedOutput(); err != nil {
		t.Skipf("%s has no delta-rs (pip install -r integration/delta/requirements.txt; DELTA_PYTHON names another interpreter): %v: %s", name, err, out)
	}
	return name
}

// bench is a sink in a directory, and delta-rs beside it.
type bench struct {
	*testing.T
	dir    string
	sink   *parquetsink.Sink
	writer project.Writer
	lsn    feed.LSN

	// mu is held for a question and its answer.
	mu    *sync.Mutex
	ask   io.Writer
	hears *bufio.Scanner
}

func newBench(t *testing.T, schema *project.Schema, cfg parquetsink.Config) *bench {
	t.Helper()
	interpreter := python(t)
	b := &bench{T: t, dir: filepath.Join(t.TempDir(), "analytics"), mu: &sync.Mutex{}}
	cfg.CommitInterval, cfg.Logger = time.Nanosecond, slog.New(slog.DiscardHandler)
	var err error
	b.sink, err = parquetsink.New(parquetsink.NewDir(b.dir), cfg)
	b.must(err)
	t.Cleanup(func() { b.must(b.sink.Close()) })
	cmd := exec.Command(interpreter, "testdata/read.py")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	b.must(err)
	out, err := cmd.StdoutPipe()
	b.must(err)
	b.must(cmd.Start())
	t.Cleanup(func() {
		_ = in.Close() // ends it
		b.must(cmd.Wait())
	})
	b.ask, b.hears = in, bufio.NewScanner(out)
	b.hears.Buffer(nil, 64<<20)
	b.begin(schema)
	return b
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// begin opens the sink with a schema.
func (b *bench) begin(schema *project.Schema) {
	b.Helper()
	w, position, err := b.sink.Open(b.Context(), schema, project.Term{
		Producer: feed.Producer{Pipeline: schema.Pipeline, Generation: schema.Generation, Source: "source:c7k2x4ab/0"}, Epoch: 1,
	})
	b.must(err)
	b.writer, b.lsn = w, position.LSN
}

// commit writes a batch and makes it durable.
func (b *bench) commit(batch project.Batch) {
	b.Helper()
	batch.After, batch.UpTo = feed.Position{LSN: b.lsn}, feed.Position{LSN: b.lsn + 1}
	b.lsn++
	_, err := b.writer.Write(b.Context(), &batch)
	b.must(err)
	_, err = b.writer.Flush(b.Context())
	b.must(err)
}

// answer is what delta-rs says of a table.
type answer struct {
	Version int64
	Columns []string
	Rows    [][]*string
	Error   string
}

// read reads a version of a table, the newest if it is empty; with a condition it deletes
// rows first.
func (b *bench) read(table, version string, condition ...string) answer {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	line := filepath.Join(b.dir, table) + "\t" + version
	for _, c := range condition {
		line += "\t" + c
	}
	_, err := fmt.Fprintln(b.ask, line)
	b.must(err)
	if !b.hears.Scan() {
		b.Fatalf("delta-rs has ended: %v", b.hears.Err())
	}
	var a answer
	b.must(json.Unmarshal(b.hears.Bytes(), &a))
	return a
}

// rows prints the rows of the newest version of a table, sorted.
func (b *bench) rows(table string) []string {
	b.Helper()
	a := b.read(table, "")
	if a.Error != "" {
		b.Fatal(a.Error)
	}
	return a.printed()
}

func (a *answer) printed() (all []string) {
	for _, row := range a.Rows {
		values := make([]any, len(row))
		for i, v := range row {
			if v != nil {
				values[i] = *v
			}
		}
		all = append(all, fmt.Sprintf("%q", values))
	}
	slices.Sort(all)
	return all
}

// printed is a row as delta-rs gives it.
func printed(r *project.Row) string {
	var values []any
	for _, v := range r.Values {
		switch v.Kind() {
		case project.Null:
			values = append(values, nil)
		case project.Float:
			values = append(values, strconv.FormatFloat(v.Float(), 'e', 17, 64))
		case project.Time:
			values = append(values, fmt.Sprint(v.Micros()))
		default:
			values = append(values, v.String())
		}
	}
	if r.Element == "" {
		values = append(values, nil)
	} else {
		values = append(values, r.Element)
	}
	return fmt.Sprintf("%q", append(values, r.Source))
}

// same compares what was read with what was written.
func (b *bench) same(got, want []string) {
	b.Helper()
	slices.Sort(want)
	if slices.Equal(got, want) {
		return
	}
	for _, row := range want {
		if !slices.Contains(got, row) {
			b.Errorf("missing: %s", row)
		}
	}
	for _, row := range got {
		if !slices.Contains(want, row) {
			b.Errorf("too much: %s", row)
		}
	}
	b.Fatalf("%d rows, want %d", len(got), len(want))
}

func column(name, typ string) project.ColumnSchema {
	t, err := project.ParseType(typ)
	if err != nil {
		panic(err)
	}
	return project.ColumnSchema{Name: name, Type: t}
}
