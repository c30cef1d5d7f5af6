package parquetsink_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/processors/project/sinktest"
)

// TestDelta_ForeignCommitIsRefused lets another program write to a table.
func TestDelta_ForeignCommitIsRefused(t *testing.T) {
	const foreign = "orders/_delta_log/00000000000000000002.json"
	storage := newMemory()
	cfg := quick()
	cfg.Grace = time.Nanosecond
	w := openWriter(t, open(t, storage, cfg), 0, 1)
	writeRows(t, w, 1, orderRow("customer/[\"a\"]/o", "o", 1))
	flush(t, w)
	must(t, storage.PutExclusive(t.Context(), foreign, []byte(`{"commitInfo":{"timestamp":1,"operation":"OPTIMIZE",`+
		`"operationParameters":{"predicate":"[]","zOrderBy":"[\"id\"]","clusterBy":"[]","auto":false},"engineInfo":"Apache-Spark/4.0.1 Delta-Lake/4.0.0"}}
{"remove":{"path":"data/x.parquet","deletionTimestamp":1,"dataChange":false}}`)))
	refused := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Fatalf("%s succeeds beside a foreign commit", what)
		}
		for _, part := range []string{foreign, "Apache-Spark/4.0.1", "OPTIMIZE", "pause the pipeline, then remove the folder orders/_delta_log", "superseded files of orders are kept until then"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want it to say %s", what, err, part)
			}
		}
	}
	writeRows(t, w, 2, orderRow("customer/[\"a\"]/p", "p", 2))
	_, err := w.Flush(t.Context())
	refused("a flush", err)
	w = openWriter(t, open(t, storage, cfg), 0, 2)
	values := []project.Value{project.TextOf("q"), project.IntOf(1), project.TextOf("sku")}
	sku := project.Row{Table: sinktest.Lines, Key: values[:2:2], Values: values, Source: "customer/[\"a\"]/q"}
	writeRows(t, w, 3, orderRow("customer/[\"a\"]/q", "q", 3), sku)
	_, err = w.Flush(t.Context())
	refused("a flush of another process", err)
	// The other tables go on, and of this one no file that its log names is removed.
	if got := replay(t, storage, "lines", -1); got.version != 1 {
		t.Errorf("the log of lines is at version %d", got.version)
	}
	shown, err := parquetsink.ReadShown(t.Context(), storage)
	must(t, err)
	if _, ok := shown.Versions["orders"]; ok || shown.Versions["lines"] != 1 {
		t.Errorf("readers see %+v", shown)
	}
	for _, name := range replay(t, storage, "orders", 1).names() {
		if _, err := storage.Get(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	// The way out, as the error tells it.
	must(t, storage.Delete(t.Context(), storage.names("orders/_delta_log/")...))
	flush(t, w)
	if got := deltaIDs(t, storage); !slices.Equal(got, []string{"o=0.01", "p=0.02", "q=0.03"}) {
		t.Errorf("rows %q", got)
	}
}

// TestDelta_ForeignNotePasses has a commit of another program that changes nothing.
func TestDelta_ForeignNotePasses(t *testing.T) {
	storage := newMemory()
	w := openWriter(t, open(t, storage, quick()), 0, 1)
	must(t, storage.PutExclusive(t.Context(), "orders/_delta_log/00000000000000000001.json", []byte(
		`{"commitInfo":{"timestamp":1,"operation":"VACUUM START","operationParameters":{"retentionCheckEnabled":true,"defaultRetentionMillis":604800000},"operationMetrics":{"numFilesToDelete":"0"}}}`+"\n")))
	writeRows(t, w, 1, orderRow("customer/[\"a\"]/o", "o", 1))
	flush(t, w)
	if log := replay(t, storage, "orders", -1); log.version != 2 {
		t.Errorf("the log is at version %d", log.version)
	}
	if got := deltaIDs(t, storage); !slices.Equal(got, []string{"o=0.01"}) {
		t.Errorf("rows %q", got)
	}
}

// TestDelta_LogHalfRemoved removes a log but its last commit, as somebody who removes it
// beside a running sink may: nobody can read what is left, so the sink must not go on in it.
func TestDelta_LogHalfRemoved(t *testing.T) {
	storage := newMemory()
	s := open(t, storage, quick())
	parquetsink.LookEvery(s, 0)
	w := openWriter(t, s, 0, 1)
	for n := 1; n <= 3; n++ {
		writeRows(t, w, n, orderRow("customer/[\"a\"]/o", "o", int64(n)))
		flush(t, w)
	}
	names := storage.names("orders/_delta_log/")
	must(t, storage.Delete(t.Context(), names[:len(names)-1]...))
	writeRows(t, w, 4, orderRow("customer/[\"a\"]/o", "o", 4))
	if _, err := w.Flush(t.Context()); err == nil || !strings.Contains(err.Error(), "remove the folder orders/_delta_log") {
		t.Errorf("the sink goes on in what is left of a log: %v", err)
	}
	must(t, storage.Delete(t.Context(), names...))
	flush(t, w)
	if got := deltaIDs(t, storage); !slices.Equal(got, []string{"o=0.04"}) {
		t.Errorf("rows %q", got)
	}
}

// TestDelta_KeepsVacuumAway looks for the property by which VACUUM spares files that no log
// names yet. A log without it gets it.
func TestDelta_KeepsVacuumAway(t *testing.T) {
	const first = "orders/_delta_log/00000000000000000000.json"
	storage := newMemory()
	openWriter(t, open(t, storage, quick()), 0, 1)
	data, err := storage.Get(t.Context(), first)
	must(t, err)
	const property = `"delta.deletedFileRetentionDuration":"interval 1000 weeks"`
	if !strings.Contains(string(data), property) {
		t.Errorf("%s: %s", first, data)
	}
	must(t, storage.Put(t.Context(), first, []byte(strings.ReplaceAll(string(data), property, ""))))
	openWriter(t, open(t, storage, quick()), 0, 2)
	if data, err = storage.Get(t.Context(), "orders/_delta_log/00000000000000000001.json"); err != nil || !strings.Contains(string(data), property) {
		t.Errorf("%s, %v", data, err)
	}
}

// TestDelta_TableThatIsGoneGetsNoLog removes the log of a table that a swap has removed: a
// new one would have no columns.
func TestDelta_TableThatIsGoneGetsNoLog(t *testing.T) {
	storage := newMemory()
	s := open(t, storage, quick())
	openWriter(t, s, 0, 1)
	schema := sinktest.Schema(2)
	schema.Shadow, schema.Tables = true, schema.Tables[sinktest.Orders:sinktest.Orders+1]
	_, _, err := s.Open(t.Context(), schema, termOf(2, 0, 1))
	must(t, err)
	must(t, s.Swap(t.Context(), schema))
	must(t, storage.Delete(t.Context(), storage.names("lines/_delta_log/")...))
	_, _, err = open(t, storage, quick()).Open(t.Context(), schema, termOf(2, 0, 2))
	must(t, err)
	if names := storage.names("lines/_delta_log/"); len(names) > 0 {
		t.Errorf("there is %q", names)
	}
}

// TestDelta_SwapBesideAForeignCommit swaps generations while the log of one table is refused:
// the swap ends, the other tables show it, and flushes say what waits.
func TestDelta_SwapBesideAForeignCommit(t *testing.T) {
	const foreign = "orders/_delta_log/00000000000000000001.json"
	storage := newMemory()
	s := open(t, storage, quick())
	openWriter(t, s, 0, 1)
	schema := sinktest.Schema(2)
	schema.Shadow = true
	w, _, err := s.Open(t.Context(), schema, termOf(2, 0, 1))
	must(t, err)
	sku := []project.Value{project.TextOf("q"), project.IntOf(1), project.TextOf("sku")}
	writeRows(t, w, 1, orderRow("customer/[\"a\"]/q", "q", 3), project.Row{Table: sinktest.Lines, Key: sku[:2:2], Values: sku, Source: "customer/[\"a\"]/q"})
	flush(t, w)
	must(t, storage.PutExclusive(t.Context(), foreign, []byte(`{"commitInfo":{"timestamp":1,"operation":"OPTIMIZE","operationParameters":{}}}
{"remove":{"path":"data/x.parquet","deletionTimestamp":1,"dataChange":false}}`)))
	for _, by := range []*parquetsink.Sink{open(t, storage, quick()), s} { // the second time there is nothing to swap
		must(t, by.Swap(t.Context(), schema))
	}
	if got := replay(t, storage, "lines", -1); got.version != 1 || len(got.files) != 1 {
		t.Errorf("the log of lines is at version %d with %q", got.version, got.names())
	}
	shown, err := parquetsink.ReadShown(t.Context(), storage)
	must(t, err)
	if _, ok := shown.Versions["orders"]; ok || shown.Generation != 2 {
		t.Errorf("readers see %+v", shown)
	}
	if _, err := w.Flush(t.Context()); err == nil || !strings.Contains(err.Error(), foreign) {
		t.Errorf("a flush after the swap: %v, want it to say %s", err, foreign)
	}
	must(t, storage.Delete(t.Context(), storage.names("orders/_delta_log/")...)) // the way out
	flush(t, w)
	if got := deltaIDs(t, storage); !slices.Equal(got, []string{"q=0.03"}) {
		t.Errorf("rows %q", got)
	}
}

// TestDelta_ForeignCheckpointIsRefused has checkpoints of other programs, and what points
// at them, in the forms in which they write them.
func TestDelta_ForeignCheckpointIsRefused(t *testing.T) {
	const folder = "orders/_delta_log/"
	foreign, err := os.ReadFile("testdata/foreign.checkpoint.parquet")
	must(t, err)
	hint := []byte(`{"version":4,"size":5,"sizeInBytes":13964,"numOfAddFiles":3}`)
	for name, data := range map[string][]byte{
		"00000000000000000006.checkpoint.parquet":                                   foreign,
		"00000000000000000004.checkpoint.parquet":                                   foreign, // in place of ours
		"_last_checkpoint":                                                          hint,
		"00000000000000000006.checkpoint.0000000001.0000000002.parquet":             foreign,
		"00000000000000000006.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json": []byte("{}"),
		"00000000000000000001.00000000000000000005.compacted.json":                  []byte("{}"),
		"_sidecars/016ae953-37a9-438e-8683-9a9a4a79a395.parquet":                    foreign,
	} {
		t.Run(name, func(t *testing.T) {
			storage := newMemory()
			s := open(t, storage, quick())
			parquetsink.CheckpointEvery(s, 4)
			parquetsink.LookEvery(s, 0)
			w := openWriter(t, s, 0, 1)
			for n := 1; n <= 6; n++ {
				writeRows(t, w, n, orderRow("customer/[\"a\"]/o", "o", int64(n)))
				flush(t, w)
			}
			must(t, storage.Put(t.Context(), folder+name, data))
			for n := 7; n <= 8; n++ { // the second time by another process
				writeRows(t, w, n, orderRow("customer/[\"a\"]/o", "o", int64(n)))
				_, err := w.Flush(t.Context())
				if err == nil || !strings.Contains(err.Error(), folder+name) || !strings.Contains(err.Error(), "pause the pipeline, then remove the folder orders/_delta_log") {
					t.Fatalf("beside %s: %v", name, err)
				}
				if log := replay(t, storage, "lines", -1); log.version < 0 {
					t.Error("the other tables do not go on")
				}
				w = openWriter(t, open(t, storage, quick()), 0, uint64(n))
			}
			must(t, storage.Delete(t.Context(), storage.names(folder)...))
			flush(t, openWriter(t, s, 0, 20))
			if got := deltaIDs(t, storage); !slices.Equal(got, []string{"o=0.08"}) {
				t.Errorf("rows %q", got)
			}
		})
	}
}
