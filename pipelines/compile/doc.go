// Package compile turns a registered pipeline into what runs: a cascade, an aggregate, or
// a projection with its sink.
//
// Workers compile to run, verify and plan compile to compare: all of them see the same
// processor, with the same sink, for the same record. Where a sink may write is decided
// here too (SinkLimits.Admit), so that nobody opens one that a worker would refuse.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package compile
