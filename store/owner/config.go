package owner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/digest"
	"github.com/millrace/millrace/store/featurelevel"
	"github.com/millrace/millrace/store/query"
	"github.com/millrace/millrace/store/script"
	"github.com/millrace/millrace/store/snapshot"
)

// DiskReserveDefault is the default of Config.DiskReserve. It is more than
// engine.Config's Headroom.
const DiskReserveDefault = 1 << 30

// Config tunes a Server and its partitions. Zero fields take their defaults. Nothing
// changes it after NewServer.
type Config struct {
	// QueueMax bounds the requests that wait to be decided in one partition; a
	// request beyond it is refused with 429. Default 4096.
	QueueMax int `yaml:"queueMax"`

	// CommitItemsMax bounds the changes of one commit. Default 4000.
	CommitItemsMax int `yaml:"commitItemsMax"`

	// PageItemsMax bounds the items that one fan-out page changes while no client
	// writes. Default 500, at most 2000.
	PageItemsMax int `yaml:"pageItemsMax"`

	// PageItemsBusy bounds them while clients write. Default 32.
	PageItemsBusy int `yaml:"pageItemsBusy"`

	// PageShare is how many commits of clients may pass between two pages of a
	// waiting fan-out. Default 4; 0 is the default, so 1 is the largest share.
	PageShare int `yaml:"pageShare"`

	// QueriesMax bounds the queries under way in one partition; others wait, for
	// queryTime at most. Default 16.
	QueriesMax int `yaml:"queriesMax"`

	// QueriesBytesMax bounds the bytes that all queries under way in the process hold together,
	// beyond 64 KiB of each: rows, groups and the values that they make for one item. A query that
	// needs more when others hold the rest is refused with 429, one that needs more alone with
	// 400. Default 256 MiB; with memory.limit a quarter of it where that is less. At least 1 MiB.
	QueriesBytesMax int `yaml:"queriesBytesMax"`

	// QueryPageTime is after how long a page of a query ends with what it has, if its
	// rows can be given as they come. Default 1s.
	QueryPageTime time.Duration `yaml:"queryPageTime"`

	// QueryTime is after how long a query is refused that has to read all items before
	// its first row, for ORDER BY without an index, DISTINCT, GROUP BY or aggregates.
	// Default 5s.
	QueryTime time.Duration `yaml:"queryTime"`

	// SyncInterval is the time between two syncs of the engine; a restart after
	// an unclean stop replays at most this much of the log, or SyncBytes. Default 2s.
	SyncInterval time.Duration `yaml:"syncInterval"`

	// ExpiryInterval is the longest time between an item's expiry and its delete
	// in the change feed; reads do not see it from the expiry on. Default 1s.
	ExpiryInterval time.Duration `yaml:"expiryInterval"`

	// CheckInterval is the time between two looks at whether each log still has all
	// that was applied. Default 5s.
	CheckInterval time.Duration `yaml:"checkInterval"`

	// ClockAheadMax is how far this machine's clock may be ahead of that of the log's
	// server. Beyond it writes are refused, because time in a log only moves on and lets
	// items expire. Within it commits have the server's time, so that all owners have one
	// clock. Default 10s; negative turns the check off, and commits have this machine's time.
	ClockAheadMax time.Duration `yaml:"clockAheadMax"`

	// Scrub tells how logs and the engine are read to find what has changed on disk.
	Scrub ScrubConfig `yaml:"scrub"`

	// DigestInterval is the time between two comparisons of what a partition's owner holds with what its
	// standbys hold. Each reads the partition once, at the owner and at the standby, in a tenth of a processor, and
	// writes two small commits; a partition that was not written to since is left out for 24 intervals. Default 1h;
	// negative compares none.
	DigestInterval time.Duration `yaml:"digestInterval"`

	// Snapshots tells when partitions are copied, so that an engine can be made without
	// replaying their whole logs.
	Snapshots SnapshotConfig `yaml:"snapshots"`

	// TrimBytes is how much of a log must be free to go before it is trimmed while writes go
	// on: each time costs a commit. At rest 64 KiB are enough. Default 4 MiB.
	TrimBytes int64 `yaml:"trimBytes"`

	// SplitBytes is from what size on a partition is split in two by its owner, without anybody asking, about in
	// the middle of what it holds, in bytes, as its newest snapshot says: items, indexes and records, not compressed.
	// One in which a single partition key has nearly all is not. Default 0, which is never: each partition has a log
	// that syncs by itself, so where all logs are on one disk a split adds syncs and takes no load from the disk. It
	// helps where there are stores and NATS servers for the new partitions to go to. At least 64 MiB: a snapshot is
	// taken only after as much log, so a smaller size is not seen before, and leaves many logs with little in each.
	SplitBytes int64 `yaml:"splitBytes"`

	// CompressBytesMin is how many bytes the transactions of a commit must have to be compressed in
	// the log, which is done where the data's feature level allows it and an eighth is saved.
	// Default 2 KiB; negative compresses none.
	CompressBytesMin int `yaml:"compressBytesMin"`

	// DiskReserve is the free space, in bytes, below which writes are refused with
	// 507, on the disk of the data directory and on that of the embedded server's
	// logs. The engine may need 232 MiB at once with its defaults, and on a disk that is
	// full then its partitions answer nothing until there is room. The load of a snapshot
	// leaves as much free, and waits until it can. Default 1 GiB; negative turns the guard off.
	DiskReserve int64 `yaml:"diskReserve"`

	// RuleCacheBytes bounds what all partitions of the process keep in memory of the
	// accumulators and targets of aggregates, which are else read again for each
	// change. Default 32 MiB.
	RuleCacheBytes int `yaml:"ruleCacheBytes"`

	// DataDir and LogDir are the directories whose disks DiskReserve guards; ""
	// is none.
	DataDir string `yaml:"-"`
	LogDir  string `yaml:"-"`

	// Log is the configuration of the partitions' logs.
	Log feed.LogConfig `yaml:"-"`

	// Alone says that no other process can become the owner of this one's partitions, so
	// that nobody else needs their snapshots.
	Alone bool `yaml:"-"`

	// Holds tells who reads the partitions' logs and how far, so that nothing is trimmed
	// that somebody has not read. May be nil: nobody.
	Holds Holds `yaml:"-"`

	// Standbys are the copies that this process keeps of partitions of others. They yield before a
	// partition is opened. May be nil: there are none.
	Standbys Standbys `yaml:"-"`

	// Local is where this process's clients find the partitions. May be nil.
	Local *store.Local `yaml:"-"`

	// Queries is the room that QueriesBytesMax is the size of, where others of the process share it.
	// May be nil: the partitions of a server have one of their own.
	Queries *query.Room `yaml:"-"`

	// Scripts runs the functions that queries call. May be nil: such queries are refused.
	Scripts *script.Engine `yaml:"-"`

	// Logger gets what an operator should know. Default slog.Default.
	Logger *slog.Logger `yaml:"-"`

	// level is that of the data. Server.Run follows it.
	level *featurelevel.Known
	// openLog opens the log of another partition.
	openLog func(context.Context, feed.Partition) (Log, error)

	// caches is what RuleCacheBytes allows, shared by the partitions of a server.
	caches *cacheBudget

	// distrusted are the copies in the engine that nobody goes on from.
	distrusted *digest.Distrusted

	// snapshots is where Snapshots says; nil is nowhere. others is where another store that
	// was the owner for a while, or this one before its configuration was changed, may have
	// left the only ones by which a trimmed log is begun.
	snapshots snapshot.Store
	others    []snapshot.Store

	// now is the wall clock in unix milliseconds, loadReserve the free space, in bytes, that the load of a
	// snapshot leaves, and splitBytesMin the least SplitBytes; tests replace them.
	now           func() int64
	loadReserve   func() int64
	splitBytesMin int64
}

