// Package accumulator defines what an aggregate means: to which groups the members of a source
// belong, what the state of a group is, and which values a target has. It uses no disk and
// no network; Records decides where state is kept.
//
//	change of a source item ── Rule.Fold ──▶ Delta ── a Share for each group
//	                                                       │ Rule.Add
//	target item ◀── State.Values ── State ◀────────────────┴──▶ Records
//	      │ Rule.TargetGroup: whose fields it carries
//
// A Spec is compiled to a Rule. A member is a source item, or with Each an element
// of an array in it. Its values of match are its Group, and so are those of the
// target item that shows the fields.
//
// # Promises
//
// Deltas form an abelian group. They may be added in any order, joined (Merge), divided by group
// (Only) and undone (Fold with before and after exchanged, or Negate). The state of a group
// depends only on the sum of what was added to it, to the byte. The removal of a member may
// come before its addition, as when an item moves between partitions whose feeds lag
// differently. Until the addition comes the group has a negative number of it, and no value
// shows it. When everything is undone, no record is left.
//
// Sums are exact decimals and do not drift; a mean is a sum and a count, divided
// when it is shown. Minimum, maximum and the latest keep a record for each distinct
// member and so survive the removal of the extreme. The accumulator holds the
// members that are shown. So an addition reads it and one record for each entry,
// however large the group is, and only the removal of a shown member ranges.
//
// Numbers come out of min, max and latest as they went in. Of equal numbers written in several
// ways, the shortest form is shown.
//
// # What is left out
//
// A member belongs to no group if one of its values of match is not a scalar. Sum and avg
// leave out what is not a number; min, max and latest leave out undefined, arrays and
// objects. Also left out are a number beyond DecimalDigitsMax, a value beyond ScalarBytesMax
// and a group beyond GroupBytesMax. Each rule looks at the member alone, so a member is left
// out of its removal if it was left out of its addition.
//
// # State
//
// STATE.md describes keys and values of records, and the encoding of a Delta, byte
// by byte. A rule whose Spec changes needs records of its own (a new generation):
// the place of a field in Set is a part of the keys.
//
// A Rule is safe for concurrent use; a Delta, a Memory, and what writes to one
// Records are not.
//
// This package is no API for other programs.
package accumulator
