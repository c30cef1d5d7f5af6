package snapshot_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/snapshot"
)

func newJetStream(t testing.TB) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	must(t, err)
	return js
}

// stores are all kinds of them, and another view of the same, as another process has it.
func stores(t *testing.T) map[string][2]snapshot.Store {
	t.Helper()
	dir, js := filepath.Join(t.TempDir(), "a"), newJetStream(t)
	return map[string][2]snapshot.Store{
		"directory": {snapshot.Directory(dir), snapshot.Directory(dir)},
		"stream":    {snapshot.Stream(js, 1), snapshot.Stream(js, 1)},
	}
}

// Every store keeps what is put, lists what is there level by level, and forgets what is
// removed, whoever looks.
func TestStore_KeepsWhatIsPut(t *testing.T) {
	t.Parallel()
	for name, both := range stores(t) {
		t.Run(name, func(t *testing.T) {
			s, other, ctx := both[0], both[1], t.Context()
			list := func(prefix string, want ...string) {
				t.Helper()
				names, err := other.List(ctx, prefix)
				must(t, err)
				slices.Sort(names)
				if diff := cmp.Diff(want, names); diff != "" {
					t.Errorf("below %s (-want +got):\n%s", prefix, diff)
				}
			}
			get := func(name, want string) {
				t.Helper()
				for _, s := range both {
					data, err := s.Get(ctx, name)
					if want == "" && !errors.Is(err, snapshot.ErrNotFound) || want != "" && (err != nil || string(data) != want) {
						t.Errorf("%s is %q, %v; want %q", name, data, err, want)
					}
				}
			}
			list("c/1/")
			get("c/1/newest.json", "")
			must(t, s.Remove(ctx, "c/1/"))
			must(t, s.Put(ctx, "c/1/00-a/000001", []byte("one")))
			must(t, s.Put(ctx, "c/1/00-a/manifest.json", []byte("m")))
			must(t, s.Put(ctx, "c/1/00-b/000001", []byte("two")))
			must(t, s.Put(ctx, "c/11/00-a/000001", []byte("of another")))
			replace := func(text string) {
				t.Helper()
				_, revision, err := s.Look(ctx, "c/1/newest.json")
				if err != nil && !errors.Is(err, snapshot.ErrNotFound) {
					t.Fatal(err)
				}
				must(t, s.Replace(ctx, "c/1/newest.json", []byte(text), revision))
			}
			replace("p")
			replace("q")
			list("c/1/", "00-a/", "00-b/", "newest.json")
			list("c/1/00-a/", "000001", "manifest.json")
			get("c/1/newest.json", "q")
			get("c/1/00-a/000001", "one")
			must(t, s.Remove(ctx, "c/1/00-a/"))
			must(t, s.Remove(ctx, "c/1/00-b/000001"))
			must(t, s.Remove(ctx, "c/1/00-b/000001")) // which is gone
			list("c/1/00-a/")
			get("c/1/00-a/000001", "")
			get("c/11/00-a/000001", "of another")
			must(t, s.Remove(ctx, "c/1/newest.json"))
			get("c/1/newest.json", "")
			replace("r")
			get("c/1/newest.json", "r")
		})
	}
}

// Of two processes that read the pointer in a stream and replace it, one is refused: what
// the other has said is not lost.
func TestStream_ReplaceComparesAndSets(t *testing.T) {
	t.Parallel()
	js, ctx := newJetStream(t), t.Context()
	a, b := snapshot.Stream(js, 1), snapshot.Stream(js, 1)
	const name = "c/1/newest.json"
	look := func(s snapshot.Store) snapshot.Revision {
		t.Helper()
		_, revision, err := s.Look(ctx, name)
		if err != nil && !errors.Is(err, snapshot.ErrNotFound) {
			t.Fatal(err)
		}
		return revision
	}
	seenByA, seenByB := look(a), look(b)
	must(t, a.Replace(ctx, name, []byte("a"), seenByA))
	// That somebody of the same process has looked meanwhile makes no difference.
	look(b)
	if err := b.Replace(ctx, name, []byte("b"), seenByB); err == nil {
		t.Fatal("b has decided on what a replaced, and is taken")
	}
	seenByA = look(a)
	must(t, b.Replace(ctx, name, []byte("b"), look(b)))
	if err := a.Replace(ctx, name, []byte("a"), seenByA); err == nil {
		t.Fatal("a has decided on what b replaced, and is taken")
	}
}