// QueriesBytesDefault is the default of Config.QueriesBytesMax, QueriesBytesMin the least, in bytes.
const (
	QueriesBytesDefault = 256 << 20
	QueriesBytesMin     = 1 << 20
)

// idempotencyWindow is for how long the log remembers an idempotency key. It is
// no setting, because state is a function of the log alone.
const idempotencyWindow = time.Hour

func (c Config) withDefaults() (Config, error) {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.QueueMax, 4096)
	def(&c.CommitItemsMax, 4000)
	def(&c.PageItemsMax, 500)
	def(&c.PageItemsBusy, 32)
	def(&c.PageShare, 4)
	def(&c.QueriesMax, 16)
	def(&c.QueriesBytesMax, QueriesBytesDefault)
	if c.Queries == nil {
		c.Queries = query.NewRoom(int64(c.QueriesBytesMax))
	}
	def(&c.RuleCacheBytes, 32<<20)
	c.caches = &cacheBudget{bytes: c.RuleCacheBytes}
	if c.QueryPageTime == 0 {
		c.QueryPageTime = time.Second
	}
	if c.QueryTime == 0 {
		c.QueryTime = 5 * time.Second
	}
	if c.SyncInterval == 0 {
		c.SyncInterval = 2 * time.Second
	}
	if c.ExpiryInterval == 0 {
		c.ExpiryInterval = time.Second
	}
	if c.CheckInterval == 0 {
		c.CheckInterval = 5 * time.Second
	}
	if c.ClockAheadMax == 0 {
		c.ClockAheadMax = 10 * time.Second
	}
	def(&c.Scrub.SharePercent, 2)
	if c.Scrub.Interval == 0 {
		c.Scrub.Interval = time.Minute
	}
	if c.DigestInterval == 0 {
		c.DigestInterval = time.Hour
	}
	c.distrusted = new(digest.Distrusted)
	c.Snapshots.setDefaults()
	def(&c.CompressBytesMin, compressBytesMin)
	c.level = new(featurelevel.Known)
	if c.TrimBytes == 0 {
		c.TrimBytes = trimBytesMin
	}
	if c.splitBytesMin == 0 {
		c.splitBytesMin = splitBytesMin
	}
	if c.DiskReserve == 0 {
		c.DiskReserve = DiskReserveDefault
	}
	if c.loadReserve == nil {
		reserve := max(c.DiskReserve, 0)
		c.loadReserve = func() int64 { return reserve }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.now == nil {
		c.now = func() int64 { return time.Now().UnixMilli() }
	}
	return c, c.check()
}

