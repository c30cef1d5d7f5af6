// Package testcase runs tests of pipelines, the documents of kind Test: items that are
// given, changes, and what is expected after each step.
//
// A Tester applies the pipelines of a test to containers in a database of its own, on a
// node that runs, waits for them to come to rest after every step, and compares items and
// rows field by field. What differs is told with the place in the file that expects it.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package testcase
