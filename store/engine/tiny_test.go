package engine

import (
	"errors"
	"log/slog"

	"github.com/dgraph-io/badger/v4"

	"github.com/millrace/millrace/store/engine/internal/memtable"
	"github.com/millrace/millrace/store/engine/internal/merge"
)

// Tiny is a Badger under the options, the memtables and the merger of a DB, but with tables so small that a little data makes
// many of them in several levels. It flushes as a DB does, and merges when it is told.
type Tiny struct {
	*badger.DB
	d *DB
}

// OpenTiny opens a Tiny in dir.
func OpenTiny(dir string) (*Tiny, error) {
	cfg, err := Config{}.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := removeEmptyLogs(dir); err != nil {
		return nil, err
	}
	countMismatches()
	log := slog.New(slog.DiscardHandler)
	b, err := badger.OpenManaged(cfg.badgerOptions(dir, log).
		WithMemTableSize(64 << 10).
		WithValueThreshold(1 << 10))
	if err != nil {
		return nil, err
	}
	d := &DB{dir: dir, log: log, b: b, cfg: cfg, syncFile: syncFile, stall: 100, stop: func() {}}
	d.health.damaged = make(chan struct{})
	d.health.entered()
	d.o = newOracle(b.MaxVersion(), func(uint64) {})
	if d.levels, err = levelsOf(b); err == nil {
		d.witness, err = newWitness(dir)
	}
	if err == nil {
		d.tables, err = memtable.Start(b, log, d.flush)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	d.merger.begin(d, merge.Sizes{Level0Tables: 2, BaseBytes: 64 << 10, Multiplier: 2, TableBytes: 8 << 10})
	return &Tiny{DB: b, d: d}, nil
}

// Write sets a key at a timestamp, or deletes it if value is nil.
func (t *Tiny) Write(ts uint64, key, value []byte) error {
	return t.d.tables.Write(ts, []memtable.Write{{Key: key, Value: value, Delete: value == nil}})
}

// Get returns what a key has at a timestamp, nil if nothing.
func (t *Tiny) Get(ts uint64, key []byte) ([]byte, error) {
	txn := t.NewTransactionAt(ts, false)
	defer txn.Discard()
	return t.d.get(txn, key)
}

// Merge merges what is to be merged next; false if nothing is.
func (t *Tiny) Merge() (more bool, err error) { return t.d.merger.next(merge.Choose) }

// Flatten merges all tables.
func (t *Tiny) Flatten() error { return t.d.merger.flatten() }

// Reads says that the last commit is at last, and that somebody reads at each of those timestamps.
func (t *Tiny) Reads(last uint64, at ...uint64) {
	t.d.o.mu.Lock()
	defer t.d.o.mu.Unlock()
	t.d.o.next = last + 1
	clear(t.d.o.reading)
	for _, ts := range at {
		t.d.o.reading[ts]++
	}
}

// OnStep has f called at each step of a merge, in one goroutine at a time.
func (t *Tiny) OnStep(f func(name string)) { t.d.merger.step = f }

// Close closes it.
func (t *Tiny) Close() error {
	defer left()
	defer t.d.witness.close()
	return t.d.shut()
}