// Names that would reach other objects are refused.
func TestStream_RefusesOddNames(t *testing.T) {
	t.Parallel()
	s := snapshot.Stream(newJetStream(t), 1)
	for _, name := range []string{"", "/a", "a//b", "a/*", "a/>", "a b", "a_b"} {
		if err := s.Put(t.Context(), name, nil); err == nil {
			t.Errorf("%q is taken", name)
		}
		if err := s.Remove(t.Context(), name); err == nil {
			t.Errorf("%q is removed", name)
		}
	}
}

// Snapshots in a stream are those of a directory: written, read back, loaded, two kept,
// and what has gone from the stream is damage that the older one makes up for.
func TestStream_HoldsSnapshots(t *testing.T) {
	t.Parallel()
	js := newJetStream(t)
	s := snapshot.Stream(js, 1)
	from, to := newPartition(t), newPartition(t)
	var all []*snapshot.Manifest
	for lsn := range feed.LSN(3) {
		fill(t, from, 100, 1<<10, lsn+1)
		all = append(all, write(t, s, from))
	}
	other := snapshot.Stream(js, 1)
	if diff := cmp.Diff([]feed.LSN{3, 2}, newest(t, other)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	must(t, snapshot.Load(t.Context(), other, all[2], to, engine.LoadOptions{}))
	want, err := from.Digest()
	must(t, err)
	if got, err := to.Digest(); err != nil || got != want {
		t.Errorf("loaded %016x, %v, want %016x", got, err, want)
	}
	must(t, other.Remove(t.Context(), "c7k2x4ab/3/"+all[2].ID()+"/000001"))
	if _, damaged := errors.AsType[*snapshot.DamagedError](snapshot.Load(t.Context(), s, all[2], newPartition(t), engine.LoadOptions{})); !damaged {
		t.Error("a part is gone, and nobody says so")
	}
	must(t, snapshot.Load(t.Context(), s, all[1], newPartition(t), engine.LoadOptions{}))
}

// bad is a store that is away, or full, or gives back wrong bytes, while that is set.
type bad struct {
	snapshot.Store
	away, full error
	wrong      bool
}

func (b *bad) Put(ctx context.Context, name string, data []byte) error {
	if err := errors.Join(b.away, b.full); err != nil {
		return err
	}
	return b.Store.Put(ctx, name, data)
}

func (b *bad) Replace(ctx context.Context, name string, data []byte, seen snapshot.Revision) error {
	if err := errors.Join(b.away, b.full); err != nil {
		return err
	}
	return b.Store.Replace(ctx, name, data, seen)
}

func (b *bad) Get(ctx context.Context, name string) ([]byte, error) {
	data, err := b.Store.Get(ctx, name)
	if b.wrong && len(data) > 0 {
		data = slices.Clone(data)
		data[len(data)/2] ^= 4
	}
	return data, errors.Join(b.away, err)
}

func (b *bad) Look(ctx context.Context, name string) ([]byte, snapshot.Revision, error) {
	data, revision, err := b.Store.Look(ctx, name)
	return data, revision, errors.Join(b.away, err)
}

func (b *bad) List(ctx context.Context, prefix string) ([]string, error) {
	names, err := b.Store.List(ctx, prefix)
	return names, errors.Join(b.away, err)
}

func (b *bad) Remove(ctx context.Context, name string) error {
	return errors.Join(b.away, b.Store.Remove(ctx, name))
}

// TestBadInput_ASnapshotStoreThatFails is away, is full, or gives back wrong bytes: that is said,
// the pointer and what it names stay as they are, and no engine is changed. A bucket's own
// ways to fail are in integration/s3.
func TestBadInput_ASnapshotStoreThatFails(t *testing.T) {
	away := errors.New("connection refused")
	for kind, s := range stores(t) {
		for name, c := range map[string]struct {
			fails bad
			is    error // what the write says; nil if it finds out by itself
		}{
			"away":                {bad{away: away}, away},
			"full":                {bad{full: syscall.ENOSPC}, syscall.ENOSPC},
			"returns wrong bytes": {bad{wrong: true}, nil},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				p, to := newPartition(t), newPartition(t)
				must(t, snapshot.Remove(t.Context(), s[0], part))
				for lsn := range feed.LSN(2) {
					fill(t, p, 10, 100, lsn+1)
					write(t, s[0], p)
				}
				before := below(t, s[0], "")
				fails := c.fails
				fails.Store = s[0]
				fill(t, p, 10, 100, 3)
				m, err := tryWrite(t.Context(), &fails, p)
				if _, damaged := errors.AsType[*snapshot.DamagedError](err); m != nil || err == nil || c.is != nil && !errors.Is(err, c.is) || c.is == nil && !damaged {
					t.Errorf("a snapshot of %+v was written: %v", m, err)
				}
				if after := below(t, s[1], ""); !slices.Equal(before, after) {
					t.Errorf("there were %q, and are %q", before, after)
				}
				if all, damage, err := snapshot.Newest(t.Context(), &fails, part); c.fails.full == nil && (len(all) > 0 || err == nil && len(damage) == 0) {
					t.Errorf("it has snapshots %+v, %v, %v", all, damage, err)
				}
				if got := newest(t, s[1]); !slices.Equal(got, []feed.LSN{2, 1}) {
					t.Errorf("afterwards there are snapshots of LSN %v, want 2 and 1", got)
				}
				all, _, err := snapshot.Newest(t.Context(), s[1], part)
				must(t, err)
				if c.fails.full == nil {
					if err := snapshot.Load(t.Context(), &fails, all[0], to, engine.LoadOptions{}); err == nil {
						t.Error("it was loaded")
					}
					if state, err := to.State(); err != nil || state.Applied != 0 {
						t.Errorf("the engine has %+v, %v", state, err)
					}
				}
				must(t, snapshot.Load(t.Context(), s[1], all[0], to, engine.LoadOptions{}))
			})
		}
	}
}

