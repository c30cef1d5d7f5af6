package engine

import (
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
	"google.golang.org/protobuf/proto"

	"github.com/dgraph-io/badger/v4/pb"
)

// Tiny is a Badger under the options and the watch of a DB, but with tables so small that
// a little data is merged often, in many parts.
type Tiny struct {
	*badger.DB
	Done, Failed, Tables atomic.Int64 // merges, and the tables that they put together
}

// OpenTiny opens a Tiny in dir. Merges that fail are tried again at once.
func OpenTiny(dir string) (*Tiny, error) {
	cfg, err := Config{}.withDefaults()
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	countMismatches()
	checkOutputs(log)
	m := newMerges(dir, log)
	defer m.end(nil)
	m.retry = 0
	t := &Tiny{}
	opt := m.watch(cfg.badgerOptions(dir, log))
	opt = opt.WithLogger(tinyLog{opt.Logger, t}).
		WithMemTableSize(64 << 10).
		WithValueThreshold(1 << 10).
		WithBaseTableSize(8 << 10).
		WithBaseLevelSize(64 << 10).
		WithLevelSizeMultiplier(2).
		WithNumLevelZeroTables(2).
		WithNumCompactors(4)
	if t.DB, err = badger.OpenManaged(opt); err != nil {
		return nil, err
	}
	d := &DB{dir: dir, log: log}
	d.health.damaged = make(chan struct{})
	return t, d.show(t.DB, m)
}

// tinyLog counts what Badger says to the log of a DB.
type tinyLog struct {
	badger.Logger
	t *Tiny
}

func (l tinyLog) Warningf(format string, args ...any) {
	if format == mergeFailed {
		l.t.Failed.Add(1)
	}
	l.Logger.Warningf(format, args...)
}

func (l tinyLog) Debugf(format string, args ...any) {
	switch format {
	case "[Compactor: %d] Compaction for level: %d DONE":
		l.t.Done.Add(1)
	case mergeAdded:
		l.t.Tables.Add(int64(tablesOfKeys(args)))
	}
	l.Logger.Debugf(format, args...)
}

// MergeOf does what Badger does for a merge: its parts put together tables of so many keys, and it
// hands over made. If it fails before that it does not.
func MergeOf(log *slog.Logger, failed error, made int, keys ...uint64) error {
	m := newMerges("", log)
	m.end(nil)
	m.retry = 0
	l := badgerLog{log, m}
	done := make(chan struct{})
	for _, n := range keys {
		go func() {
			l.Debugf(mergeAdded, 0, n, uint64(0), nil)
			done <- struct{}{}
		}()
	}
	for range keys {
		<-done
	}
	if failed == nil {
		set := &pb.ManifestChangeSet{Changes: []*pb.ManifestChange{{Id: 1, Op: pb.ManifestChange_DELETE}}}
		for id := range made {
			set.Changes = append(set.Changes, &pb.ManifestChange{Id: uint64(id) + 2})
		}
		_, failed = proto.Marshal(set)
	}
	if failed != nil {
		l.Warningf(mergeFailed, 0, failed, nil)
	}
	return failed
}

// CountLeft tells whether the goroutine that asks has the count of a merge. Merges of other
// goroutines have theirs while they run, those of other tests' DBs among them.
func CountLeft() bool {
	own, _ := goroutines(debug.Stack())
	_, known := unfinished.take(own)
	return known
}
