package gateway_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store/gateway"
)

const (
	incremental = "Incremental feed"
	allVersions = "Full-Fidelity Feed"
)

// changes asks for a page of a change feed.
func (w *world) changes(with ...string) *answer {
	w.t.Helper()
	if !slices.Contains(with, "A-IM") {
		with = append(with, "A-IM", incremental)
	}
	return w.ask("GET", docs, "", with...)
}

// nothing checks that a feed has nothing new, and returns its etag.
func (a *answer) nothing() string {
	a.t.Helper()
	a.is(304)
	if len(a.body) > 0 || a.header.Get("Content-Type") != "" {
		a.t.Errorf("%s: 304 with a body: %s", a.what, a.body)
	}
	return a.place()
}

// place is the etag of a page: quoted, and not empty.
func (a *answer) place() string {
	a.t.Helper()
	etag := a.header.Get("etag")
	if len(etag) < 3 || etag[0] != '"' || !strings.HasSuffix(etag, `"`) {
		a.t.Fatalf("%s: the etag is %q", a.what, etag)
	}
	return etag
}

func (w *world) put(pk, id string) {
	w.t.Helper()
	if a := w.ask("POST", docs, fmt.Sprintf(`{"id":%q,"pk":%q}`, id, pk), keyHeader, fmt.Sprintf(`[%q]`, pk), upsert, "true"); a.status > 201 {
		w.t.Fatalf("put %s: %d %s", id, a.status, a.body)
	}
}

func TestChangeFeed_Starts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	empty := w.changes().nothing()
	now := w.changes("If-None-Match", "*").nothing()
	w.put("a", "1")
	w.put("b", "2")
	in := func(d time.Duration, zone string) string {
		return time.Now().UTC().Add(d).Format("Mon, 02 Jan 2006 15:04:05 ") + zone
	}
	both, none := []string{"1", "2"}, []string(nil)
	for _, test := range []struct {
		name string
		with headers
		want []string
	}{
		{"the beginning", nil, both},
		{"what an empty feed answered", headers{"If-None-Match", empty}, both},
		{"what now answered before", headers{"If-None-Match", now}, both},
		{"the same without quotes", headers{"If-None-Match", strings.Trim(now, `"`)}, both},
		{"now", headers{"If-None-Match", "*"}, none},
		{"an hour ago", headers{"If-Modified-Since", in(-time.Hour, "GMT")}, both},
		{"an hour ago in the Go SDK's words", headers{"If-Modified-Since", in(-time.Hour, "UTC")}, both},
		{"an hour ahead", headers{"If-Modified-Since", in(time.Hour, "GMT")}, none},
		{"a place counts more than a time", headers{"If-None-Match", now, "If-Modified-Since", in(time.Hour, "UTC")}, both},
		{"any case of the mode", headers{"A-IM", "Incremental Feed"}, both},
		{"all versions from the beginning", headers{"A-IM", "full-fidelity feed", "x-ms-cosmos-changefeed-wire-format-version", "2021-09-15"}, []string{"", ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := w.changes(test.with...)
			if len(test.want) == 0 {
				a.nothing()
				return
			}
			if got := a.is(200).ids("Documents"); !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
			if a.header.Get("x-ms-item-count") != "2" || !strings.HasPrefix(a.header.Get("x-ms-session-token"), "0:-1#") {
				t.Errorf("the headers are %v", a.header)
			}
			place := a.place()
			if again := w.changes(append(slices.Clone(test.with), "If-None-Match", place)...).nothing(); again != place {
				t.Errorf("nothing new is at %s, which was at %s", again, place)
			}
		})
	}
	for _, with := range []headers{
		{"A-IM", "everything"},
		{"If-None-Match", `"nonsense"`},
		{"If-None-Match", `"` + strings.Repeat("x", 5000) + `"`},
		{"If-Modified-Since", "yesterday"},
		{pageItems, "0"},
		{"x-ms-start-epk", "zz"},
	} {
		w.changes(with...).is(400)
	}
	w.changes(rangeHeader, "7").is(410, "1002")
	w.ask("GET", "/dbs/shop/colls/none/docs", "", "A-IM", incremental).is(404, "1003")
}

