package gateway_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/gateway"
)

// pages reads a feed to its end and returns the ids of all pages.
func (w *world) pages(with ...string) []string {
	w.t.Helper()
	var ids []string
	for token := ""; ; {
		a := w.ask("GET", docs, "", append([]string{goOn, token}, with...)...).is(200)
		ids = append(ids, a.ids("Documents")...)
		if token = a.header.Get(goOn); token == "" {
			return ids
		}
	}
}

// A read feed gives every item once, by pages, for every part that a client may
// name.
func TestReadFeed_Parts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 3})
	w.container("things", byPK)
	var want []string
	byRange := map[string][]string{}
	bounds := feed.EvenRanges(3)
	middle, err := feed.ParseEPK("1F000000000000000000000000000000")
	if err != nil {
		t.Fatal(err)
	}
	var below []string
	for i := range 60 {
		id, pk := fmt.Sprintf("%02d", i), fmt.Sprintf("k%d", i%20)
		w.ask("POST", docs, fmt.Sprintf(`{"id":%q,"pk":%q}`, id, pk), keyHeader, fmt.Sprintf(`[%q]`, pk)).is(201)
		want = append(want, id)
		key, err := feed.NewPartitionKey(pk)
		if err != nil {
			t.Fatal(err)
		}
		for n, r := range bounds {
			if r.Contains(key.Hash()) {
				byRange[fmt.Sprint(n)] = append(byRange[fmt.Sprint(n)], id)
			}
		}
		if key.Hash() < middle {
			below = append(below, id)
		}
	}
	check := func(what string, want, got []string) {
		t.Helper()
		got = slices.Sorted(slices.Values(got))
		if !slices.Equal(want, got) {
			t.Errorf("%s: want %v, got %v", what, want, got)
		}
	}
	for _, size := range []string{"1", "7", "20", "-1", "1000"} {
		check("all by "+size, want, w.pages(pageItems, size))
	}
	for id, want := range byRange {
		check("range "+id, want, w.pages(pageItems, "4", rangeHeader, id))
	}
	check("a key", []string{"03", "23", "43"}, w.pages(pageItems, "2", keyHeader, `["k3"]`))
	check("a key and a range that meet nowhere", nil, w.pages(keyHeader, `["k3"]`, rangeHeader, otherRange(t, "k3", bounds)))
	check("keys below", below, w.pages(pageItems, "3", "x-ms-start-epk", "", "x-ms-end-epk", middle.Hex()))
	above := w.pages(pageItems, "3", "x-ms-start-epk", middle.Hex(), "x-ms-end-epk", "FF")
	if len(above)+len(below) != len(want) {
		t.Errorf("%d items below and %d above the middle, of %d", len(below), len(above), len(want))
	}
	// A continuation is of one feed and one part of it.
	token := w.ask("GET", docs, "", pageItems, "5").is(200).header.Get(goOn)
	w.ask("GET", docs, "", goOn, token, keyHeader, `["k3"]`).is(400)
	w.ask("GET", docs, "", goOn, token+"x").is(400)
	w.ask("GET", docs, "", goOn, "nonsense").is(400)
	w.ask("GET", docs, "", pageItems, "many").is(400)
	w.ask("GET", docs, "", pageItems, "0").is(400)
	w.ask("GET", docs, "", rangeHeader, "3").is(410, "1002")
	w.ask("GET", docs, "", keyHeader, `["a","b"]`).is(400, "1001")
	w.ask("GET", docs, "", "x-ms-start-epk", "zz").is(400)
}

func otherRange(t *testing.T, pk string, bounds []feed.Range) string {
	t.Helper()
	key, err := feed.NewPartitionKey(pk)
	if err != nil {
		t.Fatal(err)
	}
	for n, r := range bounds {
		if !r.Contains(key.Hash()) {
			return fmt.Sprint(n)
		}
	}
	t.Fatal("every range holds every key")
	return ""
}

// With hierarchical keys the first levels name a part.
func TestReadFeed_PrefixOfAKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 2})
	w.container("things", `{"partitionKey":{"paths":["/a","/b"],"kind":"MultiHash"}}`)
	for _, a := range []string{"x", "y"} {
		for _, b := range []string{"1", "2", "3"} {
			w.ask("POST", docs, fmt.Sprintf(`{"id":"%s%s","a":%q,"b":%q}`, a, b, a, b), keyHeader, fmt.Sprintf(`[%q,%q]`, a, b)).is(201)
		}
	}
	got := slices.Sorted(slices.Values(w.pages(pageItems, "2", keyHeader, `["x"]`)))
	if !slices.Equal(got, []string{"x1", "x2", "x3"}) {
		t.Errorf("the part of x is %v", got)
	}
	if got := w.pages(keyHeader, `["x","2"]`); !slices.Equal(got, []string{"x2"}) {
		t.Errorf("the whole key gives %v", got)
	}
	w.ask("GET", docs+"/x1", "", keyHeader, `["x"]`).is(400, "1001")
}

// Pages of feeds are made in turn: so many readers hold no more of them in memory than answers may
// have.
func TestReadFeed_PagesAreMadeInTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.ask("POST", docs, `{"id":"a","pk":"k"}`, keyHeader, `["k"]`).is(201)
	for name, with := range map[string][]string{"items": nil, "changes": {"A-IM", "Incremental feed"}} {
		release := w.gateway.TakePages()
		answered := make(chan *answer, 1)
		go func() {
			defer close(answered) // also where asking has failed
			answered <- w.ask("GET", docs, "", with...)
		}()
		select {
		case <-answered:
			t.Errorf("%s: answered though no page may be made", name)
			release()
			continue
		case <-time.After(50 * time.Millisecond): // what does not wait has answered; if not, the test only shows less
		}
		release()
		a := <-answered
		if a == nil {
			t.Fatalf("%s: no answer", name)
		}
		if a.is(200); !slices.Equal(a.ids("Documents"), []string{"a"}) {
			t.Errorf("%s: %s", name, a.body)
		}
	}
}
