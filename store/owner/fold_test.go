package owner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// feeder folds changes of a source that is nowhere into the shop's partition, as a
// processor does.
type feeder struct {
	*shop
	rule     *accumulator.Rule
	producer feed.Producer
	epoch    uint64
}

func newFeeder(t *testing.T, wish store.RuleWish) *feeder {
	t.Helper()
	rule, err := accumulator.Compile(wish.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return &feeder{
		shop: newShop(t, wish), rule: rule, epoch: 1,
		producer: feed.Producer{Pipeline: rulePipeline, Generation: 1, Source: "source:elsewhere/0"},
	}
}

// delta is what it means that an order takes the place of another.
func (f *feeder) delta(customer, before, after string) []byte {
	f.t.Helper()
	return f.deltaOf("o", customer, before, after)
}

// deltaOf is delta for the order of an id.
func (f *feeder) deltaOf(id, customer, before, after string) []byte {
	f.t.Helper()
	d := f.rule.NewDelta()
	body := func(s string) []byte {
		if s == "" {
			return nil
		}
		return []byte(s)
	}
	f.rule.Fold(d, f.key(customer), id, body(before), body(after))
	return d.Append(nil)
}

func at(lsn feed.LSN) feed.Position { return feed.Position{LSN: lsn} }

func (f *feeder) send(after, upTo feed.LSN, delta []byte) *store.Response {
	f.t.Helper()
	return f.ask(&store.Request{Fold: &store.FoldMany{Producer: f.producer, Epoch: f.epoch, After: at(after), UpTo: at(upTo), Delta: delta}})
}

// fold sends an interval that must be taken.
func (f *feeder) fold(after, upTo feed.LSN, delta []byte) *store.FoldResult {
	f.t.Helper()
	r := f.send(after, upTo, delta)
	if r.Err != nil || !r.Fold.Applied || r.Fold.Position != at(upTo) {
		f.t.Fatalf("(%d, %d]: %v %+v", after, upTo, r.Err, r.Fold)
	}
	return r.Fold
}

func (f *feeder) count(customer string) string {
	f.t.Helper()
	body := f.read(f.key(customer), customer)
	_, rest, ok := strings.Cut(body, `"salesOrderCount":`)
	if !ok {
		return "none"
	}
	return rest[:strings.IndexAny(rest, ",}")]
}

// An interval is folded if the partition stands where it begins, and only then;
// across restarts too.
func TestI5_FoldIsAppliedOnce(t *testing.T) {
	f := newFeeder(t, ruled(byID(), false, true))
	one := f.delta("c1", "", order("o", "c1", 1, 5))
	f.fold(0, 10, one)
	for name, r := range map[string]*store.Response{
		"the same again":       f.send(0, 10, one),
		"a longer one":         f.send(0, 12, one),
		"one that begins late": f.send(11, 12, one),
	} {
		if r.Err != nil || r.Fold.Applied || r.Fold.Position != at(10) {
			t.Errorf("%s: %v %+v, want the position 10.0", name, r.Err, r.Fold)
		}
	}
	if got := f.count("c1"); got != "1" {
		t.Errorf("count %s", got)
	}
	f.restart(t.TempDir())
	if r := f.send(0, 10, one); r.Err != nil || r.Fold.Applied || r.Fold.Position != at(10) {
		t.Errorf("after a restart: %v %+v", r.Err, r.Fold)
	}
	f.fold(10, 11, one)
	if got := f.count("c1"); got != "2" {
		t.Errorf("count %s", got)
	}
	if r := f.send(11, 11, one); !errors.Is(r.Err, store.ErrBadRequest) {
		t.Errorf("an empty interval: %v %+v", r.Err, r.Fold)
	}
	if r := f.send(11, 12, []byte("nonsense")); !errors.Is(r.Err, store.ErrBadRequest) {
		t.Errorf("no delta: %v %+v", r.Err, r.Fold)
	}
	f.fold(11, 12, f.rule.NewDelta().Append(nil)) // nothing but a position
	f.rebuilt()
}

// Intervals of several producers do not know of each other.
func TestI5_EachProducerHasAPosition(t *testing.T) {
	f := newFeeder(t, ruled(byID(), false, true))
	one := f.delta("c1", "", order("o", "c1", 1, 5))
	f.fold(0, 10, one)
	f.producer.Source = "source:elsewhere/1"
	f.fold(0, 3, one)
	r := f.ask(&store.Request{Groups: &store.ReadGroups{Pipeline: rulePipeline, Generation: 1}})
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	want := []store.ProducerPosition{{Source: "source:elsewhere/0", Position: at(10)}, {Source: "source:elsewhere/1", Position: at(3)}}
	if !slices.Equal(r.Groups.Positions, want) {
		t.Errorf("positions %v", r.Groups.Positions)
	}
	content, err := f.rule.DecodeDelta(r.Groups.Content)
	if err != nil || len(content.Groups()) != 1 {
		t.Errorf("content %v, %v", content.Groups(), err)
	}
}

// Whoever asks plants its epoch: what an earlier one sends is refused from then on,
// however late it comes.
func TestI5_AskPlantsTheEpoch(t *testing.T) {
	f := newFeeder(t, ruled(byID(), false, true))
	one := f.delta("c1", "", order("o", "c1", 1, 5))
	f.fold(0, 10, one)
	ask := func(epoch uint64) *store.Response {
		return f.ask(&store.Request{Fold: &store.FoldMany{Producer: f.producer, Epoch: epoch, Ask: true}})
	}
	if r := ask(2); r.Err != nil || r.Fold.Applied || r.Fold.Position != at(10) {
		t.Fatalf("%v %+v", r.Err, r.Fold)
	}
	lsn := f.state.Load().lsn
	if r := ask(2); r.Err != nil || f.state.Load().lsn != lsn {
		t.Errorf("asked twice: %v, %d commits", r.Err, f.state.Load().lsn-lsn)
	}
	for name, r := range map[string]*store.Response{"a fold": f.send(10, 11, one), "a question": ask(1)} {
		if !errors.Is(r.Err, store.ErrFenced) || r.Err.Epoch != 2 {
			t.Errorf("%s of an older epoch: %v %+v", name, r.Err, r.Fold)
		}
	}
	f.restart(t.TempDir())
	if r := f.send(10, 11, one); !errors.Is(r.Err, store.ErrFenced) || r.Err.Epoch != 2 {
		t.Errorf("after a restart: %v %+v", r.Err, r.Fold)
	}
	f.epoch = 2
	f.fold(10, 11, one)
}

// A late worker's interval of which the answer was lost, and its successor's, that
// holds the same changes and more.
func TestI5_LateAndSuccessor(t *testing.T) {
	f := newFeeder(t, ruled(byID(), false, true))
	one := f.delta("c1", "", order("o", "c1", 1, 5))
	f.fold(0, 5, one)
	both := f.rule.NewDelta()
	for range 2 {
		f.rule.Fold(both, f.key("c1"), "o", nil, []byte(order("o", "c1", 1, 5)))
	}
	f.epoch = 2
	r := f.send(0, 9, both.Append(nil))
	if r.Err != nil || r.Fold.Applied || r.Fold.Position != at(5) {
		t.Fatalf("%v %+v", r.Err, r.Fold)
	}
	f.fold(5, 9, one)
	if got := f.count("c1"); got != "2" {
		t.Errorf("count %s", got)
	}
}

// Shares come in any order: a removal before its addition.
func TestFoldsInAnyOrder(t *testing.T) {
	f := newFeeder(t, ruled(totals(), false, true))
	f.do("c1", create(customer("c1")))
	type step struct{ id, before, after string }
	steps := make([]step, 0, 40)
	last := map[string]string{}
	rng := rand.New(rand.NewPCG(3, 4))
	for range cap(steps) {
		id := fmt.Sprint("o", rng.IntN(6))
		next := ""
		if rng.IntN(4) > 0 {
			next = order(id, "c1", 1+rng.IntN(20), rng.IntN(500), rng.IntN(500))
		}
		steps = append(steps, step{id, last[id], next})
		last[id] = next
	}
	rng.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	for i, s := range steps {
		f.fold(feed.LSN(i), feed.LSN(i+1), f.deltaOf(s.id, "c1", s.before, s.after))
	}
	items := f.scan(store.Scope{})
	for _, body := range last { // the orders are in no partition
		if body != "" {
			var item shopItem
			if err := json.Unmarshal([]byte(body), &item); err != nil {
				t.Fatal(err)
			}
			items = append(items, item)
		}
	}
	if diff := differences(items); diff != "" {
		t.Errorf("the customer differs from its orders (-want +got):\n%s", diff)
	}
	f.rebuilt()
}

// Targets that cannot take their fields are told, and the interval is folded.
func TestFoldRefusals(t *testing.T) {
	t.Parallel()
	f := newFeeder(t, ruled(totals(), false, true))
	f.do("c1", create(customer("c1")))
	f.do("c2", create(customer("c2")))
	now := f.read(f.key("c1"), "c1")
	pad := strings.Repeat("x", store.ItemBytesMax-len(now)-len(`,"pad":""`))
	f.do("c1", upsert(strings.Replace(customer("c1"), "{", fmt.Sprintf(`{"pad":%q,`, pad), 1)))
	d := f.rule.NewDelta()
	for _, c := range []string{"c1", "c2"} {
		f.rule.Fold(d, f.key(c), "o", nil, []byte(order("o", c, 1, 500)))
	}
	r := f.fold(0, 1, d.Append(nil))
	if len(r.Refused) != 1 || r.Refused[0].Status != store.StatusTooLarge || r.Refused[0].Ref.ID != "c1" || r.Refused[0].Reason == "" {
		t.Fatalf("refused %+v", r.Refused)
	}
	// The dead letter is to tell how much too large the item would be.
	var size int
	if _, err := fmt.Sscanf(r.Refused[0].Reason, "item c1 would be %d bytes", &size); err != nil || size <= store.ItemBytesMax || size > store.ItemBytesMax+1000 {
		t.Errorf("the reason is %q: %v", r.Refused[0].Reason, err)
	}
	if f.count("c1") != "0" || f.count("c2") != "1" {
		t.Errorf("counts %s and %s", f.count("c1"), f.count("c2"))
	}
	f.do("c1", upsert(customer("c1"))) // there is room again
	if got := f.count("c1"); got != "1" {
		t.Errorf("count %s", got)
	}
	f.rebuilt()
}

// A partition that does not know the rule, or builds its index still, asks to wait.
func TestFoldBeforeTheRuleIsInForce(t *testing.T) {
	f := newFeeder(t, ruled(byID(), false, true))
	f.producer.Generation = 2
	r := f.send(0, 1, f.delta("c1", "", order("o", "c1", 1)))
	if !errors.Is(r.Err, store.ErrUnavailable) || r.Err.RetryAfter == 0 {
		t.Errorf("answered %v %+v", r.Err, r.Fold)
	}
}

// What follows from a processor's request is left to the processor: the item that
// expires to make place for a target, and the target that is made. Otherwise the
// owner, that says by a fold whose changes it has folded, would have to say so of
// what it was sent.
func TestI5_WhatAFoldCausesIsTheProcessors(t *testing.T) {
	spec := byID()
	spec.SourceWhere = `type != "none"` // so that customers are members too
	for name, owner := range map[string]bool{"eventual": false, "transactional": true} {
		t.Run(name, func(t *testing.T) {
			f := newFeeder(t, ruled(spec, owner, true))
			// An item of another kind has the id of the customer, and has expired.
			f.do("c1", create(`{"id":"c1","customerId":"c1","type":"none","ttl":1}`))
			f.w.clock.Add(5000)
			f.fold(0, 1, f.delta("c1", "", order("o", "c1", 1, 5)))
			if got := f.count("c1"); got != "1" {
				t.Errorf("count %s: the owner has folded the target", got)
			}
			commits := f.w.commits()
			last := commits[len(commits)-1]
			tx := last.Transactions[len(last.Transactions)-1]
			if tx.Effect == nil || tx.Effect.Producer != f.producer || len(tx.Folds) != 1 || len(tx.Changes) == 0 {
				t.Errorf("the transaction is %+v", tx)
			}
		})
	}
}

// A repair takes the place of accumulators that are wrong, if they are still what
// was read.
func TestMend(t *testing.T) {
	f := newFeeder(t, ruled(byID(), false, true))
	f.fold(0, 10, f.delta("c1", "", order("o", "c1", 1, 5)))
	read := func() *store.GroupsResult {
		t.Helper()
		value := document.AppendCanonical(nil, []byte(`"c1"`))
		g := slices.Concat(value, value)
		r := f.ask(&store.Request{Groups: &store.ReadGroups{Pipeline: rulePipeline, Generation: 1, Groups: []string{string(g)}}})
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r.Groups
	}
	was := read()
	// Two orders are what it should be: the difference is one more.
	mend := func(digest uint64) *store.Response {
		return f.ask(&store.Request{Fold: &store.FoldMany{
			Producer: feed.Producer{Pipeline: rulePipeline, Generation: 1, Source: "repair"}, Epoch: 1, Mend: true, Content: digest,
			Delta: f.delta("c1", "", order("o", "c1", 2, 5)),
		}})
	}
	f.fold(10, 11, f.delta("c1", "", order("o", "c1", 3, 5)))
	if r := mend(was.Digest); !errors.Is(r.Err, store.ErrPreconditionFailed) {
		t.Errorf("a repair of what has changed: %v %+v", r.Err, r.Fold)
	}
	if r := mend(read().Digest); r.Err != nil || !r.Fold.Applied {
		t.Errorf("a repair: %v %+v", r.Err, r.Fold)
	}
	if got := f.count("c1"); got != "3" {
		t.Errorf("count %s", got)
	}
	f.fold(11, 12, f.delta("c1", order("o", "c1", 3, 5), ""))
	if got := f.count("c1"); got != "2" {
		t.Errorf("count %s", got)
	}
	f.rebuilt()
}

// Groups are read page by page, each once.
func TestReadGroupsPages(t *testing.T) {
	f := newFeeder(t, ruled(byID(), false, false))
	d := f.rule.NewDelta()
	for i := range 25 {
		c := fmt.Sprintf("c%02d", i)
		f.rule.Fold(d, f.key(c), "o", nil, []byte(order("o", c, 1, 5)))
	}
	f.fold(0, 1, d.Append(nil))
	var all []string
	for after := ""; ; {
		r := f.ask(&store.Request{Groups: &store.ReadGroups{Pipeline: rulePipeline, Generation: 1, After: after, Max: 7}})
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		content, err := f.rule.DecodeDelta(r.Groups.Content)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range content.Groups() {
			all = append(all, g.String())
		}
		if after = r.Groups.Last; after == "" {
			break
		}
	}
	if len(all) != 25 || !slices.IsSorted(all) || len(slices.Compact(all)) != 25 {
		t.Errorf("groups %v", all)
	}
}

// Groups of many members are read as far as a message has room, whether all are asked for or some
// by name. Without their members they are small.
func TestReadGroups_OfManyMembers(t *testing.T) {
	t.Parallel()
	f := newFeeder(t, ruled(byID(), false, false))
	var names []string
	for i := range 9 {
		c := fmt.Sprintf("c%02d", i)
		d := f.rule.NewDelta()
		for j := range 700 {
			id := fmt.Sprintf("%04d%s", j, strings.Repeat("x", 900))
			f.rule.Fold(d, f.key(c), id, nil, []byte(order(id, c, j, 5)))
		}
		f.fold(feed.LSN(i), feed.LSN(i+1), d.Append(nil))
		names = append(names, string(d.Groups()[0]))
	}
	all := f.groups(names, func(left []string, after string) *store.ReadGroups {
		return &store.ReadGroups{Pipeline: rulePipeline, Generation: 1, After: after}
	})
	byName := f.groups(names, func(left []string, after string) *store.ReadGroups {
		return &store.ReadGroups{Pipeline: rulePipeline, Generation: 1, Groups: left, Max: len(left)}
	})
	if !bytes.Equal(all, byName) {
		t.Error("read by name, the groups are others")
	}
	// An asker of an earlier release, which does not say how many it takes, takes groups for empty that
	// are not in the answer.
	whole := f.ask(&store.Request{Groups: &store.ReadGroups{Pipeline: rulePipeline, Generation: 1, Groups: names}})
	if whole.Err != nil || whole.Groups.Last != "" || !bytes.Equal(whole.Groups.Content, all) {
		t.Errorf("all groups by name: %v", whole.Err)
	}

	r := f.ask(&store.Request{States: &store.ReadStates{Pipeline: rulePipeline, Generation: 1, Groups: append(names, "\x08none\x00")}})
	if r.Err != nil || len(r.States.States) != len(names)+1 || r.States.States[len(names)] != nil {
		t.Fatalf("states: %v", r.Err)
	}
	content, err := f.rule.DecodeDelta(all)
	if err != nil {
		t.Fatal(err)
	}
	records := accumulator.NewMemory()
	if err := f.rule.Apply(records, content); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		g := accumulator.Group(name)
		want, err := f.rule.State(records, g)
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.rule.DecodeState(g, r.States.States[i])
		if err != nil || !cmp.Equal(got.Values(), want.Values()) || got.Members() != 700 {
			t.Errorf("%s: %d members, %v", g, got.Members(), err)
		}
		if n := len(r.States.States[i]); n > 10_000 {
			t.Errorf("without its members %s has %d bytes", g, n)
		}
	}
}

