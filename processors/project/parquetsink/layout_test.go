package parquetsink_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/processors/project/sinktest"
)

// columnsOf returns the columns of a file with their types.
func columnsOf(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(name)
	must(t, err)
	p, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	must(t, err)
	var all []string
	for _, field := range p.Schema().Fields() {
		need := "optional"
		if field.Required() {
			need = "required"
		}
		all = append(all, fmt.Sprintf("%s %s %s", field.Name(), need, field.Type()))
	}
	return all
}

func TestLayout_Columns(t *testing.T) {
	dir := t.TempDir()
	openWriter(t, open(t, parquetsink.NewDir(dir), quick()), 0, 1)
	file := func(table string) string {
		t.Helper()
		found := replay(t, parquetsink.NewDir(dir), table, -1).names()
		if len(found) != 1 {
			t.Fatalf("files of the new table %s: %q, want one without rows", table, found)
		}
		return filepath.Join(dir, filepath.FromSlash(found[0]))
	}
	for table, want := range map[string][]string{
		"Kinds": {
			"k required STRING", "any optional STRING", "text optional STRING", "int optional INT(64,true)", "double optional DOUBLE",
			"decimal optional DECIMAL(38,9)", "small optional DECIMAL(9,4)", "bool optional BOOLEAN",
			"time optional TIMESTAMP(isAdjustedToUTC=true,unit=MICROS)", "date optional DATE", "json optional JSON",
			"Größe__in___cm_ optional DOUBLE", "_element optional STRING", "_source required STRING",
		},
		"orders": {
			"id required STRING", "customer_id optional STRING", "total optional DECIMAL(12,2)", "select optional INT(64,true)",
			"_element optional STRING", "_source required STRING",
		},
		"orders_rejects": {
			"source required STRING", "element optional STRING", "column optional STRING", "reason optional STRING", "row optional JSON",
			"key optional JSON", "_hash required INT(64,true)",
		},
	} {
		if got := columnsOf(t, file(table)); !slices.Equal(got, want) {
			t.Errorf("columns of %s are\n%q\nwant\n%q", table, got, want)
		}
	}
}

// TestLayout_SmallFilesAreMerged commits a row at a time: the files stay few, and
// a row is not rewritten each time.
func TestLayout_SmallFilesAreMerged(t *testing.T) {
	t.Parallel()
	storage := &counting{objects: newMemory()}
	cfg := quick()
	cfg.Grace = time.Nanosecond
	w := openWriter(t, open(t, storage, cfg), 0, 1)
	const commits = 300
	for n := 1; n <= commits; n++ {
		var rows []project.Row
		for i := range 20 {
			id := fmt.Sprintf("o%d-%d", n, i)
			rows = append(rows, orderRow("customer/[\"a\"]/"+id, id, int64(n)))
		}
		writeRows(t, w, n, rows...)
		flush(t, w)
	}
	live, _, _, err := parquetsink.Newest(t.Context(), storage)
	must(t, err)
	live = slices.DeleteFunc(live, func(name string) bool { return !strings.HasPrefix(name, "orders/") })
	if len(live) > 12 {
		t.Errorf("%d files after %d commits: %q", len(live), commits, live)
	}
	files := len(storage.objects.(*memory).names("orders/data/"))
	if files > len(live)+10 {
		t.Errorf("%d files are there, %d live", files, len(live))
	}
	t.Logf("%d live files; %d bytes written for %d that stay", len(live), storage.bytes, storage.size(t, live))
}

// TestLayout_LargeFilesAreNotMerged commits rows of which four commits are more than a
// file may hold, and some fewer: only those are written again.
func TestLayout_LargeFilesAreNotMerged(t *testing.T) {
	for _, c := range []struct {
		rows   int
		merged bool
	}{{11, false}, {10, true}} {
		storage := newMemory()
		cfg := quick()
		cfg.FileRowsMax = 40
		w := openWriter(t, open(t, storage, cfg), 0, 1)
		for n := 1; n <= 8; n++ {
			var rows []project.Row
			for i := range c.rows {
				id := fmt.Sprintf("o%d-%d", n, i)
				rows = append(rows, orderRow("customer/[\"a\"]/"+id, id, int64(n)))
			}
			writeRows(t, w, n, rows...)
			flush(t, w)
		}
		live, _, _, err := parquetsink.Newest(t.Context(), storage)
		must(t, err)
		live = slices.DeleteFunc(live, func(name string) bool { return !strings.HasPrefix(name, "orders/") })
		if merged := len(live) < 8; merged != c.merged {
			t.Errorf("%d files after 8 commits of %d rows, want merged %v", len(live), c.rows, c.merged)
		}
	}
}

