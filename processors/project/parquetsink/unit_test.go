package parquetsink

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/millrace/millrace/processors/project"
)

func TestCommon_IsTheIntersection(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		a, b := make([]uint64, rnd.IntN(40)), make([]uint64, rnd.IntN(400))
		for i := range a {
			a[i] = rnd.Uint64N(300)
		}
		for i := range b {
			b[i] = rnd.Uint64N(300)
		}
		slices.Sort(a)
		slices.Sort(b)
		var want []uint64
		for _, hash := range slices.Compact(slices.Clone(a)) {
			if slices.Contains(b, hash) {
				want = append(want, hash)
			}
		}
		for _, got := range [][]uint64{common(a, b), common(b, a)} {
			if !slices.Equal(got, want) {
				t.Fatalf("common of %d and %d: %d, want %d", a, b, got, want)
			}
		}
	}
}

func TestIndex_IsBounded(t *testing.T) {
	x := newIndex(100)
	for i := range 10 {
		x.put(fmt.Sprint(i), make([]uint64, 4))
		x.get("0")
	}
	if _, ok := x.get("0"); !ok {
		t.Error("what is used is forgotten")
	}
	if x.bytes > 100 || len(x.byPath) != 3 {
		t.Errorf("%d bytes of %d files, want at most 100", x.bytes, len(x.byPath))
	}
	x.forget("0")
	if _, ok := x.get("0"); ok || x.bytes != 64 {
		t.Errorf("forgotten: %t, %d bytes", !ok, x.bytes)
	}
}

func TestNames(t *testing.T) {
	n := names{}
	for _, c := range []struct{ name, want string }{
		{"plain", "plain"},
		{"PLAIN", "PLAIN_2"},
		{"a b", "a_b"},
		{"a.b", "a_b_2"},
		{"a_b_2", "a_b_2_2"},
		{"1st", "n_1st"},
		{"_hidden", "n_hidden"},
		{"", "n_"},
		{"größe", "größe"},
		{"Mars", "Mars"},
		{"mar\u017f", "mar\u017f_2"}, // with a long s, whose capital is S: Spark takes it for Mars
		{"日本", "日本"},
		{"x;DROP", "x_DROP"},
		{"\xff\x00", "n__"},
		{strings.Repeat("é", 100), strings.Repeat("é", 60)},
	} {
		if got := n.choose(c.name); got != c.want {
			t.Errorf("%q is mapped to %q, want %q", c.name, got, c.want)
		}
	}
}

func TestDecimalBytes(t *testing.T) {
	for precision, want := range map[int]int{1: 1, 2: 1, 3: 2, 18: 8, 19: 9, 28: 12, 38: 16} {
		if got := decimalBytes(project.Type{Kind: project.KindDecimal, Precision: precision}); got != want {
			t.Errorf("decimals of %d digits take %d bytes, want %d", precision, got, want)
		}
	}
}

// TestHash_IsTheSameFromFiles compares the hashes of rows as they are written with
// those that are read back column by column.
func TestHash_IsTheSameFromFiles(t *testing.T) {
	for _, typ := range []string{"string", "int64", "decimal(9,2)", "decimal(18,2)", "decimal(38,2)", "bool", "timestamp", "date", ""} {
		parsed, err := project.ParseType(typ)
		if err != nil {
			t.Fatal(err)
		}
		ts := &tableSet{Generations: []uint32{1}}
		s := project.TableSchema{Name: "t", Key: []int{1, 0}, PartitionBy: -1, Columns: []project.ColumnSchema{{Name: "n", Type: project.Type{Kind: project.KindInt64}}, {Name: "k", Type: parsed}}}
		if _, err := ts.addTable(&s); err != nil {
			t.Fatal(err)
		}
		l, err := newLayout(ts.Tables[0])
		if err != nil {
			t.Fatal(err)
		}
		var rows []parquet.Row
		var want []uint64
		var mem arena
		for i := range 1000 {
			values := []project.Value{project.IntOf(int64(i)), keyOf(parsed, i)}
			row, err := l.encodeRow(&mem, &project.Row{Values: values, Source: "s"}, l.allColumns())
			if err != nil {
				t.Fatal(err)
			}
			rows, want = append(rows, row), append(want, l.hashOf(row))
		}
		slices.Sort(want)
		if len(slices.Compact(slices.Clone(want))) != len(want) {
			t.Errorf("%s: hashes are the same", typ)
		}
		out := &output{rewrite: &rewrite{files: &files{rowsMax: 1 << 20, bytesMax: 1 << 30, index: newIndex(0)}, set: ts}, l: l}
		var data []byte
		out.put = func(_ string, written []byte) error { data = written; return nil }
		if err := out.write(rows); err != nil {
			t.Fatal(err)
		}
		if err := out.finish(); err != nil {
			t.Fatal(err)
		}
		got, err := hashesOf(data, l)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the hashes of the file differ from those of the rows", typ)
		}
	}
}

func keyOf(t project.Type, i int) project.Value {
	switch t.Holds() {
	case project.Int:
		return project.IntOf(int64(i) - 500)
	case project.Decimal:
		return project.SmallDecimalOf(int64(i)-500, t.Scale)
	case project.Bool:
		return project.BoolOf(i%2 == 0)
	case project.Time:
		return project.TimeOfMicros(int64(i) - 500)
	case project.Date:
		return project.DateOf(i - 500)
	default:
		return project.TextOf(fmt.Sprint(i))
	}
}

