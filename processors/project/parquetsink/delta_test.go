package parquetsink_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/processors/project/sinktest"
)

// deltaState is a table as its Delta log has it.
type deltaState struct {
	version int64
	schema  string
	files   map[string]map[string]any // the add actions, by name in the store
	shows   []float64                 // the manifests, in the order of commits
	infos   []map[string]any          // what people are told of each commit
	again   bool                      // a commit may add what is there and remove what is not
}

func (s *deltaState) names() []string { return slices.Sorted(maps.Keys(s.files)) }

// replay reads the Delta log of a table as the protocol has it, up to a version, -1 for all:
// from the last checkpoint before that, if there is one. It shares no code with what
// writes it.
func replay(t testing.TB, storage objects, as string, upTo int64) *deltaState {
	t.Helper()
	return replayInto(t, &deltaState{version: -1, files: map[string]map[string]any{}}, storage, as, upTo)
}

func replayInto(t testing.TB, s *deltaState, storage objects, as string, upTo int64) *deltaState {
	t.Helper()
	var commits []string
	for o, err := range storage.List(t.Context(), as+"/_delta_log/", "") {
		must(t, err)
		var version int64
		name := strings.TrimPrefix(o.Name, as+"/_delta_log/")
		if strings.HasSuffix(name, ".json") {
			commits = append(commits, o.Name)
		} else if n, _ := fmt.Sscanf(name, "%d.checkpoint.parquet", &version); n == 1 && (upTo < 0 || version <= upTo) {
			s = readCheckpoint(t, storage, as, o.Name, version)
		}
	}
	for _, name := range commits {
		if upTo >= 0 && s.version == upTo {
			break
		}
		if name <= fmt.Sprintf("%s/_delta_log/%020d.json", as, s.version) {
			continue
		}
		if want := fmt.Sprintf("%s/_delta_log/%020d.json", as, s.version+1); name != want {
			t.Fatalf("%s follows on version %d, want %s", name, s.version, want)
		}
		data, err := storage.Get(t.Context(), name)
		must(t, err)
		s.version++
		s.apply(t, as, name, data)
	}
	return s
}

// readCheckpoint reads what readers need of a checkpoint.
func readCheckpoint(t testing.TB, storage objects, as, name string, version int64) *deltaState {
	t.Helper()
	data, err := storage.Get(t.Context(), name)
	must(t, err)
	rows, err := parquet.Read[struct {
		Protocol *struct {
			Reader int32 `parquet:"minReaderVersion"`
		} `parquet:"protocol,optional"`
		MetaData *struct {
			Schema string `parquet:"schemaString"`
		} `parquet:"metaData,optional"`
		Txn *struct {
			Version int64 `parquet:"version"`
		} `parquet:"txn,optional"`
		Add *struct {
			Path  string `parquet:"path"`
			Size  int64  `parquet:"size"`
			Stats string `parquet:"stats"`
		} `parquet:"add,optional"`
	}](bytes.NewReader(data), int64(len(data)))
	must(t, err)
	s := &deltaState{version: version, files: map[string]map[string]any{}}
	protocols := 0
	for _, row := range rows {
		switch {
		case row.Protocol != nil:
			protocols++
		case row.MetaData != nil:
			s.schema = row.MetaData.Schema
		case row.Txn != nil:
			s.shows = append(s.shows, float64(row.Txn.Version))
		case row.Add != nil:
			rest, err := url.PathUnescape(row.Add.Path)
			must(t, err)
			s.files[as+"/"+rest] = map[string]any{"size": float64(row.Add.Size), "stats": row.Add.Stats}
		}
	}
	if protocols != 1 || s.schema == "" || len(s.shows) != 1 {
		t.Fatalf("%s: %d protocols, schema %q, shows %v", name, protocols, s.schema, s.shows)
	}
	return s
}

