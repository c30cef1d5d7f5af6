package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// names are logical partitions; two halves of them lie in two halves of the key space.
var names = []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"}

// of returns what of some changes lies in a scope, in their order for each logical partition.
func (s *splits) of(changes []string, holds func(feed.PartitionKey) bool) map[string][]string {
	all := map[string][]string{}
	for _, change := range changes {
		if name := change[:1]; holds(keyOf(s.t, name)) {
			all[name] = append(all[name], change)
		}
	}
	return all
}

func (s *splits) want(what string, got, want []string, holds func(feed.PartitionKey) bool) {
	s.t.Helper()
	if diff := cmp.Diff(s.of(want, holds), s.of(got, func(feed.PartitionKey) bool { return true })); diff != "" {
		s.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func everything(feed.PartitionKey) bool { return true }

// Writes, splits and pages in any order: each reader sees each change of its scope once, and those of a key in order. Some
// sleep through two generations of splits.
func TestI4_ChangesGoOnThroughSplits(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s, rng := newSplits(t), rand.New(rand.NewPCG(seed, 1))
			var written []string
			for n, name := range names {
				written = append(written, s.write(name, n))
			}
			half := feed.Range{Min: s.middle(feed.Range{Max: feed.EPKMax}), Max: feed.EPKMax}
			readers := []struct {
				*reading
				holds func(feed.PartitionKey) bool
			}{
				{s.reader(store.ChangesRequest{AllVersions: true, ItemsMax: 3}), everything},
				{s.reader(store.ChangesRequest{AllVersions: true, ItemsMax: 5, Scope: store.ChangeScope{Key: keyOf(t, "c")}}), func(k feed.PartitionKey) bool { return k == keyOf(t, "c") }},
				{s.reader(store.ChangesRequest{AllVersions: true, ItemsMax: 2, Scope: store.ChangeScope{Range: half}}), func(k feed.PartitionKey) bool { return half.Contains(k.Hash()) }},
				{s.reader(store.ChangesRequest{AllVersions: true}), everything}, // reads at the end alone
			}
			latest := s.reader(store.ChangesRequest{ItemsMax: 4})
			for n := 100; n < 400; n++ {
				switch k := rng.IntN(100); {
				case k < 60:
					written = append(written, s.write(names[rng.IntN(len(names))], n))
				case k < 63 && len(s.info.Partitions) < 8:
					number := s.info.Partitions[rng.IntN(len(s.info.Partitions))].Number
					if len((shelf{s, number}).all()) > 1 {
						info := s.cut(number)
						readers[0].page() // the log says so before the catalog does
						s.publish(info)
					}
				case k < 80:
					readers[rng.IntN(3)].page()
				default:
					latest.page()
				}
			}
			if len(s.info.Former) < 3 {
				t.Fatalf("%d splits only", len(s.info.Former))
			}
			for i, r := range readers {
				r.rest()
				s.want(fmt.Sprint("reader ", i), r.seen, written, r.holds)
			}
			latest.rest()
			last, twice := map[string]string{}, map[string]int{}
			for _, change := range latest.seen {
				last[change[:1]] = change
				if twice[change]++; twice[change] > 1 {
					t.Errorf("%s came twice", change)
				}
			}
			for name, changes := range s.of(written, everything) {
				if want := changes[len(changes)-1]; last[name] != want {
					t.Errorf("the last version of %s that came is %q, want %s", name, last[name], want)
				}
			}
		})
	}
}

// filled returns a container whose items have been written once, and what was written.
func filled(t *testing.T) (s *splits, written []string) {
	t.Helper()
	s = newSplits(t)
	for n, name := range names {
		written = append(written, s.write(name, n))
	}
	return s, written
}

// azure-sdk-for-java, pull requests 45363 and 22718: the first request to a child had no continuation, and so began with all.
// A client that knows the ranges asks each child with the place that it has in the parent.
func TestChanges_AChildGoesOnAtTheParentsPlace(t *testing.T) {
	t.Parallel()
	s, _ := filled(t)
	parent := s.reader(store.ChangesRequest{AllVersions: true, Scope: store.ChangeScope{Partitions: []uint32{0}}})
	parent.rest()
	behind := []string{s.write("a", 50), s.write("b", 51), s.write("c", 52), s.write("d", 53), s.write("e", 54)}
	low, high := s.split(0)
	behind = append(behind, s.write("a", 60), s.write("c", 61), s.write("e", 62), s.write("f", 63))
	_, err := s.container().Changes(t.Context(), parent.r)
	split, ok := errors.AsType[*store.SplitError](err)
	if !ok || !errors.Is(err, store.ErrNotOwner) || !slices.Equal(split.Former.Children, []uint32{low, high}) {
		t.Fatalf("the partition that was split: %v, want *SplitError that names %d and %d", err, low, high)
	}
	for _, child := range []uint32{low, high} {
		r := s.reader(store.ChangesRequest{AllVersions: true, ItemsMax: 1, Continuation: parent.r.Continuation, Scope: store.ChangeScope{Partitions: []uint32{child}}})
		r.rest()
		s.want(fmt.Sprint("child ", child), r.seen, behind, func(k feed.PartitionKey) bool { return s.holder(k) == child })
	}
}

