// Package accumulator says what an aggregate means: which groups the members of a
// source belong to, what the state of a group is, and what a target shows of it. It
// touches no disk and no network; where state is kept is up to Records.
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
// Deltas form an abelian group. They may be added in any order, joined (Merge), cut
// by group (Only) and taken back (Fold with before and after exchanged, or Negate):
// the state of a group depends on the sum of what was added to it and on nothing
// else, to the byte. The removal of a member may come before its addition, as it
// does when an item moves between partitions whose feeds lag differently; until
// then the group has a negative number of it, which no value shows as a member.
// When all is taken back, no record is left.
//
// Sums are exact decimals and do not drift; a mean is a sum and a count, divided
// when it is shown. Minimum, maximum and the latest keep a record for each distinct
// member and so survive the removal of the extreme. The accumulator holds the
// members that are shown. So an addition reads it and one record for each entry,
// however large the group is, and only the removal of a shown member ranges.
//
// Numbers come out of min, max and latest as they went in. Of equal ones written in
// several ways, the shortest form is shown before all others.
//
// # What is left out
//
// A member without a value of match that is a scalar is of no group. What is no
// number is left out of sum and avg; undefined, arrays and objects of min, max and
// latest. Limits are named in this package: a number beyond DecimalDigitsMax, a
// value beyond ScalarBytesMax, a group beyond GroupBytesMax. Each is decided from
// the member alone, so that it is left out of its removal too.
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