// counting counts what is written to files of orders.
type counting struct {
	objects
	bytes int
}

func (c *counting) Put(ctx context.Context, name string, data []byte) error {
	if strings.HasPrefix(name, "orders/data/") {
		c.bytes += len(data)
	}
	return c.objects.Put(ctx, name, data)
}

func (c *counting) size(t *testing.T, names []string) (n int) {
	t.Helper()
	for _, name := range names {
		data, err := c.Get(t.Context(), name)
		must(t, err)
		n += len(data)
	}
	return n
}

// TestLayout_NothingChanges commits rows as they are: no file is written for them.
func TestLayout_NothingChanges(t *testing.T) {
	storage := newMemory()
	w := openWriter(t, open(t, storage, quick()), 0, 1)
	row := orderRow("customer/[\"a\"]/o", "o", 1)
	writeRows(t, w, 1, row)
	flush(t, w)
	before := storage.names("orders/data/")
	for n := 2; n < 10; n++ {
		writeRows(t, w, n, row)
		flush(t, w)
	}
	if after := storage.names("orders/data/"); !slices.Equal(before, after) {
		t.Errorf("files are %q, were %q", after, before)
	}
	if _, _, number, err := parquetsink.Newest(t.Context(), storage); err != nil || number < 9 {
		t.Errorf("manifest %d, %v: the positions were not recorded", number, err)
	}
	_, err := w.Write(t.Context(), &project.Batch{After: at(9), UpTo: at(9), Put: []project.Row{row}})
	must(t, err)
	_, _, before2, err := parquetsink.Newest(t.Context(), storage)
	must(t, err)
	flush(t, w)
	if _, _, after, err := parquetsink.Newest(t.Context(), storage); err != nil || after != before2 {
		t.Errorf("manifest %d, %v: a restated row that is there has made one", after, err)
	}
}

// visits is a schema of a partitioned table.
func visits() *project.Schema {
	return &project.Schema{Pipeline: "analytics", Generation: 1, Tables: []project.TableSchema{{
		Name: "visits by city", Key: []int{0}, PartitionBy: 1,
		Columns: []project.ColumnSchema{
			{Name: "id", Type: project.Type{Kind: project.KindInt64}}, {Name: "The city", Type: project.Type{Kind: project.KindString}}, {Name: "n"},
		},
	}}}
}

func visit(id int64, city string) project.Row {
	values := []project.Value{project.IntOf(id), project.TextOf(city), project.TextOf("x")}
	if city == "null" {
		values[1] = project.Value{}
	}
	return project.Row{Key: values[:1:1], Values: values, Source: fmt.Sprintf("customer/[%d]/v", id)}
}