// check names every key whose value cannot be, not only the first.
func (c *Config) check() error {
	var errs []error
	if c.PageItemsMax > pageItemsLimit || c.PageItemsMax < 1 {
		errs = append(errs, fmt.Errorf("store.pageItemsMax is %d; 1 to %d are allowed", c.PageItemsMax, pageItemsLimit))
	}
	if c.PageItemsBusy < 1 || c.PageItemsBusy > c.PageItemsMax {
		errs = append(errs, fmt.Errorf("store.pageItemsBusy is %d; 1 to pageItemsMax (%d) are allowed", c.PageItemsBusy, c.PageItemsMax))
	}
	if c.RuleCacheBytes < 0 {
		errs = append(errs, errors.New("store.ruleCacheBytes must not be negative"))
	}
	if c.QueueMax < 1 || c.CommitItemsMax < store.BatchOpsMax || c.PageShare < 1 {
		errs = append(errs, fmt.Errorf("store.queueMax and store.pageShare must be at least 1, store.commitItemsMax at least %d", store.BatchOpsMax))
	}
	if c.QueriesBytesMax < QueriesBytesMin {
		errs = append(errs, fmt.Errorf("store.queriesBytesMax is %d bytes; at least 1MiB is expected", c.QueriesBytesMax))
	}
	if c.QueriesMax < 1 || c.QueryPageTime < 0 || c.QueryTime < c.QueryPageTime {
		errs = append(errs, errors.New("store.queriesMax must be at least 1, and store.queryTime at least store.queryPageTime"))
	}
	if c.SyncInterval < 0 || c.ExpiryInterval < 0 || c.CheckInterval < 0 {
		errs = append(errs, errors.New("store.syncInterval, store.expiryInterval and store.checkInterval must not be negative"))
	}
	if c.Scrub.SharePercent < 1 || c.Scrub.SharePercent > 100 || c.Scrub.Interval < 0 {
		errs = append(errs, fmt.Errorf("store.scrub.sharePercent is %d; 1 to 100 are allowed, and store.scrub.interval must not be negative", c.Scrub.SharePercent))
	}
	if c.TrimBytes < 1 {
		errs = append(errs, errors.New("store.trimBytes must be at least 1"))
	}
	if c.SplitBytes != 0 && c.SplitBytes < c.splitBytesMin {
		errs = append(errs, fmt.Errorf("store.splitBytes is %d bytes; 0, which is never, or at least %d MiB is expected", c.SplitBytes, splitBytesMin>>20))
	}
	if c.SplitBytes > 0 && c.Snapshots.Store == SnapshotsOff {
		errs = append(errs, errors.New("store.splitBytes is set, and store.snapshots.store is off; partitions are split by snapshots"))
	}
	errs = append(errs, c.Snapshots.check())
	return errors.Join(errs...)
}
