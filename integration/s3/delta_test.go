package s3_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
)

// deltaScript reads a table in a bucket with delta-rs.
const deltaScript = `
import json, os, sys
from deltalake import DeltaTable
address, endpoint, access, secret = sys.argv[1:]
table = DeltaTable(address, storage_options={
    "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret})
print(json.dumps([list(row.values()) for row in table.to_pyarrow_table().to_pylist()]), flush=True)
os._exit(0)  # threads of delta-rs may still run, and abort an interpreter that takes itself down
`

// TestDeltaOnS3 has two processes commit to the same table at once, and reads it with
// delta-rs. See integration/delta for how to have that.
func TestDeltaOnS3(t *testing.T) {
	python := os.Getenv("DELTA_PYTHON")
	if python == "" {
		python = "python3"
	}
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import deltalake, pyarrow").CombinedOutput(); err != nil {
		t.Skipf("%s has no delta-rs (pip install -r integration/delta/requirements.txt; DELTA_PYTHON names another interpreter): %v: %s", python, err, out)
	}
	in := newBucket(t)
	schema := &project.Schema{Pipeline: "analytics", Generation: 1, Tables: []project.TableSchema{{
		Name: "orders", Key: []int{0}, PartitionBy: 1,
		Columns: []project.ColumnSchema{{Name: "id"}, {Name: "city"}},
	}}}
	cities := []string{"Berlin", "New York", "a/b=c", "50%", "Zürich"}
	const commits = 12
	var want []string
	var work sync.WaitGroup
	for p := range 2 {
		sink, err := parquetsink.New(parquetsink.Bucket(open(t, in)), config())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sink.Close() })
		for n := range commits {
			want = append(want, fmt.Sprintf("[p%d-%d %s <nil> s]", p, n, cities[n%len(cities)]))
		}
		work.Go(func() {
			if err := commitOrders(t, sink, schema, p, commits, cities); err != nil {
				t.Errorf("process %d: %v", p, err)
			}
		})
	}
	work.Wait()
	address := fmt.Sprintf("s3://%s/%s", in.Bucket, in.Prefix)
	out, err := exec.CommandContext(t.Context(), python, "-c", deltaScript, address+"orders", "http://"+endpoint, access, secret).Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("%v: %s", err, failed.Stderr)
		}
		t.Fatal(err)
	}
	var rows [][]any
	if err := json.Unmarshal(out, &rows); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range rows {
		got = append(got, fmt.Sprint(row))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("rows\n%q\nwant\n%q", got, want)
	}
}

// commitOrders commits orders one by one as the producer p.
func commitOrders(t *testing.T, sink *parquetsink.Sink, schema *project.Schema, p, commits int, cities []string) error {
	term := project.Term{Producer: feed.Producer{Pipeline: schema.Pipeline, Generation: 1, Source: fmt.Sprint("source:c7k2x4ab/", p)}, Epoch: 1}
	w, _, err := sink.Open(t.Context(), schema, term)
	if err != nil {
		return err
	}
	for n := range commits {
		values := []project.Value{project.TextOf(fmt.Sprintf("p%d-%d", p, n)), project.TextOf(cities[n%len(cities)])}
		_, err := w.Write(t.Context(), &project.Batch{
			After: feed.Position{LSN: feed.LSN(n)}, UpTo: feed.Position{LSN: feed.LSN(n + 1)},
			Put: []project.Row{{Key: values[:1:1], Values: values, Source: "s"}},
		})
		if err == nil {
			_, err = w.Flush(t.Context())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
