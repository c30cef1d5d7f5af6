package sdk_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// query returns the results of a query, page by page; an empty key asks all
// partitions.
func query(t *testing.T, c *azcosmos.ContainerClient, key azcosmos.PartitionKey, text string, pageSize int, parameters ...azcosmos.QueryParameter) [][]byte {
	t.Helper()
	var results [][]byte
	o := &azcosmos.QueryOptions{PageSizeHint: int32(pageSize), QueryParameters: parameters}
	for pager := c.NewQueryItemsPager(text, key, o); pager.More(); {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if pageSize > 0 && len(page.Items) > pageSize {
			t.Errorf("%s: a page of %d results, %d at most were asked for", text, len(page.Items), pageSize)
		}
		results = append(results, page.Items...)
	}
	return results
}

// queryCases are the items and queries that both SDKs are asked.
type queryCases struct {
	Items []json.RawMessage
	Cases []struct {
		Name       string
		Query      string
		Parameters map[string]any
		Key        *string
		Ordered    bool
		Want       []any
	}
}

// TestGo_Queries asks the queries of testdata/queries.json, whose results were
// worked out by other means.
func TestGo_Queries(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "queries.json"))
	must(t, err)
	var cases queryCases
	must(t, json.Unmarshal(data, &cases))
	c := container(t, database(t), azcosmos.ContainerProperties{}, "/pk")
	for _, item := range cases.Items {
		_, err := c.CreateItem(t.Context(), pk(parse(t, item)["pk"]), item, nil)
		must(t, err)
	}
	for _, test := range cases.Cases {
		for _, pageSize := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s/page=%d", test.Name, pageSize), func(t *testing.T) {
				var parameters []azcosmos.QueryParameter
				for name, value := range test.Parameters {
					parameters = append(parameters, azcosmos.QueryParameter{Name: name, Value: value})
				}
				key := azcosmos.NewPartitionKey()
				if test.Key != nil {
					key = pk(*test.Key)
				}
				var got []any
				for _, result := range query(t, c, key, test.Query, pageSize, parameters...) {
					var v any
					must(t, json.Unmarshal(result, &v))
					got = append(got, v)
				}
				if a, b := canonical(t, test.Want, test.Ordered), canonical(t, got, test.Ordered); a != b {
					t.Errorf("%s\nwant %s\ngot  %s", test.Query, a, b)
				}
			})
		}
	}
}

// canonical prints results so that equal ones print alike, sorted unless they are
// ordered.
func canonical(t *testing.T, results []any, ordered bool) string {
	t.Helper()
	lines := make([]string, len(results))
	for i, r := range results {
		var b bytes.Buffer
		enc := json.NewEncoder(&b) // sorts members
		enc.SetEscapeHTML(false)
		must(t, enc.Encode(r))
		lines[i] = strings.TrimSpace(b.String())
	}
	if !ordered {
		slices.Sort(lines)
	}
	return strings.Join(lines, " ")
}

// Who switches queries over partition keys off has them refused, and is told what the others took.
func TestGo_QueryAcrossKeysSwitchedOff(t *testing.T) {
	c := container(t, database(t), azcosmos.ContainerProperties{}, "/pk")
	_, err := c.CreateItem(t.Context(), pk("a"), object{"id": "1", "pk": "a"}.json(), nil)
	must(t, err)
	off := false
	for text, status := range map[string]int{"SELECT * FROM c": http.StatusBadRequest, "SELECT * FROM c WHERE c.pk = 'a'": 0} {
		page, err := c.NewQueryItemsPager(text, azcosmos.NewPartitionKey(), &azcosmos.QueryOptions{EnableCrossPartitionQuery: &off}).NextPage(t.Context())
		if status != 0 {
			refused(t, err, status)
			continue
		}
		must(t, err)
		if page.QueryMetrics == nil || !strings.Contains(*page.QueryMetrics, "outputDocumentCount=1;") {
			t.Errorf("%s: metrics %v", text, page.QueryMetrics)
		}
	}
}

