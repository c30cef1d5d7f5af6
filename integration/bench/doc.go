//go:build linux

// Command bench measures what Millrace promises, beside what a user would
// otherwise build, in one run:
//
//	go run ./integration/bench                    all cases at full size: 1,000,000 products, some hours
//	go run ./integration/bench -products 10000 -orders 10000 -rounds 1 -write-time 1s        a look, in minutes
//	go run ./integration/bench -run 'writes|rename' -docs docs/benchmarks.md   some cases, into the documentation
//
// Every case does the same work on each system, round after round: Millrace, then
// its peers, then Millrace again. A ratio is taken within a round, so that it
// compares minutes and not hours of a machine that others use too; its noise, the
// lowest and highest round, stands beside it. Each run of a rename is verified: all
// copies are counted when the clock has stopped.
//
// The peers:
//
//   - the bare loop: what any store of this design cannot beat, one JetStream
//     message for each group of writes and their transaction in Badger;
//   - PostgreSQL with whole items in jsonb and a trigger that keeps the copies;
//   - PostgreSQL with plain columns and a trigger;
//   - for orders, PostgreSQL with triggers that count them and that keep their
//     lines flat;
//   - for flat rows, a program written by hand that upserts them with pgx;
//   - PostgreSQL with the consumer that teams write by hand, told by NOTIFY,
//     which replaces one product after another.
//
// PostgreSQL is started by package postgres in a directory beside Millrace's, with
// fsync and synchronous_commit on; -postgres names another, or turns it off.
// Millrace syncs each append, and so does the bare loop. Millrace and the bare
// loop are reached in process, as millrace up is by its own roles; PostgreSQL over
// loopback, as it always is. Memory, restarts, take-overs, moves, splits and what is old are measured on
// child processes of the binary that the run builds; what befalls a fleet of them (cut, rolling,
// move, worker, takeover, standby, split) over NATS servers that are processes too, and with logs of
// the stores, which -keep leaves. Hosts that fall silent are network namespaces (package
// integration/netns/hosts), which need root and the command ip; without them cut is skipped.
//
// Everything follows from one seed (package dataset). Package measure holds the
// report. The exit status is 1 if a bar was missed and 2 if something failed.
package main