// groups reads groups until all that are named were, and returns what would make them from nothing.
func (f *feeder) groups(names []string, ask func(left []string, after string) *store.ReadGroups) []byte {
	f.t.Helper()
	all := f.rule.NewDelta()
	for left, after, answers := names, "", 1; ; answers++ {
		r := f.ask(&store.Request{Groups: ask(left, after)})
		if r.Err != nil {
			f.t.Fatal(r.Err)
		}
		if n := len(r.Groups.Content); n > 5<<20 { // the limit is of what they are reckoned to have
			f.t.Errorf("an answer has %d bytes", n)
		}
		content, err := f.rule.DecodeDelta(r.Groups.Content)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, g := range content.Groups() {
			if string(g) != left[0] {
				f.t.Fatalf("group %s comes where %s is the next", g, accumulator.Group(left[0]))
			}
			left = left[1:]
		}
		all.Merge(content)
		if after = r.Groups.Last; after == "" {
			if len(left) > 0 || answers < 2 {
				f.t.Errorf("%d groups are missing behind %d answers", len(left), answers)
			}
			return all.Append(nil)
		}
	}
}

// Many groups in one request, of which the commit holds many times as much.
func TestFoldOfManyGroups(t *testing.T) {
	t.Parallel()
	f := newFeeder(t, ruled(totals(), false, true))
	d := f.rule.NewDelta()
	for i := 0; d.Size() < 1<<18; i++ {
		c := fmt.Sprint("c", i)
		f.rule.Fold(d, f.key(c), "o", nil, []byte(order("o", c, 1, 5)))
	}
	began := time.Now()
	f.fold(0, 1, d.Append(nil))
	t.Logf("%d groups in %s", len(d.Groups()), time.Since(began))
	f.do("c77", create(customer("c77")))
	if got := f.count("c77"); got != "1" {
		t.Errorf("count %s", got)
	}
	f.rebuilt()
}

// The owner folds from the commit that says so to the one that says otherwise; each
// transaction tells whether it has.
func TestSwitchIsAControlCommit(t *testing.T) {
	s := newShop(t, ruled(totals(), false, true))
	s.do("c1", create(customer("c1")))
	for i, source := range []bool{false, true, false, true} {
		s.wish(ruled(totals(), source, true))
		before := s.folds()
		s.do("c1", create(order(fmt.Sprint("o", i), "c1", 1, 5)))
		if folded := s.folds() > before; folded != source {
			t.Errorf("step %d: the owner has folded: %v, want %v", i, folded, source)
		}
		r := s.ask(&store.Request{Status: &store.StatusRequest{}})
		if r.Err != nil || r.Status.Rules[0].Folds != source {
			t.Errorf("step %d: %v %+v", i, r.Err, r.Status)
		}
	}
	if body := s.read(s.key("c1"), "c1"); !strings.Contains(body, `"salesOrderCount":2`) {
		t.Errorf("the customer is %s, want what the owner has folded", body)
	}
	s.rebuilt()
}
