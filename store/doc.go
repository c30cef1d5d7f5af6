// Package store is Millrace's document store as its callers see it: databases
// and containers in a Catalog, items in a Container, and the requests that a
// Client sends to the owner of a physical partition.
//
// # Model
//
// A container holds items, JSON objects with an id. The item's partition key
// value decides its logical partition, the scope of transactions; the hash of
// that value decides its physical partition, which one process owns at a time:
//
//	Client ── Request ──▶ owner of the physical partition ──▶ log
//	   ▲                        │
//	   └────── Response ────────┘  after the log acknowledged the commit
//
// An owner in the same process is called directly, any other over NATS
// request/reply on the partition's own subject (WIRE.md), so a partition that
// moves needs no routing table anywhere.
//
// # Promises
//
//   - A write that was acknowledged is in the log, as durable as the operator
//     chose, and every later read sees it.
//   - A refusal (*Error) changed nothing. ErrUnknown may have changed what was
//     asked, all of it or none.
//   - A Client repeats by itself only what cannot happen twice.
//
// The numbers of a document come out as they went in: bodies are bytes here.
//
// Clients, Containers and Catalogs are safe for concurrent use.
package store
