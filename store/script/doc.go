// Package script runs the JavaScript of clients: stored procedures, triggers and user-defined functions, in processes
// of their own, and keeps what they read and write of one logical partition a transaction.
//
// # A process for scripts
//
//	gateway ── Engine.Run ──▶ a free process, or a new one        millrace, as Serve
//	        ◀── asks for items, over pipes ──────────────────────  goja: a runtime for each run
//	        ──── answers ───────────────────────────────────────▶
//	        ◀── what the function made, or why it ended ──────────
//
// The interpreter has no bound for memory, cannot be interrupted inside a built-in function, such as the match of a regular
// expression, and recurses on Go's stack, whose end is the end of the process. So it has a process, which is
// killed where it does not end by itself. The process has no environment, no files but its two pipes, and runs one script
// at a time, so that what it takes of memory is what the script takes. It ends when the process that began it does.
//
// Bounds of a run, each with an error of its own:
//
//	time     a timer interrupts the script; 250 ms later the process is killed                 ErrTime
//	memory   the heap is looked at every 2 ms; on Linux the system bounds what is mapped too   ErrMemory
//	depth    of calls                                                                          ErrDepth
//	results  bytes of what the script made                                                     ErrResult
//
// Memory may pass its bound for as long as the heap is not looked at, and inside of one allocation: on Linux up to eight times
// the bound and 512 MiB more, which the system refuses to the process. Elsewhere a single allocation has no bound.
//
// A run has its own globals and built-in objects. Nothing is left of it for the next one.
//
// # A transaction
//
// A Transaction is what one run of scripts reads and writes of one logical partition. Nothing is written before Commit:
//
//	begin    the owner tells an LSN, behind all that was in flight: every read that follows sees that state or a later one
//	run      items are read, queries asked, at the owner; writes are kept, and read back from there
//	commit   one guarded transaction: the owner refuses it if it has decided anything about the logical partition since the LSN
//
// So a commit that succeeds has read what was there when it was decided, ids that were absent and queries included: it is as
// if the script had run in between two other writes. One that read while others wrote may have seen half of what they wrote. It
// is never answered, whatever it says, an error included, but run anew.
//
// It is no API: the gateway is made of it, and it changes without notice.
package script
