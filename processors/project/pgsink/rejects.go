package pgsink

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/millrace/millrace/processors/project"
)

// The kinds of rejects, as they are stored.
const (
	kindConflict = "conflict" // a value cannot be held, says the projection
	kindPending  = "claim"    // a pending row: another source holds the key
	kindRefused  = "refused"  // PostgreSQL did not take the row
)

// id identifies a reject, or the key of a pending row: the beginning of a SHA-256.
type id [16]byte

func (i id) compare(j id) int { return slices.Compare(i[:], j[:]) }

// reject is a row of a table of rejects.
type reject struct {
	id                      id
	kind                    string
	source, element, column string // source as sourceText writes it
	reason                  string
	key                     string // JSON; "" for none
	hash                    *id    // of the key of a pending row
	row                     []byte // JSON; nil for none
}

// conflictID identifies what cannot be at the place in an item.
func conflictID(source, element string) id { return digest('r', source, element) }

// refusalID identifies the row of an item with a key that PostgreSQL did not take, or holds on
// to: by its key, because its place in the item may be another's by now. It is over once the
// row is put or dropped.
func refusalID(source, key string) id { return digest('d', source, key) }

// formerRefusalID is the same of earlier releases: by the place in the item.
func formerRefusalID(source, element string) id { return digest('p', source, element) }

// pendingID identifies the pending row of an item with a key.
func pendingID(source, key string) id { return digest('k', source, key) }

func digest(kind byte, source, rest string) id {
	// The length keeps source and rest apart: "ab"+"c" is not "a"+"bc".
	b := make([]byte, 0, 5+len(source)+len(rest))
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(source)))
	b = append(append(b, source...), rest...)
	sum := sha256.Sum256(b)
	return id(sum[:len(id{})])
}

// keyText writes a key as a JSON array. It is stored: equal keys of one table have
// equal texts.
func keyText(key []project.Value) string {
	b := []byte{'['}
	for i, v := range key {
		if i > 0 {
			b = append(b, ',')
		}
		b = v.AppendJSON(b)
	}
	return string(append(b, ']'))
}

// keyHash is the hash under which the pending rows of a key are found.
func keyHash(text string) id {
	sum := sha256.Sum256([]byte(text))
	return id(sum[:len(id{})])
}

// conflictOf makes the reject of a row that cannot be.
func conflictOf(r *project.Reject) reject {
	source := sourceText(r.Source)
	return reject{
		id: conflictID(source, r.Element), kind: kindConflict, source: source, element: r.Element, column: r.Column,
		reason: printable(r.Reason), row: r.Row,
	}
}

// pendingOf makes the reject of a row whose key another source holds.
func pendingOf(target *tableTarget, r *project.Row, holder string) reject {
	source, key := sourceText(r.Source), keyText(r.Key)
	hash := keyHash(key)
	return reject{
		id: pendingID(source, key), kind: kindPending, source: source, element: r.Element, reason: project.HeldBy(holder),
		key: key, hash: &hash, row: target.AppendRow(nil, r.Values),
	}
}

// refusedOf makes the reject of a row that PostgreSQL did not take.
func refusedOf(target *tableTarget, r *project.Row, why *answer) reject {
	source, key := sourceText(r.Source), keyText(r.Key)
	made := reject{
		id: refusalID(source, key), kind: kindRefused, source: source, element: r.Element,
		reason: printable(refusal(why)), key: key,
	}
	if r.Values != nil {
		made.row = target.AppendRow(nil, r.Values)
	}
	return made
}

func refusal(why *answer) string { return "PostgreSQL refuses it: " + why.Error() }

// printable is text that PostgreSQL can hold.
func printable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", `\u0000`)
}

// writeRejects is the call that writes a list, of which each id is there once.
func writeRejects(target *tableTarget, list []reject) call {
	// In one order, as keys of tables, so that two transactions cannot wait for each other.
	slices.SortFunc(list, func(a, b reject) int { return a.id.compare(b.id) })
	return call{target.sql.writeRejects, func(a *arguments) {
		n := len(list)
		text := func(get func(r *reject) string) { a.texts(n, func(i int) string { return get(&list[i]) }) }
		bytea := columnType{oid: oidBytea, arrayID: oidByteaArray}
		a.array(bytea, n, func(i int, dst []byte) ([]byte, bool) { return append(dst, list[i].id[:]...), true })
		text(func(r *reject) string { return r.kind })
		text(func(r *reject) string { return r.source })
		text(func(r *reject) string { return r.element })
		text(func(r *reject) string { return r.column })
		text(func(r *reject) string { return r.reason })
		a.array(columnType{oid: oidText, arrayID: oidTextArray}, n, func(i int, dst []byte) ([]byte, bool) {
			return append(dst, list[i].key...), list[i].key != ""
		})
		a.array(bytea, n, func(i int, dst []byte) ([]byte, bool) {
			if list[i].hash == nil {
				return dst, false
			}
			return append(dst, list[i].hash[:]...), true
		})
		a.array(columnType{oid: oidJSON, arrayID: oidJSONArray}, n, func(i int, dst []byte) ([]byte, bool) {
			return append(dst, list[i].row...), list[i].row != nil
		})
	}}
}

// removeRejects is the call that removes rejects.
func removeRejects(target *tableTarget, ids []id) call {
	slices.SortFunc(ids, id.compare)
	return call{target.sql.removeRejects, func(a *arguments) { a.ids(ids) }}
}
