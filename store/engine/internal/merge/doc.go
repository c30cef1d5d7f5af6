// Package merge merges tables of Badger's levels: Choose and Flatten say which of them next, Run.Merge makes the tables that
// they become. Badger's own merges write through shared mappings, a table and a sync at a time, and drop the error of a table
// that cannot be made; by far the most of what a store writes is written by merges.
//
//	levels      first        tables as memtables were flushed, the oldest first; they overlap
//	            base         the first one that is merged into; those between are empty
//	            below        each up to Sizes.Multiplier times as large; the last has most of the data
//
// A plan of the first level takes its tables from the oldest on, and all of the base level between their keys. One of
// another level takes those tables for which least of the next level is written anew, beside what they have themselves:
// where keys are not written evenly that is much less than an average table would cost, and a few neighbours share what lies
// at their edges.
//
// The package changes no level: whoever has the tables that Merge made puts them in the place of the plan's, or drops them.
// Levels must not change below a plan meanwhile, but for tables that the first level gets.
//
// Nothing here is safe for concurrent use. It is the engine's: see its documentation for what holds.
package merge
