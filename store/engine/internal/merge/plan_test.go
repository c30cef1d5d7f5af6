package merge

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/millrace/millrace/store/engine/internal/sstable"
)

var sizes = Sizes{Level0Tables: 3, BaseBytes: 10_000, Multiplier: 10, TableBytes: 4_000}

// tableOf makes a table that has these keys at a version, with values of so many bytes.
func tableOf(t *testing.T, version uint64, bytes int, keys ...string) *table.Table {
	t.Helper()
	opt := table.Options{BlockSize: 4096, TableSize: 1 << 20, BloomFalsePositive: 0.01}
	b := table.NewTableBuilder(opt)
	defer b.Close()
	for _, k := range keys {
		b.Add(y.KeyWithTs([]byte(k), version), y.ValueStruct{Value: make([]byte, bytes)}, 0)
	}
	made, err := table.OpenInMemoryTable(b.Finish(), version, &opt)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestChoose tells of some levels what is merged next, by the keys that the tables begin with.
func TestChoose(t *testing.T) {
	one := func(bytes int, keys ...string) []*table.Table { return []*table.Table{tableOf(t, 1, bytes, keys...)} }
	many := func(bytes int, names ...string) (all []*table.Table) {
		for _, n := range names {
			all = append(all, tableOf(t, 1, bytes, n, n+"z"))
		}
		return all
	}
	level0 := many(100, "a", "b", "b")
	level0[1] = tableOf(t, 2, 100, "a", "c")
	for name, c := range map[string]struct {
		levels Levels
		want   string
	}{
		"nothing is there":            {Levels{nil, nil, nil, nil}, "nothing"},
		"few tables":                  {Levels{level0[:2], nil, nil, nil}, "nothing"},
		"into an empty last level":    {Levels{level0, nil, nil, nil}, "0 [a a b] into 3 []"},
		"those that overlap":          {Levels{append(many(100, "a", "x", "y"), level0...), nil, nil, nil}, "0 [a] into 3 []"},
		"with what has their keys":    {Levels{level0, nil, nil, many(100, "a", "bb", "x")}, "0 [a a b] into 3 [a bb]"},
		"above a large level":         {Levels{level0, nil, nil, many(6_000, "a", "m", "x")}, "0 [a a b] into 2 []"},
		"never past a level":          {Levels{level0, one(10, "b"), nil, many(100, "a")}, "0 [a a b] into 1 [b]"},
		"what costs least":            {Levels{nil, nil, many(4_000, "a", "g", "p"), many(30_000, "a", "b", "g", "h")}, "2 [p] into 3 []"},
		"a full level before another": {Levels{level0, nil, many(30_000, "a", "p"), many(10_000, "a", "g")}, "2 [p] into 3 []"},
		"into an empty base level":    {Levels{level0, nil, many(30_000, "a", "p"), many(30_000, "a", "g")}, "0 [a a b] into 1 []"},
	} {
		t.Run(name, func(t *testing.T) {
			got := "nothing"
			if p := Choose(c.levels, sizes); p != nil {
				got = fmt.Sprintf("%d %v into %d %v", p.From, names(p.Top), p.To, names(p.Bottom))
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func names(tables []*table.Table) (all []string) {
	for _, t := range tables {
		all = append(all, string(y.ParseKey(t.Smallest())))
	}
	return all
}

// TestFlattenEnds merges level into level until one is left.
func TestFlattenEnds(t *testing.T) {
	levels := Levels{{tableOf(t, 9, 10, "a", "z")}, nil, {tableOf(t, 5, 10, "a", "m")}, {tableOf(t, 1, 10, "b", "c")}}
	for range 2 {
		p := Flatten(levels, sizes)
		if p == nil {
			t.Fatal("nothing is merged")
		}
		levels[p.From] = nil
		levels[p.To] = p.Top
	}
	if p := Flatten(levels, sizes); p != nil || len(levels[3]) == 0 {
		t.Errorf("%v is merged, and the last level has %d tables", p, len(levels[3]))
	}
}

// TestAMergeThatIsGivenUpLeavesNothing gives one up before it begins, and one whose second table has no name.
func TestAMergeThatIsGivenUpLeavesNothing(t *testing.T) {
	var keys []string
	for i := range 3_000 {
		keys = append(keys, fmt.Sprintf("%06d", i))
	}
	levels := Levels{{tableOf(t, 1, 10, keys...)}, nil, nil}
	plan := Flatten(Levels{levels[0], {tableOf(t, 2, 10, "000001")}, nil}, sizes)
	dir := t.TempDir()
	id := uint64(0)
	run := Run{
		Dir: dir, Builder: &sstable.Builder{BlockBytes: 4096, FalsePositive: 0.01}, Discard: 5, NextID: func() uint64 { id++; return id },
		Options: table.Options{BlockSize: 4096, BloomFalsePositive: 0.01},
	}
	quit := make(chan struct{})
	close(quit)
	run.Quit = quit
	if _, err := run.Merge(plan); !errors.Is(err, ErrQuit) {
		t.Errorf("given up: %v", err)
	}
	run.Quit = nil
	taken := table.NewFilename(2, dir)
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Merge(plan); !errors.Is(err, os.ErrExist) {
		t.Errorf("a name is taken: %v", err)
	}
	if got := files(t, dir); !slices.Equal(got, []string{taken[len(dir)+1:]}) {
		t.Errorf("there are %v", got)
	}
	tables, err := run.Merge(plan)
	if err != nil || len(tables) < 3 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	Drop(tables)
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("dropped tables leave %v", got)
	}
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
