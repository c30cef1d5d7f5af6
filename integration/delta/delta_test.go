package delta_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/millrace/millrace/integration/tables"
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

// reader returns the program that answers questions for tables: with delta-rs, or, if DELTA_SPARK names an
// interpreter that has pyspark, with Spark.
func reader(t *testing.T) []string {
	t.Helper()
	if name := os.Getenv("DELTA_SPARK"); name != "" {
		return []string{name, "testdata/spark.py"}
	}
	return []string{python(t), "testdata/read.py"}
}

// bench is a sink in a directory, and another implementation of Delta Lake beside it.
type bench struct {
	tables.Tables

	// mu is held for a question and its answer.
	mu    *sync.Mutex
	ask   io.Writer
	hears *bufio.Scanner
}

func newBench(t *testing.T, schema *project.Schema, cfg parquetsink.Config) *bench {
	t.Helper()
	program := reader(t)
	b := &bench{Tables: tables.New(t, schema, cfg), mu: &sync.Mutex{}}
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	b.Must(err)
	out, err := cmd.StdoutPipe()
	b.Must(err)
	b.Must(cmd.Start())
	t.Cleanup(func() {
		_ = in.Close() // ends it
		b.Must(cmd.Wait())
	})
	b.ask, b.hears = in, bufio.NewScanner(out)
	b.hears.Buffer(nil, 64<<20)
	return b
}

// answer is what the reader says of a table.
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
	line := filepath.Join(b.Dir, table) + "\t" + version
	for _, c := range condition {
		line += "\t" + c
	}
	_, err := fmt.Fprintln(b.ask, line)
	b.Must(err)
	if !b.hears.Scan() {
		b.Fatalf("the reader has ended: %v", b.hears.Err())
	}
	var a answer
	b.Must(json.Unmarshal(b.hears.Bytes(), &a))
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

// printed is a row as the reader gives it.
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
