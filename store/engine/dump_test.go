package engine_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
)

// dumped returns the entries and the state of a partition, to be loaded elsewhere.
func dumped(t testing.TB, p *engine.Partition) (engine.State, []engine.DumpEntry) {
	t.Helper()
	s := p.Snapshot()
	defer s.Close()
	state, err := s.State()
	must(t, err)
	var all []engine.DumpEntry
	for e, err := range s.Dump() {
		must(t, err)
		all = append(all, engine.DumpEntry{Key: append([]byte(nil), e.Key...), Value: append([]byte(nil), e.Value...)})
	}
	return state, all
}

// each lists entries, and ends with an error if that is not nil.
func each(all []engine.DumpEntry, end error) iter.Seq2[engine.DumpEntry, error] {
	return func(yield func(engine.DumpEntry, error) bool) {
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
		if end != nil {
			yield(engine.DumpEntry{}, end)
		}
	}
}

// TestI3_WhatIsLoadedGoesOnAsWhatWasDumped loads the dump of a log's middle over whatever
// a partition holds, and applies the rest of the log to it.
func TestI3_WhatIsLoadedGoesOnAsWhatWasDumped(t *testing.T) {
	const commits, at = 200, 120
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			m, from := newModel(t, seed+20), newPartition(t)
			for range commits {
				m.next()
			}
			m.apply(t, from, 0, at)
			large := key(t, "large")
			put(t, from, m.schema, item(large, "l", `{"id":"l","serial":-1,"text":"`+strings.Repeat("x", 1300<<10)+`"}`))
			state, entries := dumped(t, from)
			want := digest(t, from)

			dir := t.TempDir()
			db, err := engine.Open(dir, small, quiet)
			must(t, err)
			to := openPartition(t, db, partA)
			put(t, to, m.schema, item(large, "older", `{"id":"older","serial":-2,"text":"`+strings.Repeat("y", 1300<<10)+`"}`))
			must(t, to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}))
			if got := digest(t, to); got != want {
				t.Fatalf("digest %x, want %x", got, want)
			}
			loaded, err := to.State()
			must(t, err)
			if diff := cmp.Diff(state, loaded); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
			must(t, db.Close())

			to = openPartition(t, openDB(t, dir), partA)
			for _, p := range []*engine.Partition{from, to} {
				b := p.NewBatch(m.schema) // what was in chunks is not any more
				must(t, b.Put(item(large, "l", `{"id":"l","serial":-1}`), item(large, "l", `{"id":"l","serial":-1,"text":"`+strings.Repeat("x", 1300<<10)+`"}`)))
				must(t, b.Commit())
				m.apply(t, p, at, commits)
			}
			if got, want := digest(t, to), digest(t, from); got != want {
				t.Errorf("digest %x after the rest of the log, want %x", got, want)
			}
		})
	}
}

// TestI3_ADumpMayComeInPieces loads a dump piece by piece, and each piece twice, as a replay
// does that begins again; and goes on, with the chunks of a large item that becomes small.
func TestI3_ADumpMayComeInPieces(t *testing.T) {
	const commits, at = 120, 80
	m, from, to := newModel(t, 7), newPartition(t), newPartition(t)
	for range commits {
		m.next()
	}
	m.apply(t, from, 0, at)
	large, body := key(t, "large"), `{"id":"l","serial":-1,"text":"`+strings.Repeat("x", 1300<<10)+`"}`
	put(t, from, m.schema, item(large, "l", body))
	_, entries := dumped(t, from)
	for piece := range slices.Chunk(entries, len(entries)/5+1) {
		for range 2 {
			must(t, to.LoadMore(each(piece, nil)))
		}
	}
	if got, want := digest(t, to), digest(t, from); got != want {
		t.Fatalf("digest %x, want %x", got, want)
	}
	for _, p := range []*engine.Partition{from, to} {
		b := p.NewBatch(m.schema)
		must(t, b.Put(item(large, "l", `{"id":"l","serial":-1}`), item(large, "l", body)))
		must(t, b.Commit())
		m.apply(t, p, at, commits)
	}
	if got, want := digest(t, to), digest(t, from); got != want {
		t.Errorf("digest %x after the rest of the log, want %x", got, want)
	}
}

// TestLoad_WhatEndsEarlyLeavesNothing ends loads by errors, by entries that are none, and
// by Close: the partition is as if it had never been written.
func TestLoad_WhatEndsEarlyLeavesNothing(t *testing.T) {
	m, from := newModel(t, 5), newPartition(t)
	for n := range 50 {
		m.next()
		m.apply(t, from, n, n+1)
	}
	state, entries := dumped(t, from)
	empty := digest(t, newPartition(t))
	broken := errors.New("the disk is gone")
	entry := func(key, value string) []engine.DumpEntry { return []engine.DumpEntry{{[]byte(key), []byte(value)}} }
	for name, c := range map[string]struct {
		entries []engine.DumpEntry
		end     error
		want    error
	}{
		"an error":               {entries, broken, broken},
		"twice the same":         {slices.Concat(entries, entries[len(entries)-1:]), nil, engine.ErrCorrupt},
		"a state":                {entry("s", "\x01"), nil, engine.ErrCorrupt},
		"a kind that is unknown": {entry("z1", "\x01"), nil, engine.ErrCorrupt},
		"a later version":        {entry("i1", "\x03"), nil, engine.ErrCorrupt},
		"no value":               {entry("i1", ""), nil, engine.ErrCorrupt},
		"no key":                 {entry("", "\x01"), nil, engine.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			db, err := engine.Open(dir, small, quiet)
			must(t, err)
			p := openPartition(t, db, partA)
			if err := p.Load(t.Context(), state, each(c.entries, c.end), engine.LoadOptions{}); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			check := func(p *engine.Partition) {
				if got, err := p.State(); err != nil || got.Applied != 0 || digest(t, p) != empty {
					t.Errorf("state %+v, %v, digest %x", got, err, digest(t, p))
				}
			}
			check(p)
			must(t, db.Close())
			check(openPartition(t, openDB(t, dir), partA))
		})
	}
	t.Run("a close", func(t *testing.T) {
		dir := t.TempDir()
		db, err := engine.Open(dir, small, quiet)
		must(t, err)
		p := openPartition(t, db, partA)
		err = p.Load(t.Context(), state, func(yield func(engine.DumpEntry, error) bool) {
			for i, e := range entries {
				if i == len(entries)/2 {
					must(t, db.Close())
				}
				if !yield(e, nil) {
					return
				}
			}
		}, engine.LoadOptions{})
		if !errors.Is(err, engine.ErrClosed) {
			t.Errorf("error %v, want %v", err, engine.ErrClosed)
		}
		p = openPartition(t, openDB(t, dir), partA)
		if got, err := p.State(); err != nil || got.Applied != 0 || digest(t, p) != empty {
			t.Errorf("state %+v, %v", got, err)
		}
	})
}

func TestDump_LeavesOutWhatOnlyThisNodeKnows(t *testing.T) {
	db := openDB(t, t.TempDir())
	p := openPartition(t, db, partA)
	b := p.NewBatch(schemaOf(t))
	must(t, b.Put(item(key(t, "a"), "1", `{"id":"1"}`), nil))
	b.SetState(engine.State{Applied: 3, Log: feed.LogID{1}})
	must(t, b.Commit())
	_, before := dumped(t, p)
	must(t, db.SyncPartitions(p))
	if _, after := dumped(t, p); len(before) != 1 || len(after) != 1 {
		t.Errorf("%d entries before a sync and %d after, want 1", len(before), len(after))
	}
}
