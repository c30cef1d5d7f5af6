package parquetsink_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/processors/project/sinktest"
)

// TestShadow_ThatIsGivenUpGoes lets a generation go on in the tables that readers see while another
// one before it builds a shadow: nobody swaps that in any more, and its files go.
func TestShadow_ThatIsGivenUpGoes(t *testing.T) {
	storage := newMemory()
	cfg := quick()
	cfg.Grace = time.Nanosecond
	s := open(t, storage, cfg)
	w := openWriter(t, s, 0, 1)
	writeRows(t, w, 1, orderRow("customer/[\"a\"]/o", "o", 1))
	flush(t, w)
	schema := sinktest.Schema(2)
	schema.Shadow = true
	shadow, _, err := s.Open(t.Context(), schema, termOf(2, 0, 1))
	must(t, err)
	writeRows(t, shadow, 1, orderRow("customer/[\"a\"]/o", "o", 2))
	flush(t, shadow)
	writeRows(t, shadow, 2, orderRow("customer/[\"a\"]/p", "p", 3))
	ofShadow := func() (live, there []string) {
		live, _, _, err := parquetsink.Newest(t.Context(), storage)
		must(t, err)
		other := func(name string) bool { return !strings.Contains(name, "/data/g2/") }
		return slices.DeleteFunc(live, other), slices.DeleteFunc(storage.names(""), other)
	}
	if live, there := ofShadow(); len(live) == 0 || len(there) == 0 {
		t.Fatalf("the shadow has %d live files of %d; all are %q", len(live), len(there), storage.names(""))
	}

	third, at3, err := s.Open(t.Context(), sinktest.Schema(3), termOf(3, 0, 1))
	must(t, err)
	if live, _ := ofShadow(); len(live) > 0 || !at3.IsZero() {
		t.Errorf("%d files of the shadow are live when generation 3 has begun, at %s", len(live), at3)
	}
	if _, err := shadow.Flush(t.Context()); !errors.Is(err, processors.ErrFenced) {
		t.Errorf("the shadow is written: %v", err)
	}
	if _, _, err := s.Open(t.Context(), schema, termOf(2, 0, 2)); !errors.Is(err, processors.ErrFenced) {
		t.Errorf("the shadow is opened: %v", err)
	}
	for n := 1; n <= 2; n++ { // the second removes what the first has superseded
		writeRows(t, third, n, orderRow("customer/[\"a\"]/q", "q", int64(n)))
		flush(t, third)
	}
	if _, there := ofShadow(); len(there) > 0 {
		t.Errorf("files of the shadow are there after the grace: %q", there)
	}
	if got := deltaIDs(t, storage); !slices.Equal(got, []string{"o=0.01", "q=0.02"}) {
		t.Errorf("rows %q", got)
	}
}

// A shadow of a later generation stays beside one that goes on in the tables that readers see.
func TestShadow_OfALaterGenerationStays(t *testing.T) {
	storage := newMemory()
	s := open(t, storage, quick())
	openWriter(t, s, 0, 1)
	schema := sinktest.Schema(3)
	schema.Shadow = true
	shadow, _, err := s.Open(t.Context(), schema, termOf(3, 0, 1))
	must(t, err)
	_, _, err = s.Open(t.Context(), sinktest.Schema(2), termOf(2, 0, 1))
	must(t, err)
	writeRows(t, shadow, 1, orderRow("customer/[\"a\"]/o", "o", 2))
	flush(t, shadow)
	must(t, s.Swap(t.Context(), schema))
	if got := deltaIDs(t, storage); !slices.Equal(got, []string{"o=0.02"}) {
		t.Errorf("rows %q", got)
	}
}
