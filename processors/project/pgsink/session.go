package pgsink

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/feed"
)

// How many results the statements of beginWriter and of termQuery have.
const (
	preludeResults = 3
	termResults    = 2
)

// begin is how every transaction begins, whatever the defaults of the server, the database, the
// role or the DSN are; more settings follow it:
//
//	read committed       Whoever waited for a lock must see what its holder has written:
//	                     a row that was made pending meanwhile.
//	synchronous_commit   What is committed must be on disk: the pipeline's checkpoint rests
//	                     on it, and what is noted of a generation.
const begin = "begin isolation level read committed; select set_config('synchronous_commit', case current_setting('synchronous_commit') " +
	"when 'off' then 'on' else current_setting('synchronous_commit') end, true), "

// beginWriter begins a transaction of a writer, which shares the pipeline's lock or has it to
// itself:
//
//	enable_seqscan ... off   Rows are found by key. PostgreSQL would plan to read a table
//	                         whole that was small when its statistics were made.
//	lock_timeout             As long as a Write may take for the pipeline's lock, which
//	                         comes first: whoever has it alone may have a large batch to
//	                         write step by step. Shorter for all locks after it.
func (s *Sink) beginWriter(pipeline string, how mode) string {
	lock := "pg_advisory_xact_lock_shared"
	if how != shared {
		lock = "pg_advisory_xact_lock"
	}
	lock = "select " + lock + "(" + s.lockKey(pipeline) + "), " + setting("lock_timeout", milliseconds(lockMax))
	return begin + settings("lock_timeout", milliseconds(writeMax), "statement_timeout", milliseconds(writeMax),
		"enable_seqscan", "off", "enable_hashjoin", "off", "enable_mergejoin", "off") + "; " + lock + ";\n"
}

// beginAlone begins a transaction that makes, alters or swaps tables: it has the
// lock of the sink's own tables, and that of the pipeline, to itself.
func (s *Sink) beginAlone(pipeline string) string {
	return begin + settings() + "; select pg_advisory_xact_lock(" + s.lockKey("") + "); " +
		"select pg_advisory_xact_lock(" + s.lockKey(pipeline) + ");\n"
}

// settings are for one transaction: those that every transaction has, and more.
func settings(more ...string) string {
	all := append([]string{"lock_timeout", milliseconds(lockMax), "idle_in_transaction_session_timeout", milliseconds(idleMax)}, more...)
	var list []string
	for pair := range slices.Chunk(all, 2) {
		list = append(list, setting(pair[0], pair[1]))
	}
	return strings.Join(list, ", ")
}

// setting sets one for the rest of a transaction.
func setting(name, value string) string { return "set_config('" + name + "', '" + value + "', true)" }

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// lockKey is the key of the advisory lock of a pipeline; "" is that of the sink's
// own tables.
func (s *Sink) lockKey(pipeline string) string {
	name := strings.TrimSuffix("millrace/"+s.cfg.Schema+"/"+pipeline, "/")
	sum := sha256.Sum256([]byte(name))
	return strconv.FormatInt(int64(binary.BigEndian.Uint64(sum[:])), 10)
}

// generationMatch is the condition of one generation in the own tables.
func generationMatch(pipeline string, number uint32) string {
	return "pipeline = " + literal(pipeline) + " and generation = " + strconv.FormatUint(uint64(number), 10)
}

// termQuery asks whether a producer's generation is live (no row says that the generation is
// not there), and locks the producer's position. The lock is the fence: a late worker either
// has it before Open of its successor, which then waits, or gets it after, and reads the
// newer epoch.
func (s *Sink) termQuery(p feed.Producer) string {
	return "select live from " + s.ownTable("generations") + " where " + generationMatch(p.Pipeline, p.Generation) + ";\n" + s.positionQuery(p)
}

// positionQuery asks for the epoch and position of a producer, and locks them.
func (s *Sink) positionQuery(p feed.Producer) string {
	return "select epoch, lsn, idx from " + s.ownTable("positions") + " where " + generationMatch(p.Pipeline, p.Generation) +
		" and producer = " + literal(p.Source) + " for update;\n"
}

// moveStatement records the position of (pipeline, generation, producer, epoch, LSN,
// index).
func (s *Sink) moveStatement() string {
	return "insert into " + s.ownTable("positions") + " as p (pipeline, generation, producer, epoch, lsn, idx) values ($1, $2, $3, $4, $5, $6) " +
		"on conflict (pipeline, generation, producer) do update set epoch = excluded.epoch, lsn = excluded.lsn, idx = excluded.idx, updated = now()"
}

// fenceStatement begins a term: it raises the epoch of a producer and returns the epoch
// and position that are recorded now. A newer epoch stays.
func (s *Sink) fenceStatement(p feed.Producer, epoch uint64) string {
	return fmt.Sprintf("insert into %s as p (pipeline, generation, producer, epoch, lsn, idx) values (%s, %d, %s, %d, 0, 0) "+
		"on conflict (pipeline, generation, producer) do update set epoch = greatest(p.epoch, excluded.epoch) returning epoch, lsn, idx;\n",
		s.ownTable("positions"), literal(p.Pipeline), p.Generation, literal(p.Source), epoch)
}

// commit ends a transaction. That of one that failed before is an error.
func commit(ctx context.Context, k *conn) error {
	results, err := simpleQueryAll(ctx, k, "commit")
	if err != nil {
		return err
	}
	if tag := results[0].CommandTag.String(); tag != "COMMIT" {
		return fmt.Errorf("the transaction ended by %s", tag)
	}
	return nil
}