// A client may ask for the latest versions in the form in which all versions come, as the change feed processor of Java does.
func TestChangeFeed_LatestVersionsApartFromTheirMetadata(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.put("a", "1")
	w.put("a", "1")
	var page struct {
		Documents []struct {
			Current  map[string]any
			Metadata map[string]any
		}
	}
	w.changes("x-ms-cosmos-changefeed-wire-format-version", "2021-09-15").is(200).into(&page)
	if len(page.Documents) != 1 {
		t.Fatalf("%d changes, want one", len(page.Documents))
	}
	current, metadata := page.Documents[0].Current, page.Documents[0].Metadata
	if current["id"] != "1" || current["_lsn"] != metadata["lsn"] || current["_ts"] != metadata["crts"] {
		t.Errorf("current %v, metadata %v", current, metadata)
	}
	// Whether an item was created or replaced is not told where its versions are not.
	if diff := cmp.Diff([]string{"crts", "lsn"}, slices.Sorted(maps.Keys(metadata))); diff != "" {
		t.Error(diff)
	}
}

func TestChangeFeed_Parts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 3})
	w.container("things", byPK)
	bounds := feed.EvenRanges(3)
	middle := feed.EPK("\x1f" + strings.Repeat("\x00", 15))
	byRange, bySide := map[string][]string{}, map[bool][]string{}
	for i := range 40 {
		pk, id := fmt.Sprint("k", i%20), fmt.Sprint(i)
		w.put(pk, id)
		key, err := feed.NewPartitionKey(pk)
		if err != nil {
			t.Fatal(err)
		}
		bySide[key.Hash() < middle] = append(bySide[key.Hash() < middle], id)
		for n, r := range bounds {
			if r.Contains(key.Hash()) {
				byRange[fmt.Sprint(n)] = append(byRange[fmt.Sprint(n)], id)
			}
		}
	}
	follow := func(with ...string) []string {
		t.Helper()
		var ids []string
		for place := ""; ; {
			a := w.changes(append([]string{"If-None-Match", place, pageItems, "3"}, with...)...)
			if place = a.place(); a.status == 304 {
				return slices.Sorted(slices.Values(ids))
			}
			page := a.is(200).ids("Documents")
			if len(page) == 0 || len(page) > 3 {
				t.Errorf("a page of %d", len(page))
			}
			ids = append(ids, page...)
		}
	}
	check := func(what string, want, got []string) {
		t.Helper()
		if want = slices.Sorted(slices.Values(want)); !slices.Equal(want, got) {
			t.Errorf("%s: want %v, got %v", what, want, got)
		}
	}
	for id, want := range byRange {
		check("range "+id, want, follow(rangeHeader, id))
	}
	check("everything", slices.Concat(bySide[true], bySide[false]), follow())
	check("below the middle", bySide[true], follow("x-ms-start-epk", "", "x-ms-end-epk", middle.Hex()))
	check("above the middle", bySide[false], follow("x-ms-start-epk", middle.Hex(), "x-ms-end-epk", "FF", "x-ms-read-key-type", "EffectivePartitionKeyRange"))
	check("a key", []string{"3", "23"}, follow(keyHeader, `["k3"]`))
	other := otherRange(t, "k3", bounds)
	check("a key in a range that does not hold it", nil, follow(keyHeader, `["k3"]`, rangeHeader, other))
	// What one range answered is not of another.
	place := w.changes(rangeHeader, other).place()
	w.changes(keyHeader, `["k3"]`, "If-None-Match", place).is(400)
}