func (s *deltaState) apply(t testing.TB, as, name string, data []byte) {
	t.Helper()
	kinds := map[string]int{}
	for line := range bytes.Lines(data) {
		var action map[string]map[string]any
		if err := json.Unmarshal(line, &action); err != nil || len(action) != 1 {
			t.Fatalf("%s: line %q: %v, want an object of one member", name, line, err)
		}
		for kind, body := range action {
			kinds[kind]++
			switch kind {
			case "add", "remove":
				rest, err := url.PathUnescape(body["path"].(string))
				must(t, err)
				if _, there := s.files[as+"/"+rest]; there == (kind == "add") && !s.again {
					t.Fatalf("%s: %s of %s, which is there: %t", name, kind, rest, there)
				}
				if kind == "add" {
					s.files[as+"/"+rest] = body
				} else {
					delete(s.files, as+"/"+rest)
				}
			case "metaData":
				s.schema = body["schemaString"].(string)
			case "txn":
				s.shows = append(s.shows, body["version"].(float64))
			case "commitInfo":
				s.infos = append(s.infos, body)
			case "protocol":
				if body["minReaderVersion"] != 1.0 || body["minWriterVersion"] != 2.0 {
					t.Fatalf("%s: protocol %v", name, body)
				}
			default:
				t.Fatalf("%s: action %s", name, kind)
			}
		}
	}
	if len(kinds) == 1 && kinds["commitInfo"] == 1 { // a note of another program
		return
	}
	if kinds["commitInfo"] != 1 || kinds["txn"] != 1 || s.version == 0 && (kinds["protocol"] != 1 || kinds["metaData"] != 1) {
		t.Fatalf("%s: actions %v", name, kinds)
	}
}

// columns of a log's schema, printed.
func (s *deltaState) columns(t testing.TB) (all []string) {
	t.Helper()
	var schema struct {
		Type   string
		Fields []struct {
			Name, Type string
			Nullable   bool
		}
	}
	must(t, json.Unmarshal([]byte(s.schema), &schema))
	for _, f := range schema.Fields {
		all = append(all, fmt.Sprintf("%s %s %t", f.Name, f.Type, f.Nullable))
	}
	return all
}

// deltaIDs reads the orders through the Delta log.
func deltaIDs(t testing.TB, storage objects) []string {
	t.Helper()
	return idsOf(t, storage, replay(t, storage, "orders", -1))
}

func idsOf(t testing.TB, storage objects, log *deltaState) (all []string) {
	t.Helper()
	rows, err := parquetsink.ReadFiles(t.Context(), storage, &sinktest.Schema(1).Tables[sinktest.Orders], sinktest.Orders, log.names())
	must(t, err)
	for _, r := range rows {
		all = append(all, r.Values[0].Text()+"="+r.Values[2].String())
	}
	slices.Sort(all)
	return all
}

func TestDelta_Schema(t *testing.T) {
	storage := newMemory()
	openWriter(t, open(t, storage, quick()), 0, 1)
	for table, want := range map[string][]string{
		"Kinds": {
			"k string false", "any string true", "text string true", "int long true", "double double true", "decimal decimal(38,9) true",
			"small decimal(9,4) true", "bool boolean true", "time timestamp true", "date date true", "json string true",
			"Größe__in___cm_ double true", "_element string true", "_source string false",
		},
		"orders_rejects": {
			"source string false", "element string true", "column string true", "reason string true", "row string true", "key string true",
			"_hash long false",
		},
	} {
		if got := replay(t, storage, table, -1).columns(t); !slices.Equal(got, want) {
			t.Errorf("columns of %s are\n%q\nwant\n%q", table, got, want)
		}
	}
}

// TestDelta_FollowsTheManifests reads the log after rows came, changed and went, in
// small files that are merged on the way.
func TestDelta_FollowsTheManifests(t *testing.T) {
	storage := newMemory()
	cfg := quick()
	cfg.FileRowsMax, cfg.Grace = 8, time.Nanosecond
	s := open(t, storage, cfg)
	w := openWriter(t, s, 0, 1)
	for n := 1; n <= 40; n++ {
		id := fmt.Sprint("o", n%23)
		row := orderRow("customer/[\"a\"]/"+id, id, int64(n))
		batch := &project.Batch{After: at(n - 1), UpTo: at(n), Put: []project.Row{row}}
		if n%5 == 0 {
			batch.Put, batch.Drop = nil, []project.Row{{Table: row.Table, Key: row.Key, Source: row.Source}}
		}
		_, err := w.Write(t.Context(), batch)
		must(t, err)
		flush(t, w)
		if got, want := deltaIDs(t, storage), ids(t, s); !slices.Equal(got, want) {
			t.Fatalf("after commit %d the log has %q, want %q", n, got, want)
		}
	}
	log := replay(t, storage, "orders", -1)
	if !slices.IsSorted(log.shows) || len(slices.Compact(slices.Clone(log.shows))) != len(log.shows) {
		t.Errorf("the commits show the manifests %v, want each later than the one before", log.shows)
	}
	for name, add := range log.files {
		data, err := storage.Get(t.Context(), name)
		must(t, err)
		if size := add["size"].(float64); int(size) != len(data) {
			t.Errorf("%s: size %v, want %d", name, size, len(data))
		}
	}
	if log := replay(t, storage, "lines", -1); log.version != 0 {
		t.Errorf("the log of a table that does not change is at version %d", log.version)
	}
}