// A continuation is good in another client, after writes, and for its query alone.
func TestGo_QueryContinuation(t *testing.T) {
	s, err := shared()
	must(t, err)
	db := s.database(t)
	c := container(t, db, azcosmos.ContainerProperties{}, "/pk")
	const n = 40
	for i := range n {
		_, err := c.CreateItem(t.Context(), pk(fmt.Sprint(i%7)), object{"id": fmt.Sprintf("%03d", i), "pk": fmt.Sprint(i % 7), "n": i % 5}.json(), nil)
		must(t, err)
	}
	for _, text := range []string{"SELECT VALUE c.id FROM c", "SELECT VALUE c.id FROM c ORDER BY c.id DESC", "SELECT VALUE c.id FROM c ORDER BY c.n"} {
		t.Run(text, func(t *testing.T) {
			seen := map[string]int{}
			var token *string
			for page := 0; page == 0 || token != nil; page++ {
				again, err := s.client(t, masterKey, nil).NewContainer(db.ID(), "items")
				must(t, err)
				resp, err := again.NewQueryItemsPager(text, azcosmos.NewPartitionKey(), &azcosmos.QueryOptions{PageSizeHint: 7, ContinuationToken: token}).NextPage(t.Context())
				must(t, err)
				for _, id := range resp.Items {
					seen[strings.Trim(string(id), `"`)]++
				}
				if token = resp.ContinuationToken; token != nil && len(*token) > 1024 {
					t.Errorf("a continuation of %d bytes", len(*token))
				}
				// What is written meanwhile moves nothing else.
				_, err = c.UpsertItem(t.Context(), pk("w"), object{"id": fmt.Sprint("w", page), "pk": "w", "n": page % 5}.json(), nil)
				must(t, err)
			}
			for i := range n {
				if id := fmt.Sprintf("%03d", i); seen[id] != 1 {
					t.Errorf("item %s came %d times", id, seen[id])
				}
			}
		})
	}
	resp, err := c.NewQueryItemsPager("SELECT * FROM c", azcosmos.NewPartitionKey(), &azcosmos.QueryOptions{PageSizeHint: 3}).NextPage(t.Context())
	must(t, err)
	if resp.ContinuationToken == nil {
		t.Fatal("no continuation after 3 of many")
	}
	_, err = c.NewQueryItemsPager("SELECT c.id FROM c", azcosmos.NewPartitionKey(), &azcosmos.QueryOptions{ContinuationToken: resp.ContinuationToken}).NextPage(t.Context())
	refused(t, err, http.StatusBadRequest)
	bad := "no token"
	_, err = c.NewQueryItemsPager("SELECT * FROM c", azcosmos.NewPartitionKey(), &azcosmos.QueryOptions{ContinuationToken: &bad}).NextPage(t.Context())
	refused(t, err, http.StatusBadRequest)
}

func TestGo_ReadMany(t *testing.T) {
	c := container(t, database(t), azcosmos.ContainerProperties{}, "/pk")
	values := []any{"a", "b", "Zoë", 1, -1.5, true, nil, ""}
	var ids []azcosmos.ItemIdentity
	for i := range 40 {
		value := values[i%len(values)]
		id := fmt.Sprint("i", i)
		_, err := c.CreateItem(t.Context(), pk(value), object{"id": id, "pk": value}.json(), nil)
		must(t, err)
		if i%2 == 0 {
			ids = append(ids, azcosmos.ItemIdentity{ID: id, PartitionKey: pk(value)})
		}
	}
	found := map[string]bool{}
	got, err := c.ReadManyItems(t.Context(), append(ids, azcosmos.ItemIdentity{ID: "none", PartitionKey: pk("a")}), nil)
	must(t, err)
	for _, item := range got.Items {
		found[parse(t, item)["id"].(string)] = true
	}
	for _, id := range ids {
		if !found[id.ID] {
			t.Errorf("item %s of %v is not among what was read", id.ID, id.PartitionKey)
		}
	}
	if len(got.Items) != len(ids) || math.IsNaN(float64(got.RequestCharge)) {
		t.Errorf("%d items were read, want %d", len(got.Items), len(ids))
	}
	ranges, err := c.ReadFeedRanges(t.Context(), nil)
	must(t, err)
	if len(ranges) != partitions || ranges[0].MinInclusive != "" || ranges[len(ranges)-1].MaxExclusive != "FF" {
		t.Errorf("the feed ranges are %v", ranges)
	}
}
