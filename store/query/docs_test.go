package query_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/query"
)

const docsPath = "../../docs/sql.md"

// blocks returns the fenced blocks of a page with their languages.
func blocks(t *testing.T, page string) [][2]string {
	t.Helper()
	var list [][2]string
	for _, m := range regexp.MustCompile("(?s)```([a-z]+)\n(.*?)```").FindAllStringSubmatch(page, -1) {
		list = append(list, [2]string{m[1], m[2]})
	}
	return list
}

// The examples of docs/sql.md give what they say: its first block are the items, and
// every query is followed by its rows, or by the error.
func TestDocs_Examples(t *testing.T) {
	page, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	list := blocks(t, string(page))
	if len(list) < 3 || list[0][0] != "json" {
		t.Fatal("the page has no items")
	}
	items := strings.Split(strings.TrimSpace(list[0][1]), "\n")
	list = list[1:]
	for ; len(list) > 1; list = list[2:] {
		text, want := list[0][1], strings.TrimSpace(list[1][1])
		if list[0][0] != "sql" || list[1][0] != "json" && list[1][0] != "text" {
			t.Fatalf("no query with its rows: %s%s", text, want)
		}
		q, err := query.ParseQuery(text)
		if list[1][0] == "text" {
			if err == nil || err.Error() != want {
				t.Errorf("%s: %v, want %s", text, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var lines []string
		for _, row := range ask(t, q, items) {
			lines = append(lines, plainRow(t, row))
		}
		for i, line := range strings.Split(want, "\n") {
			if i >= len(lines) || plainRow(t, line) != lines[i] {
				t.Errorf("%s gives\n%s\nwant\n%s", text, strings.Join(lines, "\n"), want)
				break
			}
		}
		if n := len(strings.Split(want, "\n")); n < len(lines) {
			t.Errorf("%s gives %d rows, want %d", text, len(lines), n)
		}
	}
	if len(list) != 0 {
		t.Errorf("a query without rows: %s", list[0][1])
	}
}

// plainRow writes a row without spaces.
func plainRow(t *testing.T, row string) string {
	t.Helper()
	var out json.RawMessage
	if err := json.Unmarshal([]byte(row), &out); err != nil {
		t.Fatalf("%s: %v", row, err)
	}
	b, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// docs/sql.md names all functions, and all that are refused.
func TestDocs_Functions(t *testing.T) {
	page, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	for heading, want := range map[string][]string{"## Functions": query.FunctionNames(), "## Functions that are refused": query.RefusedNames()} {
		_, section, ok := strings.Cut(string(page), heading+"\n")
		if !ok {
			t.Fatalf("the page has no %s", heading)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		var got []string
		for _, m := range regexp.MustCompile("`([A-Za-z0-9_]+)`").FindAllStringSubmatch(section, -1) {
			got = append(got, strings.ToUpper(m[1]))
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", heading, diff)
		}
	}
}
