// Package tombstone says what a container remembers of items that are gone, for the
// pipelines that copy them.
//
// A Rule is what some pipelines follow: the items for which Where is true, and the
// fields that are copied of them. A Stone is what is left of such an item when it was
// deleted, has expired, or is no longer one that Where selects: where its last change
// stands, when that was, and the fields as they were before it.
//
//	           selected                     not there, or not selected
//	no stone ◀──────────── created again ───────────────┐
//	   │                                                 │
//	   └── deleted, expired, deselected at d ──▶ stone of d ──▶ forgotten when it is old
//
// Stones follow from the log alone (I3): whoever applies a change asks the rule what
// it means, and the commit's time says what is old. So an item has a stone only while
// it is not selected, and always the stone of its last going.
//
// Rules and stones do not change; they are safe for concurrent use.
//
// This package is no API for other programs.
package tombstone
