package snapshot_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
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
	must(t, snapshot.Load(t.Context(), other, all[2], to, always))
	want, err := from.Digest()
	must(t, err)
	if got, err := to.Digest(); err != nil || got != want {
		t.Errorf("loaded %016x, %v, want %016x", got, err, want)
	}
	must(t, other.Remove(t.Context(), "c7k2x4ab/3/"+all[2].ID()+"/000001"))
	if _, damaged := errors.AsType[*snapshot.DamagedError](snapshot.Load(t.Context(), s, all[2], newPartition(t), always)); !damaged {
		t.Error("a part is gone, and nobody says so")
	}
	must(t, snapshot.Load(t.Context(), s, all[1], newPartition(t), always))
}
