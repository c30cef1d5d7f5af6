// Package pipelines runs what operators have declared.
//
//	YAML ── spec ──▶ Resources ── registry ──▶ catalog (containers, indexes, rules)
//	                                           bucket millrace_pipelines (Records)
//	                     ┌─────────────────────────────┘ watch
//	                     ▼
//	                Supervisor ──▶ leases: a resource for each generation that runs,
//	                     │         role and physical partition, one for the reconciler and
//	                     │         one for the continuous verification
//	                     ▼ a lease is taken
//	                  compile ──▶ a processor, run by processors.Host
//
// A generation begins at the beginning of its source's logs and follows them: what
// lies before the heads, the ends of the logs when it was registered, is its
// backfill. The reconciler, one worker at a time, does what follows when the heads are
// passed:
//
//	cascade    backfilling ───────────────────────────────────────▶ in force
//	aggregate  backfilling ──▶ published: fields are set ─────────▶ in force
//	project    backfilling ──▶ swap, if it was built in the shadow ▶ in force
//
// The rooms of this floor, each of which imports only those below it:
//
//	pipelines            the supervisor and the reconciler
//	doctor, testcase     millrace doctor, millrace test
//	plan, status         what apply would do; where pipelines stand
//	verify               which copies differ, and their repair
//	compile              from a record to a processor with its sink
//	registry             records, generations, apply, rewind, backfill
//	spec                 documents: decode, check, compare
//	roots, live, format  where sinks may write; counts of the moment; texts
//
// A Supervisor runs once.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package pipelines