func TestOps_KeepWhatCounts(t *testing.T) {
	l := newRejectLayout("r")
	var a arena
	reject := func(source string) (uint64, parquet.Row) {
		row, hash := l.encodeReject(&a, &project.Reject{Source: source})
		return hash % 2, row // few hashes, so that they are shared
	}
	for _, c := range []struct{ name, says, want string }{
		{"the newest put, at the place of the first", "+a +b +a", "+a +b"},
		{"a drop takes back a put, and stays", "+a -a", "-a"},
		{"a put after a drop comes after it", "-a +a", "-a +a"},
		{"one drop is enough, at the place of the first", "-a +b -a", "-a +b"},
		{"a put that came after a drop loses its place", "+a +b -a +a", "+b -a +a"},
		{"what is put and dropped again", "-a +a -a +a +b -b", "-a +a -b"},
	} {
		o := newOps(sameReject, 0)
		for word := range strings.FieldsSeq(c.says) {
			if hash, row := reject(word[1:]); word[0] == '+' {
				o.put(hash, row)
			} else {
				o.drop(hash, row)
			}
		}
		var got []string
		for _, op := range o.all {
			if op.kind != opNone {
				got = append(got, map[opKind]string{opPut: "+", opDrop: "-"}[op.kind]+op.row[rejectSource].String())
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// aManifest has everything in it that a manifest can have.
func aManifest() *manifest {
	day := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
	return &manifest{
		Number: 42, Commit: "C42", Previous: "C41", Time: day, Pipeline: "analytics", Changed: 41, Floor: 7,
		Sets: []*tableSet{{
			Current: true, Generations: []uint32{1, 2},
			Sources: []source{{Generation: 2, Source: "source:c7k2x4ab/0", Epoch: 3, Position: "12.4"}, {Generation: 2, Source: "source:c7k2x4ab/1", Epoch: 1}},
			Tables: []*table{{
				Name: "order items", As: "order_items", Key: []string{"orderId"}, PartitionBy: "day", PartitionAs: "day_partition",
				Columns:   []tableColumn{{Name: "orderId", As: "orderId"}, {Name: "day", As: "day", Type: "date"}},
				Files:     []file{{Path: "order_items/data/g1/day_partition=2024-02-29/00000000000000000040-abcdefgh-1.parquet", Folder: "day_partition=2024-02-29", Rows: 3, Bytes: 1234}},
				RejectsAs: "order_items_rejects", Rejects: []file{{Path: "order_items_rejects/data/g1/00000000000000000002-abcdefgh-2.parquet"}},
			}},
		}},
		Removed: []removed{{Path: "order_items/data/g1/00000000000000000039-abcdefgh-1.parquet", At: day}},
	}
}

// golden is a manifest of format 1 as FORMAT.md describes it. It does not change.
const golden = `{"format":1,"sum":"e027e2cd81f08522","manifest":{"number":42,"commit":"C42","previous":"C41","time":"2024-02-29T12:00:00Z","pipeline":"analytics","changed":41,"floor":7,"areas":[{"current":true,"generations":[1,2],"sources":[{"generation":2,"source":"source:c7k2x4ab/0","epoch":3,"position":"12.4"},{"generation":2,"source":"source:c7k2x4ab/1","epoch":1}],"tables":[{"name":"order items","as":"order_items","columns":[{"name":"orderId","as":"orderId"},{"name":"day","as":"day","type":"date"}],"key":["orderId"],"partitionBy":"day","partitionAs":"day_partition","files":[{"path":"order_items/data/g1/day_partition=2024-02-29/00000000000000000040-abcdefgh-1.parquet","folder":"day_partition=2024-02-29","rows":3,"bytes":1234}],"rejectsAs":"order_items_rejects","rejects":[{"path":"order_items_rejects/data/g1/00000000000000000002-abcdefgh-2.parquet","rows":0,"bytes":0}]}]}],"removed":[{"path":"order_items/data/g1/00000000000000000039-abcdefgh-1.parquet","at":"2024-02-29T12:00:00Z"}]}}`

func TestManifest_Golden(t *testing.T) {
	data, err := encodeManifest(aManifest())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(golden, string(data)); diff != "" {
		t.Errorf("the form has changed:\n%s", diff)
	}
	got, err := decodeManifest([]byte(golden))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(aManifest(), got); diff != "" {
		t.Error(diff)
	}
}

func TestManifest_RefusesDamage(t *testing.T) {
	for name, data := range map[string]string{
		"nothing": "", "half": golden[:200], "a later format": strings.Replace(golden, `"format":1`, `"format":2`, 1),
		"another file": strings.Replace(golden, "abcdefgh-1", "abcdefgh-9", 1),
	} {
		if m, err := decodeManifest([]byte(data)); err == nil {
			t.Errorf("%s is read as %+v", name, m)
		}
	}
}

// FuzzManifest reads anything without a panic, and what it reads comes out the
// same.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(golden))
	f.Add([]byte(`{"format":1,"sum":"ef46db3751d8e999","manifest":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeManifest(data)
		if err != nil {
			return
		}
		again, err := encodeManifest(m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeManifest(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, back); diff != "" {
			t.Error(diff)
		}
	})
}
