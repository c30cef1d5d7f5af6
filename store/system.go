package store

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/feed/document"
)

// SystemProperties are the names of the properties that the Azure Cosmos DB
// protocol shows in every item and that no item holds: AppendSystem composes them.
var SystemProperties = [...]string{"_rid", "_self", "_etag", "_attachments", "_ts"}

// attachments is what _attachments says of every item.
const attachments = "attachments/"

// AppendSystem appends to dst the JSON of an item, body, with its system properties
// as the last members; those that body has itself are left out. etag is the item's
// ETag, and modified is Item.Modified: _ts is that in whole seconds. It is the time
// of the last client's write, from which a time to live runs, and not that of a
// pipeline's, which changes _etag alone.
func AppendSystem(dst, body []byte, rid, self string, etag ETag, modified int64) []byte {
	dst, empty := appendMembers(dst, body)
	if !empty {
		dst = append(dst, ',')
	}
	dst = append(append(dst, `"_rid":"`...), rid...)
	dst = append(append(dst, `","_self":"`...), self...)
	dst = append(append(dst, `","_etag":"\"`...), etag.String()...)
	dst = append(dst, `\"","_attachments":"`+attachments+`","_ts":`...)
	return append(strconv.AppendInt(dst, modified/1000, 10), '}')
}

// appendMembers appends an object without its closing brace and without system
// properties.
func appendMembers(dst, body []byte) (out []byte, empty bool) {
	body = bytes.TrimSpace(body)
	if !bytes.Contains(body, []byte(`"_`)) {
		rest := bytes.TrimRight(body[:max(len(body)-1, 0)], " \t\r\n")
		return append(dst, rest...), len(rest) <= 1
	}
	dst, empty = append(dst, '{'), true
	document.Members(body, func(name, raw []byte) bool {
		if IsSystemProperty(string(name)) {
			return true
		}
		if !empty {
			dst = append(dst, ',')
		}
		empty = false
		dst = append(document.AppendQuote(dst, string(name)), ':')
		dst = append(dst, raw...)
		return true
	})
	return dst, empty
}

// IsSystemProperty tells whether a name is one of SystemProperties.
func IsSystemProperty(name string) bool { return slices.Contains(SystemProperties[:], name) }

// IsSystemPath tells whether a path, a JSON pointer, leads to one of SystemProperties or into it.
func IsSystemPath(pointer string) bool {
	name, _, _ := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
	return IsSystemProperty(name)
}