// azure-cosmos-dotnet-v3, issue 5604: what was read of the parent was read again. Read to its end, it is not opened any more.
func TestChanges_AParentThatWasReadIsNotReadAgain(t *testing.T) {
	t.Parallel()
	s, written := filled(t)
	r := s.reader(store.ChangesRequest{AllVersions: true})
	r.rest()
	s.split(0)
	if again := r.rest(); len(again) != 0 {
		t.Errorf("nothing was written, and came: %v", again)
	}
	s.forget(0) // no place of the reader is there any more
	written = append(written, s.write("a", 50), s.write("b", 51))
	r.rest()
	s.want("behind the parent", r.seen, written, everything)
}

// azure-cosmos-dotnet-v3, pull requests 6079 and 6076: children were begun where a place of the parent was still there. A
// continuation that names both is none.
func TestChanges_AChildIsNotReadBesideItsParent(t *testing.T) {
	t.Parallel()
	s, _ := filled(t)
	low, high := s.split(0)
	first := s.info.Former[0].First
	both := fmt.Sprintf("%s/0@3,%d@%d,%d@%d", s.info.ID, low, first-1, high, first-1)
	if _, err := s.container().Changes(t.Context(), store.ChangesRequest{Continuation: both}); !errors.Is(err, store.ErrBadRequest) {
		t.Errorf("a continuation of a partition and of its children: %v, want 400", err)
	}
	one := fmt.Sprintf("%s/%d@%d", s.info.ID, low, first-1)
	if _, err := s.container().Changes(t.Context(), store.ChangesRequest{Continuation: one}); !errors.Is(err, store.ErrBadRequest) {
		t.Errorf("a continuation of one child for all: %v, want 400", err)
	}
}

// The same, pull request 5931: children lost the time at which the reader was to begin.
func TestChanges_ATimeHoldsInTheChildren(t *testing.T) {
	t.Parallel()
	s, _ := filled(t)
	low, high := s.split(0)
	for n, name := range names {
		s.write(name, 20+n)
	}
	at := []feed.LSN{s.logs[low].last, s.logs[high].last}
	later := []string{s.write("a", 50), s.write("b", 51), s.write("c", 52), s.write("d", 53)}
	r := s.reader(store.ChangesRequest{AllVersions: true, Start: feed.StartTime(millis(s.timeBehind(min(at[0], at[1]))))})
	r.rest()
	if len(r.seen) < len(later) || len(r.seen) >= len(names) {
		t.Errorf("from the time of the last four on came %v", r.seen)
	}
	all := s.reader(store.ChangesRequest{AllVersions: true, Start: feed.StartTime(millis(s.timeBehind(s.info.Former[0].First)))})
	all.rest()
	if len(all.seen) != len(names)+len(later) {
		t.Errorf("from the split on came %v", all.seen)
	}
}

// While the logs of former partitions are there, a reader from the beginning begins in them.
func TestChanges_TheBeginningIsInTheParents(t *testing.T) {
	t.Parallel()
	s, written := filled(t)
	low, _ := s.split(0)
	written = append(written, s.write("a", 50), s.write("b", 51), s.write("c", 52))
	s.split(low)
	written = append(written, s.write("a", 60), s.write("b", 61), s.write("c", 62))
	r := s.reader(store.ChangesRequest{AllVersions: true, ItemsMax: 4})
	r.rest()
	s.want("from the beginning", r.seen, written, everything)
	key := keyOf(t, "b")
	one := s.reader(store.ChangesRequest{AllVersions: true, ItemsMax: 1, Scope: store.ChangeScope{Key: key}})
	one.rest()
	s.want("one key from the beginning", one.seen, written, func(k feed.PartitionKey) bool { return k == key })
}

// A reader that begins now begins in the children, also if it knows the parent alone.
func TestChanges_NowIsInTheChildren(t *testing.T) {
	t.Parallel()
	s, _ := filled(t)
	stale := s.reader(store.ChangesRequest{AllVersions: true, Start: feed.StartNow()})
	s.split(0)
	s.write("a", 50)
	fresh := s.reader(store.ChangesRequest{AllVersions: true, Start: feed.StartNow()})
	for _, r := range []*reading{stale, fresh} {
		if got := r.rest(); len(got) != 0 {
			t.Errorf("before now there was %v", got)
		}
	}
	want := []string{s.write("a", 51), s.write("b", 52)}
	for _, r := range []*reading{stale, fresh} {
		s.want("from now on", r.rest(), want, everything)
	}
}

