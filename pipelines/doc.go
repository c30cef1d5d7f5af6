// Package pipelines holds what operators declare: containers and pipelines, as
// YAML documents in the habit of Kubernetes, and everything that turns a
// declaration into running processors and tells how they are.
//
// The way of a declaration:
//
//	YAML ── Load ──▶ Resources ── Check ──▶ Findings, each file:line:column
//	                     │ none
//	                     ▼
//	              Registry.Apply ──▶ catalog (containers, indexes, rules)
//	                     │           bucket millrace_pipelines (Records)
//	                     ▼ watch
//	                Supervisor ──▶ leases: a resource for each generation that runs,
//	                     │         role and physical partition, and one for the steward
//	                     ▼ a lease is taken
//	                  compile ──▶ a processor, run by processors.Host
//
// A Record is one pipeline as it is registered. It has an id, new when a pipeline
// is deleted and made again, and a generation, which grows with every change of
// meaning. Leases, checkpoints and producers carry both, so the work of an older
// meaning can never be taken for that of a newer one.
//
// A generation begins at the beginning of its source's logs and follows them: what
// lies before the heads, the ends of the logs when it was registered, is its
// backfill. The steward, one worker at a time, does what follows when the heads are
// passed:
//
//	cascade    backfilling ───────────────────────────────────────▶ in force
//	aggregate  backfilling ──▶ published: fields are set ─────────▶ in force
//	project    backfilling ──▶ swap, if it was built in the shadow ▶ in force
//
// Status reads where every pipeline stands. Verify recomputes every copy from its
// source, while writes go on, and says which differ.
//
// Decoding and checking are pure and safe for concurrent use; so are a Registry,
// Status and Verify, which keep all state in NATS. A Supervisor runs once.
package pipelines
