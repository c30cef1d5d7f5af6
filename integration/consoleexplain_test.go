package integration_test

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store"
)

const shelves = `apiVersion: millrace/v1
kind: Container
metadata: {name: shelf}
spec:
  partitionKey: [/room]
  partitions: 2
  indexes: [/weight]
`

// TestConsole_Explain holds what a page tells of a query equal to what the command prints, and
// what was read to what the store says.
func TestConsole_Explain(t *testing.T) {
	t.Parallel()
	at, _, server, keys := consoled(t)
	file := filepath.Join(t.TempDir(), "shelf.yaml")
	writeFile(t, file, shelves)
	mustRun(t, server, "apply", "-f", file)
	var items strings.Builder
	for i := range 40 {
		fmt.Fprintf(&items, `{"id": "s%02d", "room": "r%d", "weight": %d}`+"\n", i, i%8, i)
	}
	if out, errs, exit := command(t, items.String(), nil, "import", "shelf", "-", "--server", server); exit != 0 {
		t.Fatalf("import: exit %d\n%s%s", exit, out, errs)
	}
	b := newBrowser(t, at)
	b.signIn(keys.SecondaryReadOnly)

	const text = `SELECT TOP 5 c.id FROM c WHERE c.weight >= 10 AND c.weight < 30 AND c.room != "r0" ORDER BY c.weight DESC`
	address := "/query?container=default%2Fshelf&q=" + url.QueryEscape(text)
	var printed, shown any
	decode(t, mustRun(t, server, "query", text, "-c", "shelf", "--explain", "-o", "json"), &printed)
	decode(t, b.sees(address+"&explain=1&o=json"), &shown)
	differ(t, "a query that is explained", printed, shown)
	steps := func(v any) (lines []string) {
		for _, s := range v.(map[string]any)["steps"].([]any) {
			s := s.(map[string]any)
			lines = append(lines, strings.TrimSpace(fmt.Sprint(s["step"], ": ", s["does"])))
			ranges, _ := s["ranges"].([]any)
			for _, r := range ranges {
				lines = append(lines, fmt.Sprint("  ", r))
			}
		}
		return lines
	}
	want := []string{
		"reach: index /weight, descending: it has the order of ORDER BY and the range of the condition",
		"  /weight >= 10", "  /weight < 30",
		`test: of every item: c.weight >= 10 AND c.weight < 30 AND c.room != "r0"`,
		"sort: by c.weight DESC: not needed, the index has the order",
		"merge: of 2 partitions: by the keys of rows",
		"window: the first 5 rows",
	}
	if diff := cmp.Diff(want, steps(printed)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	b.sees(address+"&explain=1", "How it would be answered", "<code>/weight &gt;= 10</code>", "<strong>test</strong>", "Nothing was read")

	if status, page := b.do(b.request(http.MethodGet, address+"&explain=1&o=csv", nil)); status != http.StatusBadRequest || !strings.Contains(page, "o=json") {
		t.Errorf("an explanation as CSV: %d\n%s", status, page)
	}

	page, err := open(t, dial(t, server), "shelf").Query(t.Context(), store.QueryRequest{Text: text})
	if err != nil {
		t.Fatal(err)
	}
	m := page.Metrics
	if m.Items == 0 || m.Entries == 0 {
		t.Fatalf("nothing was read: %+v", m)
	}
	b.sees(address, "How it was answered", "5 rows;",
		fmt.Sprintf(`<tr><td class="number">%d</td><td class="number">%d</td><td class="number">%d</td><td class="number">5</td>`, m.Entries, m.Items, m.Bytes))

	// A scan is told as one, with the index that would have served.
	const scan = `SELECT c.room, COUNT(1) AS n FROM c WHERE c.colour = "red" GROUP BY c.room`
	b.sees("/query?container=default%2Fshelf&explain=1&q="+url.QueryEscape(scan), "scan of all items", "an index on /colour would", "by c.room", "what each knows of a group")
}
