package engine

import (
	"fmt"
	"log/slog"
	"math"
	"strings"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// Limits of what is stored.
const (
	// IndexValueMax is the longest canonical value, in bytes, that stands in an
	// index entry as it is. Longer ones are cut and hashed: two of them that share
	// their beginning and 128 bits of SHA-256 would share their entries.
	IndexValueMax = 512

	// UniqueValueMax is the same for the values of one unique key together, of
	// which longer ones are replaced by their whole SHA-256.
	UniqueValueMax = 512

	// inlineMax is the first size that Badger would put into its value log, and
	// the largest that it can be told. Nothing may get there (see KEYS.md), so
	// larger values are cut into chunks of chunkBytes.
	inlineMax  = 1 << 20
	chunkBytes = 512 << 10

	// memTableMin is the smallest memtable whose transactions (15 % of it) hold
	// one value of inlineMax.
	memTableMin = 8 << 20

	memTableDefault  = 8 << 20
	memTablesDefault = 4

	// level0Max is how many tables, each of a memtable, are written before they are
	// merged into the first level, and level0Stall how many there may be before
	// writers wait for the merge. With 3 beside 2 memtables of the level below and a levelFactor of 10,
	// merges wrote 1.4 times as much for replacements drawn from a million items, and
	// 1.5 times for orders.
	level0Max   = 6
	level0Stall = 15

	// tableBytes is how large a table of the first merged level gets.
	tableBytes = 1 << 20

	// baseLevelMemTables is how many memtables the level takes into which those are
	// merged. With 8 merges wrote a twentieth less, and the headroom was 64 MiB more.
	baseLevelMemTables = 4
)

// Config tunes a DB. Zero fields take their defaults.
type Config struct {
	// MemTableBytes is the size of one table in memory; up to MemTables of them
	// are held, each with a log of up to twice its size on disk. Default 8 MiB,
	// which is also the least; at most 512 MiB.
	MemTableBytes int64 `yaml:"memTableBytes"`

	// MemTables is how many tables in memory may wait for their flush before
	// writers do. Default 4, at least 2.
	MemTables int `yaml:"memTables"`

	// Verify reads every block of every table at Open and compares checksums. It
	// takes about a second per GiB. Default false: what was damaged after it was
	// written then shows when it is read, or by the scrub.
	Verify bool `yaml:"verify"`
}

// withDefaults returns the configuration with defaults filled in, or an error
// that lists all that is wrong.
func (c Config) withDefaults() (Config, error) {
	setDefault(&c.MemTableBytes, memTableDefault)
	setDefault(&c.MemTables, memTablesDefault)
	var wrong []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	check(c.MemTableBytes >= memTableMin && c.MemTableBytes <= 512<<20,
		"memTableBytes is %d, want 8 MiB to 512 MiB", c.MemTableBytes)
	check(c.MemTables >= 2, "memTables is %d, want at least 2", c.MemTables)
	if wrong != nil {
		return c, fmt.Errorf("engine: %s", strings.Join(wrong, "; "))
	}
	return c, nil
}

func setDefault[T int | int64](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Headroom returns how many bytes of free disk the DB may need at any moment beyond
// what it holds: logs of all memtables, and a merge of the first level. A commit that
// a full disk does not take damages the DB, so whoever
// lets commits in should stop below it. 232 MiB by default.
func (c Config) Headroom() int64 {
	setDefault(&c.MemTableBytes, memTableDefault)
	setDefault(&c.MemTables, memTablesDefault)
	// All tables of the first level that a range of it overlaps are merged at once: as many as there are before
	// writers wait, and one flush.
	const merged = level0Stall + 1
	return (int64(c.MemTables)+1+merged)*c.MemTableBytes + 2*baseLevelMemTables*c.MemTableBytes // what they overlap, twice
}

// badgerOptions returns Badger's options as measured for items of about 1 KiB.
// Without compression and block cache reads are twice as fast; the page cache does
// the rest.
//
// What takes memory is small: a memtable takes 1.3 times its size; a merge maps all that it reads. What writes tables keeps
// some hundred KiB (internal/sstable).
//
// There is one writer per key, so there are no conflicts to detect.
func (c Config) badgerOptions(dir string, log *slog.Logger) badger.Options {
	return badger.DefaultOptions(dir).
		WithLogger(badgerLog{log: log}).
		WithMemTableSize(c.MemTableBytes).
		WithNumMemtables(c.MemTables).
		WithValueThreshold(inlineMax).
		WithValueLogFileSize(2 * inlineMax).
		WithCompression(options.None).
		WithBlockCacheSize(0).
		WithChecksumVerificationMode(options.OnBlockRead).
		WithNumLevelZeroTables(level0Max).
		WithNumLevelZeroTablesStall(math.MaxInt). // flushes are ours: see DB.flush
		WithBaseTableSize(tableBytes).
		WithBaseLevelSize(baseLevelMemTables * c.MemTableBytes).
		WithDetectConflicts(false).
		WithSyncWrites(false).
		WithNumVersionsToKeep(1).
		WithNumCompactors(0). // merges are ours: see merger
		WithMetricsEnabled(false)
}

// badgerLog writes what Badger says to a slog.Logger.
type badgerLog struct {
	log *slog.Logger
}

func (l badgerLog) Errorf(format string, args ...any) {
	l.log.Error("badger", message(format, args))
}

func (l badgerLog) Warningf(format string, args ...any) {
	l.log.Warn("badger", message(format, args))
}

func (l badgerLog) Infof(format string, args ...any) {
	l.log.Debug("badger", lazy{format, args}.attr())
}

func (l badgerLog) Debugf(string, ...any) {}

// lazy formats a message only if it is written.
type lazy struct {
	format string
	args   []any
}

func (m lazy) attr() slog.Attr { return slog.Any("message", m) }

// LogValue implements slog.LogValuer.
func (m lazy) LogValue() slog.Value {
	return slog.StringValue(strings.TrimSpace(fmt.Sprintf(m.format, m.args...)))
}

func message(format string, args []any) slog.Attr { return lazy{format, args}.attr() }