// TestDelta_TablesOfBefore opens a store that has manifests and no logs, as a former
// program left it.
func TestDelta_TablesOfBefore(t *testing.T) {
	storage := newMemory()
	w := openWriter(t, open(t, storage, quick()), 0, 1)
	writeRows(t, w, 1, orderRow("customer/[\"a\"]/o", "o", 1))
	flush(t, w)
	for _, name := range storage.names("") {
		if strings.Contains(name, "/_delta_log/") {
			must(t, storage.Delete(t.Context(), name))
		}
	}
	openWriter(t, open(t, storage, quick()), 1, 1)
	if got := deltaIDs(t, storage); !slices.Equal(got, []string{"o=0.01"}) {
		t.Errorf("rows %q", got)
	}
	// The first process knows the log that is gone, which had more commits.
	writeRows(t, w, 2, orderRow("customer/[\"a\"]/o", "o", 2))
	flush(t, w)
	if got := deltaIDs(t, storage); !slices.Equal(got, []string{"o=0.02"}) {
		t.Errorf("rows %q", got)
	}
}

// TestDelta_NewColumns adds a column in place.
func TestDelta_NewColumns(t *testing.T) {
	storage := newMemory()
	s := open(t, storage, quick())
	schema := visits()
	w, _, err := s.Open(t.Context(), schema, termOf(1, 0, 1))
	must(t, err)
	writeRows(t, w, 1, visit(1, "Berlin"))
	flush(t, w)
	before := replay(t, storage, "visits_by_city", -1)
	schema.Generation = 2
	schema.Tables[0].Columns = append(schema.Tables[0].Columns, project.ColumnSchema{Name: "left", Type: project.Type{Kind: project.KindTimestamp}})
	_, _, err = s.Open(t.Context(), schema, termOf(2, 0, 1))
	must(t, err)
	after := replay(t, storage, "visits_by_city", -1)
	want := []string{"id long false", "The_city string true", "n string true", "left timestamp true", "_element string true", "_source string false"}
	if got := after.columns(t); !slices.Equal(got, want) || !slices.Equal(before.names(), after.names()) {
		t.Errorf("columns %q of files %q, want %q of %q", got, after.names(), want, before.names())
	}
}

// TestDelta_Partitions looks at paths with characters that a URI cannot have, and at
// what is told of the one value in each file.
func TestDelta_Partitions(t *testing.T) {
	storage := newMemory()
	s := open(t, storage, quick())
	w, _, err := s.Open(t.Context(), visits(), termOf(1, 0, 1))
	must(t, err)
	cities := []string{"Berlin", "New York", "a/b=c?", "Zürich", "null", "", "..", "50%25"}
	var rows []project.Row
	for i, city := range cities {
		rows = append(rows, visit(int64(i), city))
	}
	writeRows(t, w, 1, rows...)
	flush(t, w)
	var got []string
	for name, add := range replay(t, storage, "visits_by_city", -1).files {
		if _, err := storage.Get(t.Context(), name); err != nil {
			t.Error(err)
		}
		var stats struct {
			NumRecords           int
			MinValues, MaxValues map[string]any
			NullCount            map[string]int
		}
		must(t, json.Unmarshal([]byte(add["stats"].(string)), &stats))
		if len(stats.MinValues) == 0 {
			got = append(got, fmt.Sprint("unknown ", stats.NumRecords))
			continue
		}
		if !maps.Equal(stats.MinValues, stats.MaxValues) || stats.NullCount["The_city"] != 0 {
			t.Errorf("%s: statistics %s", name, add["stats"])
		}
		got = append(got, stats.MinValues["The_city"].(string))
	}
	slices.Sort(got)
	if want := []string{"..", "50%25", "Berlin", "New York", "Zürich", "a/b=c?", "unknown 2"}; !slices.Equal(got, want) {
		t.Errorf("values %q, want %q", got, want)
	}
}

