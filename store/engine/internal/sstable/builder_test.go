package sstable_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/millrace/millrace/store/engine/internal/sstable"
)

// entry is a key with its version, and a value.
type entry struct {
	key   []byte
	value y.ValueStruct
}

// entries returns n of them in order, at random: some keys have several versions, some values are large.
func entries(r *rand.Rand, n int) (all []entry) {
	for i := range n {
		key := fmt.Appendf(nil, "%06d-%0*d", i/3, r.IntN(40), i)
		versions := 1
		if r.IntN(5) == 0 {
			versions = 1 + r.IntN(4)
		}
		for v := range versions {
			size := r.IntN(1500)
			if r.IntN(100) == 0 {
				size = r.IntN(300_000)
			}
			value := make([]byte, size)
			for j := range value {
				value[j] = byte(r.Uint32())
			}
			all = append(all, entry{y.KeyWithTs(key, uint64(1000-v)), y.ValueStruct{Value: value, Meta: byte(r.IntN(2))}})
		}
	}
	return all
}

// TestBuilder_WritesWhatBadgersWould: the bytes are those of Badger's own builder, whatever was built before.
func TestBuilder_WritesWhatBadgersWould(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, falsePositive := range []float64{0, 0.01} {
		b := sstable.Builder{BlockBytes: 4096, FalsePositive: falsePositive}
		for _, n := range []int{1, 2, 30, 3000, 7} {
			opt := table.Options{BlockSize: 4096, TableSize: 1 << 20, BloomFalsePositive: falsePositive}
			theirs := table.NewTableBuilder(opt)
			var got bytes.Buffer
			b.Begin(&got)
			if !b.Empty() {
				t.Error("a builder begins with entries")
			}
			for _, e := range entries(r, n) {
				theirs.Add(e.key, e.value, 0)
				b.Add(e.key, e.value)
			}
			if err := b.Finish(); err != nil {
				t.Fatal(err)
			}
			if want := theirs.Finish(); !bytes.Equal(got.Bytes(), want) {
				t.Errorf("of %d keys, false positive %v: %d bytes differ from Badger's %d", n, falsePositive, got.Len(), len(want))
			}
			theirs.Close()
			opened, err := table.OpenInMemoryTable(got.Bytes(), 1, &opt)
			if err != nil {
				t.Fatal(err)
			}
			if err := opened.VerifyChecksum(); err != nil {
				t.Error(err)
			}
		}
	}
}

// failing is a writer that takes so many bytes.
type failing struct{ room int }

var errFull = errors.New("full")

func (f *failing) Write(p []byte) (int, error) {
	if f.room -= len(p); f.room < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// TestBuilder_TellsWhatCouldNotBeWritten, at whatever byte the writer failed, and makes the next table all the same.
func TestBuilder_TellsWhatCouldNotBeWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	b := sstable.Builder{BlockBytes: 4096, FalsePositive: 0.01}
	all := entries(r, 2000)
	build := func(room int) (size int, err error) {
		w := failing{room: room}
		b.Begin(&w)
		for _, e := range all {
			b.Add(e.key, e.value)
		}
		err = b.Finish()
		return room - w.room, err
	}
	size, err := build(1 << 30)
	if err != nil || size < 1<<20 {
		t.Fatalf("%d bytes, %v", size, err)
	}
	for _, room := range []int{0, 1, size / 2, size - 1} {
		if _, err := build(room); !errors.Is(err, errFull) {
			t.Errorf("with room for %d of %d: %v", room, size, err)
		}
	}
	if again, err := build(size); err != nil || again != size {
		t.Errorf("with room for all: %v", err)
	}
}
