package pgsink

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/processors/project"
)

// Columns that every table has beside the declared ones, quoted.
const (
	sourceName  = `"` + project.SourceColumn + `"`
	elementName = `"` + project.ElementColumn + `"`
)

// statements are those of one table. Their parameters are arrays with an element
// for each row.
type statements struct {
	// upsert writes rows of (columns..., source, element). A row of another source
	// stays as it is, and is locked all the same.
	upsert string
	// holders returns, for rows of (key..., source) the index, from 1, of those whose
	// key another source holds, and that source.
	holders string
	// drop removes rows of (key..., source).
	drop string
	// promotable returns, of (key..., hash of key), the hashes of keys that no row has
	// and for which rows are pending.
	promotable string
	// pending returns of each (hash of key) the pending row that is next: id, hash of key,
	// source, element, row and key. There may be very many more.
	pending string
	// updateReasons sets the reasons of the pending rows of (hash of key) to (reason), where they differ.
	updateReasons string
	// removeRejects removes rejects by (id) and returns the ids of those that were there.
	removeRejects string
	// writeRejects writes rejects of (id, kind, source, element, column, reason, key, hash
	// of key, row).
	writeRejects string
	// present returns whether there are pending rows and whether there is anything refused.
	present string
}

func newStatements(target *tableTarget) statements {
	// Made once for a layout: the texts depend on names and types alone, and rows come as
	// arrays, one for each column, so one statement takes any number of rows.
	keys := elementsAt(target.columns, target.Key)
	types := make([]string, len(target.columns))
	for i := range target.Columns {
		types[i] = typeOf(target.Columns[i].Type).array
	}
	keyTypes := elementsAt(types, target.Key)
	names := make([]string, len(keys)) // of the key's columns in unnest
	same := make([]string, len(keys))
	for i := range keys {
		names[i] = fmt.Sprintf("k%d", i+1)
		same[i] = fmt.Sprintf("t.%s = u.k%d", quoteName(keys[i]), i+1)
	}
	match := strings.Join(same, " and ")
	keyed := func(more ...string) string { // the rows of the parameters, under their names
		return unnest(append(slices.Clone(keyTypes), more...)...)
	}
	list := strings.Join(names, ", ")
	return statements{
		upsert: "insert into " + target.name + " as t (" + quoteNames("", target.columns) + ", " + sourceName + ", " + elementName + ") select " +
			streamed(append(types, "text[]", "text[]")) + " on conflict (" + quoteNames("", keys) + ") do update set " +
			assignments(target, keys) + " where t." + sourceName + " = excluded." + sourceName,
		holders: "select u.n, t." + sourceName + " from " + keyed("text[]") + " with ordinality as u(" + list + ", source, n) join " + target.name +
			" t on " + match + " where t." + sourceName + " <> u.source",
		drop: "delete from " + target.name + " t using " + keyed("text[]") + " as u(" + list + ", source) where " + match +
			" and t." + sourceName + " = u.source",
		promotable: "select distinct u.hash from " + keyed("bytea[]") + " as u(" + list + ", hash) join " + target.rejects +
			" r on r.key_hash = u.hash where not exists (select from " + target.name + " t where " + match + ")",
		pending: "select distinct on (key_hash) id, key_hash, source, element, row, key from " + target.rejects +
			` where key_hash = any($1::bytea[]) order by key_hash, source collate "C"`,
		updateReasons: "update " + target.rejects + " r set reason = u.reason from " + unnest("bytea[]", "text[]") +
			" as u(hash, reason) where r.key_hash = u.hash and r.reason is distinct from u.reason",
		removeRejects: "delete from " + target.rejects + " where id = any($1::bytea[]) returning id",
		writeRejects: "insert into " + target.rejects + " (id, kind, source, element, column_name, reason, key, key_hash, row) select * from " +
			unnest("bytea[]", "text[]", "text[]", "text[]", "text[]", "text[]", "text[]", "bytea[]", "json[]") +
			" on conflict (id) do update set kind = excluded.kind, element = excluded.element, column_name = excluded.column_name, " +
			"reason = excluded.reason, key = excluded.key, key_hash = excluded.key_hash, row = excluded.row",
		present: "select exists(select from " + target.rejects + " where key_hash is not null), exists(select from " + target.rejects + " where kind = 'refused')",
	}
}

// unnest is the rows that arrays as parameters make.
func unnest(types ...string) string {
	list := make([]string, len(types))
	for i, t := range types {
		list[i] = fmt.Sprintf("$%d::%s", i+1, t)
	}
	return "unnest(" + strings.Join(list, ", ") + ")"
}

// streamed is the same as a list of columns. Rows that are made so are not gathered
// before they are used, which is an eighth faster in an INSERT.
func streamed(types []string) string {
	list := make([]string, len(types))
	for i, t := range types {
		list[i] = fmt.Sprintf("unnest($%d::%s)", i+1, t)
	}
	return strings.Join(list, ", ")
}

// assignments are those of all columns but the key's.
func assignments(target *tableTarget, keys []string) string {
	set := make([]string, 0, len(target.columns)+1)
	for _, column := range target.columns {
		if !slices.Contains(keys, column) {
			set = append(set, quoteName(column)+" = excluded."+quoteName(column))
		}
	}
	set = append(set, elementName+" = excluded."+elementName)
	return strings.Join(set, ", ")
}