// TestDelta_Swap lets another generation, with other columns and a table less, take the
// place of the one before.
func TestDelta_Swap(t *testing.T) {
	storage := newMemory()
	s := open(t, storage, quick())
	w := openWriter(t, s, 0, 1)
	writeRows(t, w, 1, orderRow("customer/[\"a\"]/o", "o", 1))
	flush(t, w)
	schema := sinktest.Schema(2)
	schema.Shadow = true
	orders := schema.Tables[sinktest.Orders]
	orders.Columns = slices.Clone(orders.Columns)
	orders.Columns[2].Type.Scale = 4
	schema.Tables = []project.TableSchema{orders}
	shadow, _, err := s.Open(t.Context(), schema, termOf(2, 0, 1))
	must(t, err)
	values := []project.Value{project.TextOf("n"), project.TextOf("Ann"), project.SmallDecimalOf(5, 4), {}}
	_, err = shadow.Write(t.Context(), &project.Batch{UpTo: at(1), Put: []project.Row{{Key: values[:1:1], Values: values, Source: "s"}}})
	must(t, err)
	flush(t, shadow)
	if got := deltaIDs(t, storage); !slices.Equal(got, []string{"o=0.01"}) {
		t.Errorf("before the swap: %q", got)
	}
	// The process that swaps is killed between the manifest, its third step, and the logs.
	err = open(t, &crashing{objects: storage, at: 3, happens: true}, quick()).Swap(t.Context(), schema)
	if !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	if got := deltaIDs(t, storage); !slices.Equal(got, []string{"o=0.01"}) {
		t.Errorf("after the crash: %q", got)
	}
	_, _, err = open(t, storage, quick()).Open(t.Context(), schema, termOf(2, 0, 2))
	must(t, err)
	log := replay(t, storage, "orders", -1)
	if got := log.columns(t); !slices.Contains(got, "total decimal(12,4) true") {
		t.Errorf("columns %q", got)
	}
	rows, err := parquetsink.ReadFiles(t.Context(), storage, &orders, 0, log.names())
	must(t, err)
	if len(rows) != 1 || rows[0].Values[2] != values[2] {
		t.Errorf("after the swap: %v", rows)
	}
	for _, gone := range []string{"Kinds", "Kinds_rejects", "lines"} {
		if log := replay(t, storage, gone, -1); log.version < 1 || len(log.files) > 0 {
			t.Errorf("the log of %s, which is gone, is at version %d with %d files", gone, log.version, len(log.files))
		}
	}
}

// TestDelta_ManifestsRestoredOlder brings back the manifests of a while ago, and not the
// logs: they follow.
func TestDelta_ManifestsRestoredOlder(t *testing.T) {
	storage := newMemory()
	s := open(t, storage, quick())
	w := openWriter(t, s, 0, 1)
	writeRows(t, w, 1, orderRow("customer/[\"a\"]/o", "o", 1))
	flush(t, w)
	_, _, number, err := parquetsink.Newest(t.Context(), storage)
	must(t, err)
	for n := 2; n <= 5; n++ {
		writeRows(t, w, n, orderRow("customer/[\"a\"]/p", fmt.Sprint("p", n), 2))
		flush(t, w)
	}
	must(t, s.Close())
	for _, name := range storage.names("_manifest/") {
		if name > fmt.Sprintf("_manifest/%020d.json", number) {
			must(t, storage.Delete(t.Context(), name))
		}
	}
	openWriter(t, open(t, storage, quick()), 0, 2)
	if got := deltaIDs(t, storage); !slices.Equal(got, []string{"o=0.01"}) {
		t.Errorf("rows %q", got)
	}
}

// TestDelta_RestoredReadersKeepTheirFiles brings back the manifest before the last one: the
// file of that is abandoned, and the log has named it until now.
func TestDelta_RestoredReadersKeepTheirFiles(t *testing.T) {
	storage := newMemory()
	s := open(t, storage, quick())
	w := openWriter(t, s, 0, 1)
	writeRows(t, w, 1, orderRow("customer/[\"a\"]/o", "o", 1))
	flush(t, w)
	must(t, s.Close())
	_, _, number, err := parquetsink.Newest(t.Context(), storage)
	must(t, err)
	must(t, storage.Delete(t.Context(), fmt.Sprintf("_manifest/%020d.json", number)))
	before := replay(t, storage, "orders", -1).names()
	for name, o := range storage.objects { // older than the grace
		o.modified = o.modified.Add(-time.Hour)
		storage.objects[name] = o
	}
	openWriter(t, open(t, storage, quick()), 0, 2)
	if got := deltaIDs(t, storage); len(got) > 0 {
		t.Errorf("rows %q", got)
	}
	for _, name := range before {
		if _, err := storage.Get(t.Context(), name); err != nil {
			t.Errorf("a reader of a moment ago: %v", err)
		}
	}
}