func TestChangeFeed_AllVersionsAndDeletes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", `{"partitionKey":{"paths":["/tenant","/user/name"],"kind":"MultiHash","version":2},"defaultTtl":-1}`)
	place := w.changes("A-IM", allVersions, "If-None-Match", "*").nothing()
	const key = `["t",7]`
	write := func(body string) {
		t.Helper()
		if a := w.ask("POST", docs, body, keyHeader, key, upsert, "true"); a.status >= 300 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	write(`{"id":"1","tenant":"t","user":{"name":7},"n":1}`)
	write(`{"id":"1","tenant":"t","user":{"name":7},"n":2}`)
	w.ask("DELETE", docs+"/1", "", keyHeader, key).is(204)
	write(`{"id":"2","tenant":"t","user":{"name":7},"ttl":1}`)
	type change struct {
		Current  map[string]any
		Metadata struct {
			OperationType, ID string
			LSN, CRTS         int64
			PreviousImageLSN  int64
			TimeToLiveExpired bool
			PartitionKey      map[string]any
		}
	}
	var got []change
	poll.Until(t, func() error {
		a := w.changes("A-IM", allVersions, "If-None-Match", place, "x-ms-cosmos-changefeed-wire-format-version", "2021-09-15")
		place = a.place()
		if a.status == 200 {
			var page struct{ Documents []change }
			a.into(&page)
			got = append(got, page.Documents...)
		}
		return poll.Unless(len(got) >= 5, fmt.Sprintf("the feed ends at %+v", got))
	})
	var kinds []string
	for i, c := range got {
		kinds = append(kinds, fmt.Sprintf("%s %v %t", c.Metadata.OperationType, c.Current["n"], c.Metadata.TimeToLiveExpired))
		if m := c.Metadata; m.LSN == 0 || m.CRTS < 1_600_000_000 || i > 0 && m.LSN <= got[i-1].Metadata.LSN {
			t.Errorf("change %d: %+v", i, m)
		}
		gone := c.Metadata.OperationType == "delete"
		if gone != (c.Metadata.ID != "") || gone != (len(c.Metadata.PartitionKey) == 2) || gone != (len(c.Current) == 0) {
			t.Errorf("change %d: %+v", i, c)
		}
		if !gone && (c.Current["_etag"] == nil || fmt.Sprint(c.Current["_lsn"]) != fmt.Sprint(c.Metadata.LSN)) {
			t.Errorf("change %d shows %v", i, c.Current)
		}
	}
	if want := []string{"create 1 false", "replace 2 false", "delete <nil> false", "create <nil> false", "delete <nil> true"}; !slices.Equal(want, kinds) {
		t.Fatalf("changes %q, want %q", kinds, want)
	}
	if got[1].Metadata.PreviousImageLSN != got[0].Metadata.LSN || got[2].Metadata.PreviousImageLSN != got[1].Metadata.LSN || got[0].Metadata.PreviousImageLSN != 0 {
		t.Errorf("the previous images are %+v", got)
	}
	if m := got[2].Metadata; m.ID != "1" || fmt.Sprint(m.PartitionKey) != "map[tenant:t user/name:7]" {
		t.Errorf("a delete is told as %+v", m)
	}
}

// A feed goes on while nothing owns its partitions: an empty one says so, and what
// needs an owner is 503 and soon.
func TestChangeFeed_WithoutOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{RequestTimeout: 5 * time.Second})
	w.container("things", byPK)
	w.put("a", "1")
	w.changes().is(200)
	now := w.changes("If-None-Match", "*").nothing()
	w.stopOwners()
	w.changes("If-None-Match", now).nothing()
	w.changes().is(503)
}

// TestChangeFeed_TrimmedIsGone: who asks for what was trimmed in the mode of all versions gets
// 410 with the first LSN that is kept; no substatus makes a client come back for the same.
func TestChangeFeed_TrimmedIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	early := w.changes("A-IM", allVersions).nothing()
	for i := range 6 {
		w.put("a", fmt.Sprint(i))
	}
	info, err := w.catalog.Get(t.Context(), "shop", "things")
	if err != nil {
		t.Fatal(err)
	}
	p := feed.Partition{Container: info.ID, Number: 0}
	w.stopOwners()
	log, err := feed.OpenLog(t.Context(), w.js, p, feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	_, last, err := log.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before, err := log.Read(t.Context(), last)
	if err != nil {
		t.Fatal(err)
	}
	c := &feed.Commit{ID: feed.NewCommitID(), Log: log.ID(), Prev: before.Sum, Epoch: before.Epoch, Time: before.Time, Trimmed: last - 1}
	if _, err := log.Append(t.Context(), last, c.ID, feed.AppendCommit(nil, c)); err != nil {
		t.Fatal(err)
	}
	if _, err := log.Trim(t.Context(), last-1); err != nil {
		t.Fatal(err)
	}
	for name, with := range map[string][]string{
		"all versions, from a place": {"A-IM", allVersions, "If-None-Match", early},
		"all versions":               {"A-IM", allVersions},
	} {
		a := w.changes(with...).is(410)
		if sub := a.header.Get("x-ms-substatus"); sub != "" && sub != "0" {
			t.Errorf("%s: substatus %s", name, sub)
		}
		for _, want := range []string{fmt.Sprintf("begins at LSN %d", last), "begin anew, with the items"} {
			if !strings.Contains(string(a.body), want) {
				t.Errorf("%s: %s", name, a.body)
			}
		}
	}
}
