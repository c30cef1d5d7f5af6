package owner

import (
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// late is a store process whose watch of the catalog tells only what the test lets it tell.
type late struct {
	*shop
	s *Server
}

// newLate starts a shop in which an owner has put a rule in force and folded an order. It
// returns the process that takes over and what its watch tells: the container without the rule.
func newLate(t *testing.T) (l *late, old store.ContainerInfo) {
	t.Helper()
	w := newWorld(t, byCustomer)
	l = &late{shop: &shop{w.start(t.TempDir()), t}, s: &Server{
		catalog: w.catalog, open: map[feed.Partition]*serving{}, opened: make(chan struct{}, 1),
		containers: map[feed.ResourceID]store.ContainerInfo{w.info.ID: w.info}, confirmed: map[feed.ResourceID]confirmation{},
	}}
	l.want()
	l.tell(l.now())
	l.do("c1", create(customer("c1")))
	l.do("c1", create(order("o1", "c1", 5, 100)))
	l.check("before")
	return l, w.info
}

func (l *late) want() {
	l.t.Helper()
	if err := l.w.catalog.WantRule(l.t.Context(), "default", "things", ruled(totals(), true, true)); err != nil {
		l.t.Fatal(err)
	}
}

func (l *late) drop() {
	l.t.Helper()
	if err := l.w.catalog.DropRule(l.t.Context(), "default", "things", rulePipeline); err != nil {
		l.t.Fatal(err)
	}
}

func (l *late) now() store.ContainerInfo {
	l.t.Helper()
	info, err := l.w.catalog.Newest(l.t.Context(), "default", "things")
	if err != nil {
		l.t.Fatal(err)
	}
	return info
}

// takeOver makes another process the owner, and lets it do what its watch has told so far.
func (l *late) takeOver() {
	l.t.Helper()
	l.restart(l.t.TempDir())
	l.tell(<-l.s.register(l.Partition).wants)
}

// tell does what the owner does when its watch tells a record.
func (l *late) tell(info store.ContainerInfo) {
	l.t.Helper()
	if err := l.s.putInForce(l.t.Context(), l.Partition, &info); err != nil {
		l.t.Fatal(err)
	}
}

// settings are those in force.
func (l *late) settings() (s store.Settings) {
	l.onDecider(l.t.Context(), func(d *decider) { s = d.schema.settings })
	return s
}

// keeps says that the rule is in force and has its accumulators.
func (l *late) keeps(when string) {
	l.t.Helper()
	if rules := l.settings().Rules; len(rules) != 1 {
		l.t.Errorf("%s: rules %+v", when, rules)
	}
	l.do("c1", upsert(order("o2", "c1", 6, 200)))
	l.check(when)
}

// I6: a new owner whose watch of the catalog lags leaves a rule alone that another has put in
// force, with its accumulators.
func TestI6_ANewOwnerTakesNoOlderWish(t *testing.T) {
	l, _ := newLate(t)
	l.takeOver()
	l.keeps("after the takeover")
	l.tell(l.now())
	l.keeps("when the watch has caught up")
	l.rebuilt()
}

// I6: a record that asks for what is in force is noted, so that one before it is too old.
func TestI6_AWishBetweenTwoEqualOnesIsTooOld(t *testing.T) {
	l, _ := newLate(t)
	l.drop()
	between := l.now()
	l.want()
	l.tell(l.now())
	if err := l.reconcileSettings(t.Context(), &between); err != errOldWish { //nolint:errorlint // it is returned as it is
		t.Errorf("an older record was answered %v", err)
	}
	l.s.containers[between.ID] = between
	l.takeOver()
	l.keeps("after the takeover")
}

// I6: settings of an earlier release carry no revision. An older wish does not drop their rules.
func TestI6_AnOlderWishAndSettingsWithoutARevision(t *testing.T) {
	l, old := newLate(t)
	if _, err := l.putSettings(t.Context(), func(s store.Settings) (store.Settings, bool) {
		s.CatalogRevision = 0
		return s, true
	}); err != nil {
		t.Fatal(err)
	}
	l.takeOver()
	l.keeps("after the takeover")
	if at := l.settings().CatalogRevision; at <= old.Revision || at != l.now().Revision {
		t.Errorf("noted revision %d; the old one is %d, the newest %d", at, old.Revision, l.now().Revision)
	}
}

// Where the catalog's bucket was made anew, or the container comes from another store, the log
// has a revision that the catalog will not reach for long. What the catalog asks for counts all the same.
func TestWishesOfACatalogThatBeganAnew(t *testing.T) {
	l, _ := newLate(t)
	if _, err := l.putSettings(t.Context(), func(s store.Settings) (store.Settings, bool) {
		s.CatalogRevision += 1000
		return s, true
	}); err != nil {
		t.Fatal(err)
	}
	with := l.now()
	l.takeOver()
	l.keeps("after the takeover")
	l.drop()
	l.tell(with) // late, and the newest drops the rule
	if is := l.settings(); len(is.Rules) != 0 || is.CatalogRevision != l.now().Revision {
		t.Errorf("the catalog asks for no rule; in force are %+v", is)
	}
}
