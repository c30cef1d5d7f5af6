// Package sinktest holds the tests that every project.Sink must pass: the same cases for
// containers, Parquet files and PostgreSQL.
//
//	func TestSink(t *testing.T) {
//		sinktest.Run(t, func(t testing.TB) sinktest.Open {
//			dir := t.TempDir() // storage of one case
//			return func(t testing.TB) sinktest.Sink { … }
//		})
//	}
//
// Storage outlives the sinks that are opened on it: a case kills a sink by
// forgetting it, without a Close, and opens another, as the next process would.
//
// Beside the cases there is a random model: several source partitions write
// random batches, are killed, go on from what the sink has recorded, are fenced by
// successors, and whatever order that leads to, the sink must hold the newest
// state of every row, and exactly one row of each key that several items want.
//
// Memory is a sink in memory that passes. It is the reference for the others.
// Tests of the processor write to it too, and can make it fail.
//
// This package is no API for other programs.
package sinktest