func TestLayout_Partitions(t *testing.T) {
	dir := t.TempDir()
	s := open(t, parquetsink.NewDir(dir), quick())
	schema := visits()
	w, _, err := s.Open(t.Context(), schema, termOf(1, 0, 1))
	must(t, err)
	cities := []string{"Berlin", "New York", "a/b=c", "Zürich", "null", "..", "50%"}
	var rows []project.Row
	for i := range int64(40) {
		rows = append(rows, visit(i, cities[int(i)%len(cities)]))
	}
	writeRows(t, w, 1, rows...)
	flush(t, w)
	folders := func() (names []string) {
		t.Helper()
		for _, name := range replay(t, parquetsink.NewDir(dir), "visits_by_city", -1).names() {
			names = append(names, path.Base(path.Dir(name)))
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	want := []string{
		"The_city_partition=..", "The_city_partition=50%25", "The_city_partition=Berlin", "The_city_partition=New York", "The_city_partition=Zürich",
		"The_city_partition=__HIVE_DEFAULT_PARTITION__", "The_city_partition=a%2Fb%3Dc",
	}
	if got := folders(); !slices.Equal(got, want) {
		t.Errorf("folders are %q, want %q", got, want)
	}
	// Rows that move, and the last ones of a partition.
	var moved []project.Row
	for i := range int64(40) {
		moved = append(moved, visit(i, "Berlin"))
	}
	writeRows(t, w, 2, moved...)
	flush(t, w)
	if got := folders(); !slices.Equal(got, []string{"The_city_partition=Berlin"}) {
		t.Errorf("folders are %q, want Berlin alone", got)
	}
	n := 0
	for r, err := range s.Rows(t.Context(), schema, 0) {
		must(t, err)
		if r.Values[1].Text() != "Berlin" {
			t.Errorf("row %v", r.Values)
		}
		n++
	}
	if n != 40 {
		t.Errorf("%d rows, want 40", n)
	}
	column, reason := s.CannotHold(schema, new(visit(1, strings.Repeat("long", 60))))
	if column != "The city" || reason == "" {
		t.Errorf("a long value: %q %q", column, reason)
	}
	if column, reason := s.CannotHold(schema, new(visit(1, strings.Repeat("long", 40)))); reason != "" {
		t.Errorf("a short value: %q %q", column, reason)
	}
	schema.Tables[0].Columns[1].Type = project.Type{Kind: project.KindTimestamp}
	if problems := s.Check(schema); len(problems) != 1 || !strings.Contains(problems[0].String(), "partitionBy") {
		t.Errorf("a table partitioned by a timestamp: %v", problems)
	}
}

// TestLayout_NamesStayMapped adds columns whose names are mapped to one that is
// taken: what was there keeps its name.
func TestLayout_NamesStayMapped(t *testing.T) {
	dir := t.TempDir()
	schema := &project.Schema{Pipeline: "analytics", Generation: 1, Tables: []project.TableSchema{
		{Name: "a b", Key: []int{0}, PartitionBy: -1, Columns: []project.ColumnSchema{{Name: "x y"}, {Name: "X_Y"}, {Name: "_source"}, {Name: "1st"}}},
		{Name: "A_B", Key: []int{0}, PartitionBy: -1, Columns: []project.ColumnSchema{{Name: ""}}},
		{Name: "current", Key: []int{0}, PartitionBy: -1, Columns: []project.ColumnSchema{{Name: "k"}}},
		{Name: "a_b_rejects", Key: []int{0}, PartitionBy: -1, Columns: []project.ColumnSchema{{Name: "k"}}},
	}}
	s := open(t, parquetsink.NewDir(dir), quick())
	_, _, err := s.Open(t.Context(), schema, termOf(1, 0, 1))
	must(t, err)
	schema.Generation = 2
	schema.Tables[0].Columns = slices.Insert(schema.Tables[0].Columns, 1, project.ColumnSchema{Name: "x-y"})
	w, _, err := s.Open(t.Context(), schema, termOf(2, 0, 1))
	must(t, err)
	text := func(s string) project.Value { return project.TextOf(s) }
	values := []project.Value{text("key"), text("x-y"), text("X_Y"), text("of the item"), text("1")}
	writeRows(t, w, 1, project.Row{Key: values[:1:1], Values: values, Source: "s"})
	flush(t, w)
	shown, err := parquetsink.ReadShown(t.Context(), parquetsink.NewDir(dir))
	must(t, err)
	tables := slices.Sorted(maps.Keys(shown.Versions))
	want := []string{"A_B_2", "A_B_2_rejects", "a_b", "a_b_rejects", "a_b_rejects_2", "a_b_rejects_2_rejects", "current_2", "current_2_rejects"}
	if !slices.Equal(tables, want) {
		t.Errorf("tables are %q, want %q", tables, want)
	}
	got := columnsOf(t, filepath.Join(dir, filepath.FromSlash(replay(t, parquetsink.NewDir(dir), "a_b", -1).names()[0])))
	wantColumns := []string{"x_y", "X_Y_2", "n_source", "n_1st", "x_y_3", "_element", "_source"}
	for i, c := range got {
		if !strings.HasPrefix(c, wantColumns[i]+" ") {
			t.Errorf("column %d is %q, want %q", i, c, wantColumns[i])
		}
	}
	for r, err := range s.Rows(t.Context(), schema, 0) {
		must(t, err)
		if !slices.Equal(r.Values, values) {
			t.Errorf("row %v, want %v", r.Values, values)
		}
	}
}

// TestLayout_OtherChangesNeedAShadow refuses what would need all rows again.
func TestLayout_OtherChangesNeedAShadow(t *testing.T) {
	s := open(t, newMemory(), quick())
	openWriter(t, s, 0, 1)
	for name, change := range map[string]func(*project.Schema){
		"a type":         func(s *project.Schema) { s.Tables[0].Columns[2].Type.Scale = 4 },
		"the key":        func(s *project.Schema) { s.Tables[0].Key = []int{1} },
		"the partitions": func(s *project.Schema) { s.Tables[0].PartitionBy = 1 },
	} {
		schema := sinktest.Schema(2)
		change(schema)
		if _, _, err := s.Open(t.Context(), schema, termOf(2, 0, 1)); err == nil || !strings.Contains(err.Error(), "shadow") {
			t.Errorf("%s changes in place: %v, want it to be refused", name, err)
		}
	}
	other := sinktest.Schema(1)
	other.Pipeline = "another"
	if _, _, err := s.Open(t.Context(), other, termOf(1, 0, 1)); err == nil || !strings.Contains(err.Error(), "analytics") {
		t.Errorf("another pipeline opens: %v, want it to be refused", err)
	}
}
