package parquetsink

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names of what files hold beside the columns of a table.
const (
	sourceColumn  = "_source"
	elementColumn = "_element"
	hashColumn    = "_hash"
)

// nameBytesMax bounds a mapped name, so that folders and objects can bear it.
const nameBytesMax = 120

// names gives out names that engines can read: letters, digits and underscores,
// no digit first, and no two names that differ in case alone.
type names map[string]bool

// choose returns name, or what it is mapped to, and reserves it.
func (n names) choose(name string) string {
	base := plain(name)
	mapped := base
	for i := 2; n[foldCase(mapped)]; i++ {
		mapped = base + "_" + strconv.Itoa(i)
	}
	n.reserve(mapped)
	return mapped
}

// reserve keeps a name from being chosen.
func (n names) reserve(name string) { n[foldCase(name)] = true }

// foldCase returns what is the same for names that differ in case alone. Lower case by itself
// is not: Spark compares capitals too, and ſ and s have one.
func foldCase(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// plain returns name with everything that is no letter, digit or underscore made
// an underscore. A first underscore hides columns and folders from some engines.
func plain(name string) string {
	var b strings.Builder
	for i, r := range name {
		switch {
		case b.Len()+utf8.RuneLen(max(r, 0)) > nameBytesMax:
			return b.String()
		case unicode.IsLetter(r), unicode.IsDigit(r) && i > 0, r == '_' && i > 0:
			b.WriteRune(r)
		case i == 0 && unicode.IsDigit(r):
			b.WriteString("n_")
			b.WriteRune(r)
		case i == 0:
			b.WriteString("n_")
		default:
			b.WriteByte('_')
		}
	}
	if b.Len() == 0 {
		return "n_"
	}
	return b.String()
}
