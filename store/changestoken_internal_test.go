package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
)

// A continuation is read as it was printed, in the form of earlier releases too; what is
// printed otherwise is none.
func TestContinuation(t *testing.T) {
	const rid = feed.ResourceID("c7k2x4ab")
	for _, text := range []string{
		"c7k2x4ab/", "c7k2x4ab/0@0", "c7k2x4ab/0@42,1@17.3",
		"c7k2x4ab/0@0!", "c7k2x4ab/0@42!AYGo", "c7k2x4ab/0@42.7!AYGo!17.3,1@9", "c7k2x4ab/0@0!!17", "c7k2x4ab/0@0!!t1732320000000",
	} {
		c, err := parseContinuation(text, rid)
		if err != nil || c.String() != text {
			t.Errorf("%q is read as %+v, %v", text, c, err)
		}
	}
	for _, text := range []string{
		"c7k2x4ab/0@0!!", "c7k2x4ab/0@0!!0", "c7k2x4ab/0@0!!t0", "c7k2x4ab/0@0!!t-1", "c7k2x4ab/0@0!!t", "c7k2x4ab/0@0!!17.", "c7k2x4ab/0@0!!0.3",
		"c7k2x4ab/0@0!AYG=", "c7k2x4ab/0@0!AYGp?", "c7k2x4ab/0@0!AYH!17!", "c7k2x4ab/0@0!AYGo!t1!2", "c7k2x4ab/0!AYGo", "c7k2x4ab/0@!AYGo", "c7k2x4ab/!",
		"c7k2x4ab/0@0!!t99999999999999999999",
	} {
		if c, err := parseContinuation(text, rid); !errors.Is(err, ErrBadRequest) {
			t.Errorf("%q is read as %+v, %v", text, c, err)
		}
	}
}

func FuzzContinuation(f *testing.F) {
	for _, text := range []string{"c7k2x4ab/0@42,1@17.3", "c7k2x4ab/0@42.7!AYGo!17.3", "c7k2x4ab/0@0!!t1732320000000"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseContinuation(text, "c7k2x4ab")
		if err == nil && text != "" && c.String() != text {
			t.Errorf("%q is read as %+v", text, c)
		}
	})
}

// A reader of whose log the rest is gone walks, and passes over what it knows.
func TestAReaderThatWasOvertakenWalks(t *testing.T) {
	place := func(text string) *partitionPosition {
		t.Helper()
		c, err := parseContinuation("c7k2x4ab/"+text, "c7k2x4ab")
		if err != nil {
			t.Fatal(err)
		}
		return &c.positions[0]
	}
	for from, want := range map[string]string{
		"0@42":           "0@0!!42",
		"0@17.3":         "0@0!!17.3",
		"0@0":            "0@0!",
		"0@42!AYGo":      "0@0!",      // a walk from the beginning knows of nothing for sure
		"0@42!AYGo!17.3": "0@0!!17.3", // nor does any other but what it knew at its beginning
		"0@42!AYGo!t99":  "0@0!!t99",
	} {
		at := place(from).again()
		if got := (&continuation{container: "c7k2x4ab", positions: []partitionPosition{at}}).String(); got != "c7k2x4ab/"+want {
			t.Errorf("%s goes on at %s, want %s", from, strings.TrimPrefix(got, "c7k2x4ab/"), want)
		}
	}
	item := func(lsn feed.LSN, index uint32, written feed.LSN, modified int64) *Item {
		return &Item{ETag: ETag{LSN: lsn, Index: index}, Written: written, Modified: modified}
	}
	for _, test := range []struct {
		name, place string
		item        *Item
		want        bool
	}{
		{"nothing is known", "0@0!", item(1, 0, 1, 5), false},
		{"behind the floor", "0@0!!17", item(18, 0, 18, 5), false},
		{"at the floor, which is a whole commit", "0@0!!17", item(17, 9, 17, 5), true},
		{"before the floor, in its commit", "0@0!!17.3", item(17, 2, 17, 5), true},
		{"behind the floor, in its commit", "0@0!!17.3", item(17, 3, 17, 5), false},
		{"by a client before the time", "0@0!!t100", item(17, 3, 17, 99), true},
		{"by a client at the time", "0@0!!t100", item(17, 3, 17, 100), false},
		{"by a pipeline, who knows when", "0@0!!t100", item(17, 3, 12, 99), false},
	} {
		if got := place(test.place).walk.passesOver(test.item); got != test.want {
			t.Errorf("%s: passed over %t", test.name, got)
		}
	}
	if diff := cmp.Diff(feed.LSN(42), place("0@17!!42").known()); diff != "" {
		t.Errorf("known (-want +got):\n%s", diff)
	}
}
