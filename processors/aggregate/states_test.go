package aggregate_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// Accumulators that together are larger than a message are read in halves, each in its place. An
// owner of a release that does not know the request is asked again, when it has been upgraded.
func TestReadStates(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	rule, err := accumulator.Compile(s.cfg.Spec)
	if err != nil {
		t.Fatal(err)
	}
	k := s.start(s.cfg)
	p := s.cfg.Target.Partitions()[0]
	var groups []string
	for i := 0; len(groups) < 5; i++ {
		c := fmt.Sprint("c", i)
		if s.cfg.Target.PartitionFor(keyOf(t, c)) != p {
			continue
		}
		d := rule.NewDelta()
		rule.Fold(d, keyOf(t, "o"), "o", nil, fmt.Appendf(nil, `{"type":"order","customerId":%q}`, c))
		groups = append(groups, string(d.Groups()[0]))
		for n := range len(groups) { // so that each has another number of members
			s.order(fmt.Sprintf("%s-%d", c, n), c, n, 1)
		}
	}
	s.Quiet(k)
	ask := func() (*store.StatesResult, error) {
		return k.Own(s.cfg.Target).ReadStates(t.Context(), p, &store.ReadStates{Pipeline: s.cfg.Pipeline, Generation: s.cfg.Generation, Groups: groups})
	}

	var asked atomic.Int64
	k.Tap.Refuse(func(r *store.Request) *store.Error {
		if r.States == nil {
			return nil
		}
		asked.Add(1)
		if len(r.States.Groups) > 1 {
			return store.Refuse(store.StatusTooLarge, "larger than a message")
		}
		return nil
	})
	result, err := ask()
	if err != nil || asked.Load() != 9 {
		t.Fatalf("asked %d times: %v", asked.Load(), err)
	}
	for i, name := range groups {
		g := accumulator.Group(name)
		if state, err := rule.DecodeState(g, result.States[i]); err != nil || state.Members() != int64(i+1) {
			t.Errorf("%s has %d members, want %d: %v", g, state.Members(), i+1, err)
		}
	}

	k.Tap.Refuse(func(r *store.Request) *store.Error {
		if r.States == nil {
			return nil
		}
		_, err := store.DecodeRequest([]byte{1, 255, 0, 0, 0, 0})
		return store.Refuse(store.StatusBadRequest, "%v", err)
	})
	if _, err := ask(); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("an owner of an earlier release: %v", err)
	}
}
