package owner

import (
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
)

// TestI2_ACatalogIsNotedOnlyWithWhatItLists: all of NATS was lost under a running store, and another process has made a
// catalog. What the store opens then is what the catalog before has listed.
func TestI2_ACatalogIsNotedOnlyWithWhatItLists(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	n.mustOne(pk(t, "x"), create(`{"id":"1","a":"x"}`))
	lists, err := store.CatalogIdentity(t.Context(), w.js)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{js: w.js, leases: &leases.Manager{}}
	log := w.info.Partitions[0].Log
	undeleted := func(when, want string) {
		t.Helper()
		switch got, opened, err := s.undeleted(t.Context(), n.db, n.id); {
		case err != nil || !opened:
			t.Errorf("%s: opened %t, %v", when, opened, err)
		case (got == "") != (want == ""):
			t.Errorf("%s: %q", when, got)
		}
	}
	note := func() {
		t.Helper()
		if err := s.noteListed(n.db, n.id, log, log); err != nil {
			t.Fatal(err)
		}
	}
	s.adoptContainers("of before", []store.ContainerInfo{w.info})
	if err := s.noteUnopened(t.Context(), n.db, n.id); err != nil {
		t.Fatal(err)
	}
	if of, err := n.db.CatalogOf(n.id); err != nil || of != "of before" {
		t.Errorf("where nobody opens it the note is %q, %v", of, err)
	}
	undeleted("its log is there", "is there")
	if err := w.js.DeleteStream(t.Context(), n.id.Stream()); err != nil {
		t.Fatal(err)
	}
	undeleted("another catalog listed it", "was made")
	s.adoptContainers(lists, nil)
	if err := s.noteListed(n.db, n.id, feed.LogID{1}, log); err != nil { // another log of its name
		t.Fatal(err)
	}
	undeleted("this catalog lists another log", "was made")
	note()
	undeleted("this catalog listed it", "")
}
