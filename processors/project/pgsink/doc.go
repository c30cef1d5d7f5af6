// Package pgsink keeps the rows of a projection in tables of a PostgreSQL database.
//
// The tables are made from the declaration, in one PostgreSQL schema; a pipeline's
// users read them with everything that speaks SQL. TABLES.md describes them, those
// of rejects beside them, and the few in which the sink keeps positions, names and
// generations.
//
// # A batch is a transaction
//
//	begin                       shares the pipeline's advisory lock, or has it alone
//	lock the position           of the source partition: epoch older? ErrFenced;
//	                            batch recorded? skipped; gap? ErrPosition
//	put, drop, reject           one statement for up to 2000 rows of a table
//	record epoch and position
//	commit                      on disk when it returns
//
// So rows and position are durable together or not at all, whatever dies when. If
// the answer to the commit is lost, the batch is written again and skipped. A batch of which so
// many rows are refused that one transaction would take too long is written by several, and the
// last of them records the position.
//
// # Why a late worker is refused
//
// Every transaction first locks the row of its producer's position, and reads the
// epoch and position in it. Open raises the epoch in the same row. A worker whose
// term has passed on is either before that: then Open waited for its commit and
// returned its position; or behind it: then it reads the newer epoch and writes
// nothing. A row of a table needs no fence of its own, because it is written for one
// source, whose changes come from one source partition: all that may overwrite the
// row take turns at the same lock. (A repair writes for the same sources under a
// producer of its own; Projection.Repair says why that ends right.) A worker that hangs
// within a transaction is ended by the server after 10s, which frees the lock. Swap
// removes the positions of former generations, and with them their writers.
//
// # Pending rows
//
// A row is written by an upsert that leaves a row of another source as it is, and
// locks it. The newcomer is put among the rejects as a pending row in the same
// transaction, before that lock is released. Whoever removes the row that holds the key
// waits for that lock, and looks for pending rows afterwards, with a view of the data
// that is newer than the lock: it sees the pending row.
//
//	transaction 1                  transaction 2
//	upsert k of c2: k is of c1,
//	  which stays, and is locked
//	                               delete k of c1: waits
//	insert pending row k of c2
//	commit
//	                               deletes, looks for pending rows of k: c2
//	                               begins anew, alone: deletes k, inserts k of c2
//
// A pending row is promoted while no other transaction of the pipeline writes, so that
// none withdraws it meanwhile. So no row waits for a key that nobody holds, and no row
// outlives its item.
//
// # One order of locks
//
// Transactions of a pipeline that run side by side do not end in deadlocks. They take
// the locks of what they put in the order of tables and keys, and wait for those; then
// those of what they drop and of rejects, which they wait for so shortly that
// PostgreSQL does not look for a deadlock. Whoever would wait longer gives up all of
// its locks and writes its batch again alone: it has the pipeline's advisory lock to
// itself. So does every transaction that works step by step, one that promotes a pending
// row among them, since it finds out as it goes what it has to lock.
//
// # What PostgreSQL does not take
//
// The sink is a project.Limiter: U+0000, numbers in JSON of too many digits, and keys
// that are too long for an index make a row a reject before it is written. What only
// the server knows, such as a constraint that its users have added, fails the
// batch's statements; they are then tried in halves under savepoints until the row is
// found. It goes among the rejects as refused, and the row that it was before goes, too.
// A row that cannot be removed, because other tables refer to it, stays, and a reject
// says so. Everything else that fails is no row's fault: such errors match
// store.ErrUnavailable and are tried again until the server is back or an operator has
// helped.
//
// # What is not promised
//
// Readers see the batches of one source partition in order, and each whole, but for one that
// takes several transactions; between partitions there is no order. What is added by hand to a table (indexes,
// constraints, triggers) stays until a shadow generation is swapped in; rights that
// were granted are carried over. The connection string comes from an environment
// variable and is in no error.
//
// A Sink is safe for concurrent use; a writer is used by one goroutine at a time.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package pgsink
