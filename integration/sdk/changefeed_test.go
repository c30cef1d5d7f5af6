package sdk_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// everything is the feed range of a whole container.
var everything = &azcosmos.FeedRange{MinInclusive: "", MaxExclusive: "FF"}

// follower reads a change feed and keeps its place.
type follower struct {
	t *testing.T
	c *azcosmos.ContainerClient
	o azcosmos.ChangeFeedOptions
}

func follow(t *testing.T, c *azcosmos.ContainerClient, o azcosmos.ChangeFeedOptions) *follower {
	t.Helper()
	if o.FeedRange == nil {
		o.FeedRange = everything
	}
	return &follower{t, c, o}
}

// page reads a page; it is empty if nothing is new.
func (f *follower) page() []object {
	f.t.Helper()
	resp, err := f.c.ReadChangeFeed(f.t.Context(), &f.o)
	must(f.t, err)
	if resp.ContinuationToken == "" {
		f.t.Fatalf("a page without a continuation: %+v", resp)
	}
	if len(resp.Items) == 0 && resp.RawResponse.StatusCode != http.StatusNotModified {
		f.t.Errorf("nothing new is answered with %d", resp.RawResponse.StatusCode)
	}
	f.o.Continuation = &resp.ContinuationToken
	var items []object
	for _, item := range resp.Items {
		items = append(items, parse(f.t, item))
	}
	return items
}

// rest reads until nothing is new and prints what came, sorted.
func (f *follower) rest() string {
	f.t.Helper()
	var all []string
	for {
		page := f.page()
		if len(page) == 0 {
			slices.Sort(all)
			return strings.Join(all, " ")
		}
		for _, o := range page {
			all = append(all, fmt.Sprintf("%v=%v", o["id"], o["n"]))
			if o["_lsn"] == nil || o["_etag"] == nil {
				f.t.Errorf("a change without _lsn or _etag: %v", o)
			}
		}
	}
}

func TestGo_ChangeFeed(t *testing.T) {
	c := container(t, database(t), azcosmos.ContainerProperties{}, "/pk")
	ctx := t.Context()
	put := func(key, id string, n int) {
		t.Helper()
		_, err := c.UpsertItem(ctx, pk(key), object{"id": id, "pk": key, "n": n}.json(), nil)
		must(t, err)
	}
	want := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	f := follow(t, c, azcosmos.ChangeFeedOptions{})
	want("an empty container", f.rest(), "")
	put("a", "1", 1)
	put("b", "2", 1)
	put("c", "3", 1)
	put("a", "1", 2)
	want("each item once", f.rest(), "1=2 2=1 3=1")
	want("nothing new", f.rest(), "")
	put("b", "2", 2)
	put("d", "4", 1)
	_, err := c.DeleteItem(ctx, pk("c"), "3", nil)
	must(t, err)
	want("what is new", f.rest(), "2=2 4=1")
	want("from the beginning, without what is deleted", follow(t, c, azcosmos.ChangeFeedOptions{}).rest(), "1=2 2=2 4=1")
	key := pk("b")
	want("one key", follow(t, c, azcosmos.ChangeFeedOptions{PartitionKey: &key, FeedRange: everything}).rest(), "2=2")

	hourAgo, ahead := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	want("from an hour ago", follow(t, c, azcosmos.ChangeFeedOptions{StartFrom: &hourAgo}).rest(), "1=2 2=2 4=1")
	late := follow(t, c, azcosmos.ChangeFeedOptions{StartFrom: &ahead})
	want("from an hour ahead", late.rest(), "")
	put("e", "5", 1)
	want("and on from there", late.rest(), "5=1")

	ranges, err := c.ReadFeedRanges(ctx, nil)
	must(t, err)
	var all []string
	for _, r := range ranges {
		if part := follow(t, c, azcosmos.ChangeFeedOptions{FeedRange: &r, MaxItemCount: 1}).rest(); part != "" {
			all = append(all, strings.Fields(part)...)
		}
	}
	slices.Sort(all)
	want("range by range, in pages of one", strings.Join(all, " "), "1=2 2=2 4=1 5=1")

	bad := `{"version":1,"resourceId":"","continuation":[{"minInclusive":"","maxExclusive":"FF","continuationToken":"\"nonsense\""}]}`
	_, err = c.ReadChangeFeed(ctx, &azcosmos.ChangeFeedOptions{Continuation: &bad})
	refused(t, err, http.StatusBadRequest)
}

// A batch comes in one page, however small the pages are.
func TestGo_ChangeFeedKeepsBatchesWhole(t *testing.T) {
	c := container(t, database(t), azcosmos.ContainerProperties{}, "/pk")
	f := follow(t, c, azcosmos.ChangeFeedOptions{MaxItemCount: 1})
	sizes := []int{3, 1, 5, 2}
	for i, n := range sizes {
		b := c.NewTransactionalBatch(pk("a"))
		for j := range n {
			b.UpsertItem(object{"id": fmt.Sprintf("%d-%d", i, j), "pk": "a"}.json(), nil)
		}
		resp, err := c.ExecuteTransactionalBatch(t.Context(), b, nil)
		must(t, err)
		if !resp.Success {
			t.Fatalf("batch %d: %+v", i, resp.OperationResults)
		}
	}
	for i, n := range sizes {
		page := f.page()
		if len(page) != n {
			t.Fatalf("page %d has %d items, the batch %d", i, len(page), n)
		}
		for j, o := range page {
			if o["id"] != fmt.Sprintf("%d-%d", i, j) || o["_lsn"] != page[0]["_lsn"] {
				t.Errorf("item %d of batch %d is %v at %v", j, i, o["id"], o["_lsn"])
			}
		}
	}
	if rest := f.page(); len(rest) != 0 {
		t.Errorf("and then %v", rest)
	}
}
