// Package registry keeps the pipelines that are registered, a Record for each, in a
// JetStream key-value bucket that is changed by compare-and-set (RECORD.md).
//
//	Resources ── Apply ──▶ catalog: containers, indexes, rules, tombstones
//	                       Record:  id, generation, what it reads from where
//
// A Record has an id, new when a pipeline is deleted and made again, and a generation,
// which grows with every change of meaning. Leases, checkpoints and producers carry
// both, so the work of an older meaning can never be taken for that of a newer one.
//
// The record comes first, and what containers are to do for a pipeline follows from the
// record alone (needs.go): whoever finds one without the other puts it right. What a new
// declaration means for the generation that runs is decided in one place, change.go:
// nothing, other words, another way to go on, or a new generation.
//
// Here is also what the positions of readers say of a generation: whether it has passed
// what was there when it began (checkpoints.go), whether it is in force (inforce.go),
// whether a backfill is done (backfill.go).
//
// A Registry keeps all state in NATS and is safe for concurrent use.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package registry
