package aggregate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
)

// together returns ids of orders that lie in one partition of the source.
func (s *shop) together(n int) []string {
	s.t.Helper()
	parts := map[feed.Partition][]string{}
	for i := 0; ; i++ {
		id := fmt.Sprint("o", i)
		p := s.cfg.Source.PartitionFor(keyOf(s.t, id))
		if parts[p] = append(parts[p], id); len(parts[p]) == n {
			return parts[p]
		}
	}
}

// targets returns of which item, and of which target, each dead letter is, in order.
func (s *shop) targets() (all []string, letters []processors.DeadLetter) {
	s.t.Helper()
	letters, err := s.DeadLetters.List(s.t.Context(), s.cfg.Pipeline, 100)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range letters {
		all = append(all, l.Item+" "+l.Target)
	}
	slices.Sort(all)
	return all, letters
}

// A customer that has no room for its fields refuses each change of each order. It has one dead letter, of the
// last one, and a retry gives it the fields as they are by then.
func TestATargetThatRefusesAgainHasOneDeadLetter(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	k := s.start(s.cfg)
	ids := s.together(5)
	s.order(ids[0], "c", 1, 10)
	s.Quiet(k)
	s.roomless("c")
	for i, id := range append(ids, ids...) {
		s.order(id, "c", 2, 1_000_000+i)
		s.Quiet(k)
	}
	last := ids[len(ids)-1]
	got, letters := s.targets()
	if diff := gocmp.Diff([]string{fmt.Sprintf(`["%s"]/%s ["c"]/c`, last, last)}, got); diff != "" {
		t.Fatalf("dead letters (-want +got):\n%s", diff)
	}
	s.put(s.cfg.Target, map[string]any{"id": "c", "customerId": "c", "type": "customer"})
	s.retryUntilGone(letters[0])
	s.check("there is room again")
}

// Two groups want targets of one id, which an item of another group has. Each has a dead letter of its
// own, for a retry makes the target of the group whose change it holds.
func TestI6_GroupsThatWantOneTargetHaveDeadLettersOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := newShopByDay(t)
	k := s.start(s.cfg)
	ids := s.together(3)
	want := make([]string, 0, 2)
	for i, id := range ids {
		s.order(id, "c", i+1, 10) // the first makes the customer, of day 1
		s.Quiet(k)
		if i > 0 {
			s.order(id, "c", i+1, 20)
			s.Quiet(k)
			want = append(want, fmt.Sprintf(`["%s"]/%s ["c"]/c`, id, id))
		}
	}
	slices.Sort(want)
	got, letters := s.targets()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("dead letters (-want +got):\n%s", diff)
	}
	for _, id := range []string{ids[0], ids[2]} { // the groups of days 1 and 3 have no members any more
		if err := s.cfg.Source.Delete(t.Context(), keyOf(t, id), id); err != nil {
			t.Fatal(err)
		}
	}
	s.Quiet(k)
	if err := s.cfg.Target.Delete(t.Context(), keyOf(t, "c"), "c"); err != nil {
		t.Fatal(err)
	}
	for _, l := range letters {
		s.retryUntilGone(l)
	}
	item, err := s.cfg.Target.Read(t.Context(), keyOf(t, "c"), "c")
	if err != nil || !strings.Contains(string(item.Body), `"day":2`) || !strings.Contains(string(item.Body), `"total":20`) {
		t.Errorf("the target is %s, %v; want that of day 2", item.Body, err)
	}
}
