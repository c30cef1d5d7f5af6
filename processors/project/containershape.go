package project

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// shape says how rows of a table are items of a container.
type shape struct {
	table     *TableSchema
	container *store.Container
	id        []int // indexes in Key of the columns that make the id
	column    bool  // the id is the column named id
}

// shapeOf returns the shape of a table in a container. The error says why there is
// none.
func shapeOf(t *TableSchema, c *store.Container) (*shape, error) {
	if c == nil {
		return nil, fmt.Errorf("table %s has no container", t.Name)
	}
	if problems := checkShape(t, c); len(problems) > 0 {
		return nil, fmt.Errorf("%s", problems[0])
	}
	sh := &shape{table: t, container: c}
	// The partition key is in the item anyway: the id needs the other columns of the key
	// alone. If there are none, as for one row a logical partition, it repeats the key.
	for i, column := range t.Key {
		if !slices.Contains(c.Info().Spec.PartitionKey, pointerOf(t.Columns[column].Name)) || t.Columns[column].Name == "id" {
			sh.id = append(sh.id, i)
		}
	}
	if len(sh.id) == 0 {
		for i := range t.Key {
			sh.id = append(sh.id, i)
		}
	}
	sh.column = t.Column("id") >= 0
	return sh, nil
}

// checkShape returns what keeps a table from being kept in a container.
func checkShape(t *TableSchema, c *store.Container) []Problem {
	var problems []Problem
	at := "project.tables." + t.Name
	bad := func(field, format string, args ...any) {
		problems = append(problems, Problem{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	inKey := func(pointer string) bool {
		return slices.ContainsFunc(t.Key, func(i int) bool { return pointerOf(t.Columns[i].Name) == pointer })
	}
	paths := c.Info().Spec.PartitionKey
	var others []string // of the key, beside the partition key
	for _, i := range t.Key {
		if name := t.Columns[i].Name; name == "id" || !slices.Contains(paths, pointerOf(name)) {
			others = append(others, name)
		}
	}
	for _, path := range paths {
		if path != "/id" && !inKey(path) {
			bad(at+".key", "does not hold the partition key of container %s, %s: a row is found by its key alone; make a column %s and name it in key",
				c.Info().Name, path, path[1:])
		}
	}
	for _, name := range systemMembers {
		if t.Column(name) >= 0 {
			bad(at+".columns."+name, "is a property that the store gives to items; choose another name")
		}
	}
	if i := t.Column("id"); i >= 0 {
		kind := t.Columns[i].Type.Kind
		if len(others) != 1 || others[0] != "id" {
			bad(at+".columns.id", "is the item's id, which is made of the columns of key beside the partition key; give the column another name, or let key be [%s]", keyHint(paths))
		} else if kind != KindAny && kind != KindString {
			bad(at+".columns.id.type", "is %s; the id of an item is a string", t.Columns[i].Type)
		}
	}
	return problems
}

// systemMembers are what the store adds to the items that it answers.
var systemMembers = []string{"_rid", "_self", "_etag", "_ts", "_attachments", "_lsn"}

// keyHint is the key of a container whose items are found by partition key and id.
func keyHint(paths []string) string {
	var names []string
	for _, path := range paths {
		if path != "/id" {
			names = append(names, path[1:])
		}
	}
	return strings.Join(append(names, "id"), ", ")
}

// pointerOf returns the JSON pointer of a member.
func pointerOf(name string) string { return document.Path{{Name: name}}.Pointer() }

// ref returns the item that has the row with a key. The error says why there can
// be none.
func (sh *shape) ref(key []Value) (store.ItemRef, error) {
	id := sh.idOf(key)
	// Rows that had such keys before are rejects, and stay what they are.
	if err := document.CheckPlainID(id); err != nil {
		return store.ItemRef{}, fmt.Errorf("the key cannot be the id of an item: %w", err)
	}
	// The store reads a partition key from an item, so one is made of the key columns alone.
	// A row that goes has no other values.
	body := append([]byte(`{"id":`), document.AppendQuote(nil, id)...)
	for i, column := range sh.table.Key {
		if name := sh.table.Columns[column].Name; name != "id" {
			body = append(document.AppendQuote(append(body, ','), name), ':')
			body = key[i].AppendJSON(body)
		}
	}
	partitionKey, err := sh.container.KeyOf(append(body, '}'))
	if err != nil {
		return store.ItemRef{}, fmt.Errorf("the key cannot be a partition key: %w", err)
	}
	return store.ItemRef{Key: partitionKey, ID: id}, nil
}

// idOf returns the id of the row with a key: the column id as it is, else the
// other columns joined by |, with ~XX for what an id cannot hold.
func (sh *shape) idOf(key []Value) string {
	if sh.column {
		return key[sh.id[0]].Text()
	}
	var id []byte
	for n, i := range sh.id {
		if n > 0 {
			id = append(id, '|')
		}
		id = appendID(id, key[i].String())
	}
	return string(id)
}

// appendID appends a text to an id, escaped so that different texts stay
// different and are ids.
func appendID(dst []byte, text string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(text) {
		switch c := text[i]; c {
		case '/', '\\', '?', '#', '|', '~':
			dst = append(dst, '~', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// body returns the item of a row.
func (sh *shape) body(r *Row) []byte {
	body := append([]byte(`{"id":`), document.AppendQuote(nil, sh.idOf(r.Key))...)
	for i, v := range r.Values {
		if name := sh.table.Columns[i].Name; name != "id" && !v.IsNull() {
			body = append(document.AppendQuote(append(body, ','), name), ':')
			body = v.AppendJSON(body)
		}
	}
	body = append(body, `,"`+SourceColumn+`":`...)
	body = document.AppendQuote(body, r.Source)
	if r.Element != "" {
		body = append(body, `,"`+ElementColumn+`":`...)
		body = document.AppendQuote(body, r.Element)
	}
	return append(body, '}')
}

// row returns the row that an item is; ok is false if it is none.
func (sh *shape) row(table int, item *store.Item) (r Row, ok bool, err error) {
	source, ok := textAt(item.Body, SourceColumn)
	if !ok {
		return r, false, nil
	}
	values, err := sh.table.ParseRow(item.Body)
	if err != nil {
		return r, false, fmt.Errorf("item %s: %w", item.ID, err)
	}
	element, _ := textAt(item.Body, ElementColumn)
	return Row{Table: table, Key: sh.table.KeyOf(values), Values: values, Source: source, Element: element}, true, nil
}

// pendingReject returns the reject of a pending row.
func (sh *shape) pendingReject(table int, c *store.PendingRow) (Reject, error) {
	values, err := sh.table.ParseRow(c.Body)
	if err != nil {
		return Reject{}, fmt.Errorf("pending row of %s: %w", c.Source, err)
	}
	element, _ := textAt(c.Body, ElementColumn)
	return Reject{
		Table: table, Key: sh.table.KeyOf(values), Source: c.Source, Element: element, Reason: HeldBy("another item"),
		Row: sh.table.AppendRow(nil, values),
	}, nil
}

// textAt returns a member that is a string.
func textAt(body []byte, name string) (string, bool) {
	raw, ok := document.Get(body, document.Path{{Name: name}})
	if !ok {
		return "", false
	}
	return document.Text(raw)
}
