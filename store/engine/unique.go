package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
)

// Marks of what is not a scalar in the key of a unique entry. The canonical forms
// of scalars begin with 01 to 08.
const (
	uniqueArray  = 0x10
	uniqueObject = 0x11
	uniqueEnd    = 0x00
	uniqueLong   = 0xFF // the values are replaced by their SHA-256
)

var rawNull = []byte("null")

// appendKey appends what follows the prefix in the key of the unique entry that
// body has.
func (u *UniqueKey) appendKey(dst []byte, k feed.PartitionKey, body []byte) []byte {
	dst = appendUniqueScope(dst, k, u.Number)
	start := len(dst)
	for _, p := range u.Paths {
		raw, ok := document.Get(body, p)
		if !ok {
			raw = rawNull
		}
		dst = appendUnique(dst, raw)
	}
	return boundUnique(dst, start)
}

// AppendUniqueTuple appends what identifies the values of a unique key in a logical
// partition: equal values, however they are written, give equal bytes. A nil value
// is a missing one and counts as null.
func AppendUniqueTuple(dst []byte, k feed.PartitionKey, number uint32, values [][]byte) []byte {
	return appendUniqueKey(dst, k, number, values)
}

// appendUniqueKey is appendKey for values.
func appendUniqueKey(dst []byte, k feed.PartitionKey, number uint32, values [][]byte) []byte {
	dst = appendUniqueScope(dst, k, number)
	start := len(dst)
	for _, raw := range values {
		if raw == nil {
			raw = rawNull
		}
		dst = appendUnique(dst, raw)
	}
	return boundUnique(dst, start)
}

func appendUniqueScope(dst []byte, k feed.PartitionKey, number uint32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, number)
	return append(dst, k.Encoded()...)
}

// boundUnique replaces values that are too long by their hash.
func boundUnique(dst []byte, start int) []byte {
	if len(dst)-start <= UniqueValueMax {
		return dst
	}
	sum := sha256.Sum256(dst[start:])
	return append(append(dst[:start], uniqueLong), sum[:]...)
}

// appendUnique appends the canonical form of any value: equal values have equal
// forms, and no form is the beginning of another.
func appendUnique(dst, raw []byte) []byte {
	n := len(dst)
	if dst = document.AppendCanonical(dst, raw); len(dst) > n {
		return dst
	}
	if isArray := bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte{'['}); isArray {
		dst = append(dst, uniqueArray)
		document.Elements(raw, func(_ int, raw []byte) bool {
			dst = appendUnique(dst, raw)
			return true
		})
		return append(dst, uniqueEnd)
	}
	var members [][]byte
	document.Members(raw, func(name, raw []byte) bool {
		m := document.AppendCanonical(nil, document.AppendQuote(nil, string(name)))
		members = append(members, appendUnique(m, raw))
		return true
	})
	slices.SortFunc(members, bytes.Compare)
	dst = append(dst, uniqueObject)
	for _, m := range members {
		dst = append(dst, m...)
	}
	return append(dst, uniqueEnd)
}
