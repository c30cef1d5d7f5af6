package pgsink

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
)

const (
	// identifierMax is how many bytes PostgreSQL keeps of a name: NAMEDATALEN - 1.
	identifierMax = 63
	// ownPrefix begins the names of the sink's own tables.
	ownPrefix = "millrace_"
	// rejectsSuffix ends the name of the table of a table's rejects.
	rejectsSuffix = "_rejects"
)

// systemColumns are names that no column of a table can have.
var systemColumns = []string{"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid", project.SourceColumn, project.ElementColumn}

// columnNames returns names that PostgreSQL can hold, each different, for columns.
// Those that it can hold stay as they are, and so do those that known has mapped
// before.
func columnNames(columns []project.ColumnSchema, known map[string]string) []string {
	taken := map[string]bool{}
	for _, name := range systemColumns {
		taken[name] = true
	}
	for _, name := range known {
		taken[name] = true
	}
	mapped := make([]string, len(columns))
	// Names that are good as they are have precedence over those that are not.
	for i := range columns {
		name := columns[i].Name
		if mapped[i] = known[name]; mapped[i] == "" && len(name) <= identifierMax && !taken[name] {
			mapped[i], taken[name] = name, true
		}
	}
	for i := range columns {
		if mapped[i] == "" {
			mapped[i] = mappedName(columns[i].Name, "", func(name string) bool { return taken[name] })
			taken[mapped[i]] = true
		}
	}
	return mapped
}

// relationName returns a name for a table, with a suffix; it is name and suffix
// where PostgreSQL can hold that.
func relationName(name, suffix string, taken func(string) bool) string {
	if whole := name + suffix; len(whole) <= identifierMax && !strings.HasPrefix(whole, ownPrefix) && !taken(whole) {
		return whole
	}
	return mappedName(name, suffix, taken)
}

// mappedName returns a name of at most identifierMax bytes that begins as name does,
// tells by a hash from which name it was made, ends with suffix, and is not taken.
func mappedName(name, suffix string, taken func(string) bool) string {
	for attempt := 0; ; attempt++ {
		h := fnv.New32a()
		_, _ = fmt.Fprintf(h, "%s/%d", name, attempt)
		tail := fmt.Sprintf("_%08x%s", h.Sum32(), suffix)
		head := name
		if strings.HasPrefix(head, ownPrefix) {
			head = "_" + head
		}
		cut := min(len(head), identifierMax-len(tail))
		for !utf8.ValidString(head[:cut]) {
			cut--
		}
		if mapped := head[:cut] + tail; !taken(mapped) {
			return mapped
		}
	}
}

// quoteName quotes an identifier.
func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// quoteNames quotes identifiers and joins them by commas, with something before
// each.
func quoteNames(before string, names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = before + quoteName(name)
	}
	return strings.Join(quoted, ", ")
}

// literal quotes a string for a statement; conns sees to it that a backslash means
// nothing. A string cannot hold U+0000.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// elementsAt returns the elements of list at some indexes.
func elementsAt[T any](list []T, indexes []int) []T {
	out := make([]T, len(indexes))
	for i, index := range indexes {
		out[i] = list[index]
	}
	return out
}

// sourceText writes Row.Source as PostgreSQL can hold it: an id may hold U+0000,
// and never a backslash, so that \u0000 can stand for it.
func sourceText(source string) string {
	if strings.IndexByte(source, 0) < 0 {
		return source
	}
	return strings.ReplaceAll(source, "\x00", `\u0000`)
}

// sourceOf reads what sourceText wrote. The partition key before the id is JSON, in
// which \u0000 stays what it is.
func sourceOf(text string) string {
	begin := strings.IndexByte(text, '/') + 1 // of the key: no name of a container has a slash
	at := begin + feed.PartitionKeyEnd(text[begin:])
	if at < begin || !strings.Contains(text[at:], `\u0000`) {
		return text
	}
	return text[:at] + strings.ReplaceAll(text[at:], `\u0000`, "\x00")
}

// columnsOf returns the names of some columns of a table.
func columnsOf(t *project.TableSchema, indexes []int) []string {
	names := make([]string, len(indexes))
	for i, c := range elementsAt(t.Columns, indexes) {
		names[i] = c.Name
	}
	return slices.Clip(names)
}
