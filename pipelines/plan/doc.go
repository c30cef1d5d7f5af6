// Package plan tells what apply would do, and does nothing.
//
// It takes the same decisions as registry.Apply with the same options, then reads what a
// new generation would read and counts what it would write: items by field, groups, rows;
// with samples of each, the cost, and the graph of fields that decide fields. A plan has a
// hash, by which apply refuses to do anything else.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package plan