// below returns the names of all objects below a folder.
func below(t testing.TB, s snapshot.Store, folder string) (all []string) {
	t.Helper()
	if folder == "" {
		folder = "c7k2x4ab/3/"
	}
	names, err := s.List(t.Context(), folder)
	must(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "/") {
			all = append(all, below(t, s, folder+name)...)
		} else {
			all = append(all, folder+name)
		}
	}
	slices.Sort(all)
	return all
}

// TestBadInput_APointerToPartsThatAreGone: that is said, the engine stays empty, and the older
// snapshot serves.
func TestBadInput_APointerToPartsThatAreGone(t *testing.T) {
	for kind, s := range stores(t) {
		t.Run(kind, func(t *testing.T) {
			p, to := newPartition(t), newPartition(t)
			for lsn := range feed.LSN(2) {
				fill(t, p, 10, 100, lsn+1)
				write(t, s[0], p)
			}
			all, _, err := snapshot.Newest(t.Context(), s[0], part)
			must(t, err)
			must(t, s[0].Remove(t.Context(), "c7k2x4ab/3/"+all[0].ID()+"/000001"))
			err = snapshot.Load(t.Context(), s[1], all[0], to, engine.LoadOptions{})
			if damage, ok := errors.AsType[*snapshot.DamagedError](err); !ok || !strings.Contains(damage.Error(), "gone") || !strings.Contains(damage.Name, all[0].ID()) {
				t.Errorf("loaded: %v", err)
			}
			if state, err := to.State(); err != nil || state.Applied != 0 {
				t.Errorf("the engine has %+v, %v", state, err)
			}
			must(t, snapshot.Load(t.Context(), s[1], all[1], to, engine.LoadOptions{}))
		})
	}
}
