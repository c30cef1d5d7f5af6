// Package operator is what somebody may do over HTTP who has the key of an operator and nothing
// else: ask where pipelines stand, verify them, and plan and apply pipelines between the containers
// that the key names.
//
//	millrace keys create ──▶ operator-keys.json ◀── Keys ◀── Server ◀── HTTPS ── Client
//	  prints the key once      digests alone                   │                  millrace status, verify,
//	                                                           ▼                  plan, apply --endpoint
//	                                                registry, plan, verify, status
//
// A key is 32 random bytes. The file has their digest, so who reads it, or a backup of it, cannot use the
// key; there is nothing to sign, for what a key allows stands in the file beside the digest and can be
// taken back there. What each route asks for stands in one table, Server.routes; a route that asks for
// nothing is not served.
//
// No key shows an item. A status tells states, counts and positions: texts that may quote what an item
// holds, such as the error at which a pipeline halted, are withheld. A verification tells counts, a plan has
// no samples.
package operator