// changefeedprocessor, pull request 89: two who find the split at the same time. Places are a function of the continuation.
func TestChanges_WhoeverFindsTheSplitGoesOnAlike(t *testing.T) {
	t.Parallel()
	s, _ := filled(t)
	r := s.reader(store.ChangesRequest{AllVersions: true})
	r.rest()
	other := *r
	other.c = s.container()
	s.split(0)
	s.write("a", 50)
	one, two := r.rest(), other.rest()
	if diff := cmp.Diff(one, two); diff != "" || r.r.Continuation != other.r.Continuation {
		t.Errorf("one is at %s, the other at %s: %s", r.r.Continuation, other.r.Continuation, diff)
	}
}

// A walk that has come half way when its partition is split shows the rest of the items once, and what was written to those
// that it had shown.
func TestChanges_AWalkGoesOnInTheChildren(t *testing.T) {
	t.Parallel()
	for passed := 1; passed < len(names); passed += 3 {
		s, _ := filled(t)
		s.trim(0)
		r := s.reader(store.ChangesRequest{ItemsMax: passed})
		r.page()
		if len(r.seen) != passed {
			t.Fatalf("the first page has %d items, want %d", len(r.seen), passed)
		}
		shown := r.seen[0][:1]
		want := []string{s.write(shown, 50)}
		// An item that is yet to come is shown as it is then, and as it is written later.
		s.split(0)
		want = append(want, s.write(shown, 51))
		low := s.info.Partitions[0].Number
		s.split(low)
		r.r.ItemsMax = 2
		r.rest()
		seen := map[string]int{}
		for _, change := range r.seen {
			seen[change]++
			if seen[change] > 1 {
				t.Errorf("%d passed: %s came twice", passed, change)
			}
		}
		if seen[want[1]] != 1 || seen[want[0]] != 0 {
			t.Errorf("%d passed: of %v came %v, want the last one", passed, want, seen)
		}
		for n, name := range names {
			if seen[fmt.Sprintf("%s=%d", name, n)] != 1 {
				t.Errorf("%d passed: %s came %d times", passed, name, seen[fmt.Sprintf("%s=%d", name, n)])
			}
		}
	}
}

// The log of a partition that was split is deleted. Who has a place in it is told so, or walks.
func TestChanges_OfALogThatIsDeleted(t *testing.T) {
	t.Parallel()
	s, written := filled(t)
	all, latest := s.reader(store.ChangesRequest{AllVersions: true}), s.reader(store.ChangesRequest{})
	all.page()
	latest.page()
	later := []string{s.write("a", 50), s.write("b", 51)}
	s.split(0)
	later = append(later, s.write("c", 52))
	s.forget(0)
	trimmed, ok := errors.AsType[*feed.TrimmedError](second(all.c.Changes(t.Context(), all.r)))
	if !ok || trimmed.Partition != s.partition(0) {
		t.Errorf("all versions: %v, want *feed.TrimmedError of partition 0", trimmed)
	}
	fresh := *latest
	fresh.c = s.container()
	s.want("latest versions", latest.rest(), later, everything)
	s.want("latest versions, with what the catalog says now", fresh.rest(), later, everything)
	anew := s.reader(store.ChangesRequest{ItemsMax: 3})
	anew.rest()
	s.want("from the beginning", anew.seen, append(written[3:], later...), everything)
	if _, err := s.container().Changes(t.Context(), store.ChangesRequest{AllVersions: true}); !isTrimmed(err) {
		t.Errorf("all versions from the beginning: %v, want *feed.TrimmedError", err)
	}
}

// Of a partition and a child of it that was split too, the child's log is deleted first.
func TestChanges_OfAChildWhoseLogIsDeleted(t *testing.T) {
	t.Parallel()
	s, written := filled(t)
	r := s.reader(store.ChangesRequest{})
	r.page()
	low, _ := s.split(0)
	for n, name := range names[:6] {
		written = append(written, s.write(name, 50+n))
	}
	s.split(low)
	s.forget(low)
	r.rest()
	s.want("behind the beginning", r.seen, written, everything)
	if _, err := s.container().Changes(t.Context(), store.ChangesRequest{AllVersions: true}); !isTrimmed(err) {
		t.Errorf("all versions: %v, want *feed.TrimmedError", err)
	}
}

func isTrimmed(err error) bool {
	_, ok := errors.AsType[*feed.TrimmedError](err)
	return ok
}

func second[T any](_ T, err error) error { return err }

func millis(n int64) time.Time { return time.UnixMilli(n) }
