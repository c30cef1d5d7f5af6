package owner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/pace"
	"github.com/millrace/millrace/store/s3"
	"github.com/millrace/millrace/store/snapshot"
)

// SnapshotConfig tells when partitions are copied, so that an engine can be made
// without replaying their whole logs. Zero fields take their defaults.
type SnapshotConfig struct {
	// Store is where snapshots are kept, two of each partition: "directory"; "stream", which
	// is a JetStream stream with the replicas of the logs; "s3", which is a bucket; or "off",
	// which takes none and loads none. Whoever becomes the owner of a partition must find
	// them, so the default is directory for millrace up, and stream for stores of a cluster.
	Store string `yaml:"store"`

	// Directory is that of "directory", by itself enough to choose it; stores of a cluster
	// must share it. Default: snapshots in the data directory.
	Directory string `yaml:"directory"`

	// S3 is the bucket of "s3", with the keys that the sink of a projection has. The server
	// must honour If-Match and If-None-Match on PUT, as AWS, MinIO and R2 do.
	S3 s3.Config `yaml:"s3"`

	// LogBytes is how much a log must grow before a snapshot is taken while writes go on:
	// this much, and half of what the partition held at the last one, so that what is
	// written for snapshots stays a part of what is written anyway. Default 64 MiB.
	LogBytes int64 `yaml:"logBytes"`

	// Rest is after how long without a write a snapshot is taken of a log that has grown
	// by more than the partition held, and by a MiB at least. Default 15s.
	Rest time.Duration `yaml:"rest"`

	// SharePercent is the part of its time in which one process writes snapshots, one after
	// the other: it is the share of one processor. Default 20, at most 100.
	SharePercent int `yaml:"sharePercent"`
}

// Kinds of stores of snapshots, the values of SnapshotConfig.Store.
const (
	SnapshotsOff       = "off"
	SnapshotsDirectory = "directory"
	SnapshotsStream    = "stream"
	SnapshotsS3        = "s3"
)

// Kind returns where snapshots are kept. alone says that no other process can become the
// owner of this one's partitions.
func (c *SnapshotConfig) Kind(alone bool) string {
	switch {
	case c.Store != "":
		return c.Store
	case c.Directory != "" || alone:
		return SnapshotsDirectory
	}
	return SnapshotsStream
}

// Shared says whether several stores may write the snapshots of a partition one after the
// other: each finds what the others wrote, and the pointer is compared and set, so that a
// late one does not put an older snapshot in the place of one that a log was trimmed by.
func (c *SnapshotConfig) Shared(alone bool) bool {
	kind := c.Kind(alone)
	return kind == SnapshotsStream || kind == SnapshotsS3
}

// restBytesMin is how much a log must have grown before a snapshot at rest.
const restBytesMin = 1 << 20

func (c *SnapshotConfig) setDefaults() {
	if c.LogBytes == 0 {
		c.LogBytes = 64 << 20
	}
	if c.Rest == 0 {
		c.Rest = 15 * time.Second
	}
	if c.SharePercent == 0 {
		c.SharePercent = 20
	}
}

func (c *SnapshotConfig) check() error {
	var errs []error
	switch c.Store {
	case "", SnapshotsDirectory, SnapshotsStream, SnapshotsOff:
		if c.S3.Bucket != "" {
			errs = append(errs, errors.New("store.snapshots.s3.bucket is set, and store.snapshots.store is not s3"))
		}
	case SnapshotsS3:
		if err := c.S3.Check(); err != nil {
			errs = append(errs, fmt.Errorf("store.snapshots.%w", err))
		}
	default:
		errs = append(errs, fmt.Errorf("store.snapshots.store is %q; directory, stream, s3 and off are allowed", c.Store))
	}
	switch {
	case c.Directory == SnapshotsOff:
		errs = append(errs, errors.New(`store.snapshots.directory is "off"; set store.snapshots.store to off`))
	case c.Directory != "" && !filepath.IsAbs(c.Directory):
		errs = append(errs, fmt.Errorf("store.snapshots.directory is %q; a path that begins with / is expected", c.Directory))
	case c.Directory != "" && c.Store != "" && c.Store != SnapshotsDirectory:
		errs = append(errs, fmt.Errorf("store.snapshots.directory is %q, and store.snapshots.store %s has none", c.Directory, c.Store))
	}
	if c.LogBytes < 1 || c.Rest < 0 {
		errs = append(errs, errors.New("store.snapshots.logBytes must be at least 1, and store.snapshots.rest must not be negative"))
	}
	if c.SharePercent < 1 || c.SharePercent > 100 {
		errs = append(errs, fmt.Errorf("store.snapshots.sharePercent is %d; 1 to 100 are allowed", c.SharePercent))
	}
	return errors.Join(errs...)
}

// openSnapshots returns where snapshots are kept; nil if nowhere. A server without a
// directory of its own, as tests have it, keeps none unless it is told.
func (c *Config) openSnapshots(js jetstream.JetStream) (snapshot.Store, error) {
	switch kind := c.Snapshots.Kind(c.Alone); {
	case kind == SnapshotsDirectory && c.Snapshots.Directory != "":
		return snapshot.Directory(c.Snapshots.Directory), nil
	case kind == SnapshotsDirectory && c.DataDir != "":
		return snapshot.Directory(filepath.Join(c.DataDir, "snapshots")), nil
	case kind == SnapshotsStream && (c.DataDir != "" || c.Snapshots.Store != ""):
		return snapshot.Stream(js, c.Log.Replicas), nil
	case kind == SnapshotsS3:
		bucket, err := s3.New(c.Snapshots.S3)
		if err != nil {
			return nil, fmt.Errorf("store.snapshots: %w", err)
		}
		return snapshot.Bucket(bucket), nil
	}
	return nil, nil
}

// snapshotStores are the stores in which snapshots of a partition may be, the configured one first.
func (c *Config) snapshotStores() []snapshot.Store {
	if c.snapshots == nil {
		return c.others
	}
	return append([]snapshot.Store{c.snapshots}, c.others...)
}

// otherSnapshots are where the ones may be that were taken under another configuration: of
// a log that was trimmed by them they are the only beginning until there are newer ones.
func (c *Config) otherSnapshots(js jetstream.JetStream) (others []snapshot.Store) {
	kind := c.Snapshots.Kind(c.Alone)
	if kind == SnapshotsOff {
		return nil
	}
	if kind != SnapshotsDirectory && c.DataDir != "" {
		others = append(others, snapshot.Directory(filepath.Join(c.DataDir, "snapshots")))
	}
	if kind != SnapshotsStream {
		others = append(others, snapshot.Stream(js, c.Log.Replicas))
	}
	return others
}

// due tells whether a partition is to be copied: its log, which begins at first, has grown to
// logBytes, and there was no write for rested.
//
//	held 10 MiB at the last, a log that grew by   64 MiB: now
//	                                              20 MiB: when writes rest
//	                                               5 MiB: not yet
//	held 1 GiB                                    64 MiB: not yet
//	                                             512 MiB: now
//
// What it holds is not compressed, so what it grew by is counted by what it is when it is replayed.
func (c *SnapshotConfig) due(last *store.SnapshotState, at, first feed.LSN, logBytes uint64, packed *compression, rested time.Duration) bool {
	grown, held := logBytes, uint64(0)
	if last != nil {
		if last.LSN >= at {
			return false
		}
		held, grown = last.Bytes, grownSince(last.LSN, last.LogBytes, at, first, logBytes)
	}
	grown = packed.plainBytes(grown)
	return grown >= max(uint64(c.LogBytes), held/2) || rested >= c.Rest && grown > max(held, restBytesMin)
}

// grownSince tells how much of a log, which holds logBytes from first to at, stands behind a
// snapshot at which it had so many bytes.
//
//	200 KiB at LSN 495, 300 KiB from 1 to 900      100: nothing went
//	200 KiB at LSN 495, 300 KiB from 496 to 900    300: all that it had has gone
//	200 KiB at LSN 495, 150 KiB from 400 to 500    some has gone: 5 commits of 101 stand
//	                                               behind the snapshot, 7 KiB, not 150
//
// The last one follows each trim to the older of two snapshots. One that has grown again
// beyond what it was cannot be told from the first, and counts for less than it is.
func grownSince(snapshot feed.LSN, before uint64, at, first feed.LSN, logBytes uint64) uint64 {
	switch {
	case first > snapshot || at < first || at < snapshot:
		return logBytes
	case before <= logBytes:
		return logBytes - before
	}
	return logBytes / uint64(at-first+1) * uint64(at-snapshot)
}

const snapshotInterval = time.Second

// snapshotLoop copies the partitions of this process, one after the other.
func (s *Server) snapshotLoop(ctx context.Context) {
	if s.cfg.snapshots == nil {
		return
	}
	pacer := pace.New(float64(s.cfg.Snapshots.SharePercent)/100, func() {})
	t := time.NewTicker(snapshotInterval)
	defer t.Stop()
	wrote := map[*Partition]lastWrite{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.pinAsked:
			s.servePins(ctx)
			continue
		case <-t.C:
		}
		seen := map[*Partition]lastWrite{}
		for _, p := range s.partitions() {
			at := p.state.Load().lsn
			w, known := wrote[p]
			if !known || w.lsn != at {
				w = lastWrite{at, time.Now()}
			}
			seen[p] = w
			if p.closedFor.Load() == nil && p.trouble.Load() == nil && s.snapshotDue(ctx, p, w) {
				// Not beside a split that loads: what a snapshot sees keeps the engine from taking tables in, and a load by
				// commits fills its levels, for which all its writers wait.
				end, err := s.takeCopyTurn(ctx)
				if err != nil {
					return
				}
				pacer.Resume()
				_, _ = s.takeSnapshot(ctx, p, pacer) // it has told what is wrong
				end()
				s.servePins(ctx) // who waits need not wait for all partitions
			}
		}
		wrote = seen
	}
}

// lastWrite is the last commit of a partition that was seen, and when it was seen first.
type lastWrite struct {
	lsn feed.LSN
	at  time.Time
}

func (s *Server) snapshotDue(ctx context.Context, p *Partition, w lastWrite) bool {
	if p.copied.Load() == nil {
		all, _, err := snapshot.Newest(ctx, s.cfg.snapshots, p.id)
		if err != nil {
			// What is there is not known, so it is taken for nothing, and looked at again now and then.
			p.log.Warn("snapshots cannot be read", "error", err)
		}
		state := &store.SnapshotState{}
		if len(all) > 0 && all[0].Log == p.feed.ID() {
			state = snapshotState(all[0])
		} else {
			p.doubt()
		}
		p.copied.CompareAndSwap(nil, state)
		_ = p.notePins(ctx) // it is logged
	}
	if at := p.doubted.Load(); at > 0 && time.Now().UnixNano() >= at {
		// Until it is known, or another one is taken, which may fail: but not every second.
		p.doubted.Store(time.Now().Add(s.cfg.Snapshots.Rest).UnixNano())
		if s.newestLacks(ctx, p) {
			return true
		}
	}
	last, first := p.copied.Load(), feed.LSN(0)
	if shape := p.shape.Load(); shape != nil {
		first = shape.First
	}
	return s.cfg.Snapshots.due(last, w.lsn, first, p.logBytes.Load(), &p.compression, time.Since(w.at)) && s.roomForSnapshot(int64(last.Stored)) == nil
}

// roomForSnapshot refuses to write what would bring the disk near the reserve, below which
// writes are refused.
func (s *Server) roomForSnapshot(bytes int64) error {
	dir := cmp.Or(s.cfg.Snapshots.Directory, s.cfg.DataDir)
	if s.cfg.Snapshots.Kind(s.cfg.Alone) == SnapshotsStream {
		dir = s.cfg.LogDir // "" where the servers are others', which refuse by themselves
	}
	if s.cfg.DiskReserve < 0 || dir == "" {
		return nil
	}
	free, err := freeBytes(dir)
	if err != nil {
		return nil //nolint:nilerr // it is not there yet; whoever makes it learns what is wrong
	}
	if need := s.cfg.DiskReserve + s.cfg.DiskReserve/diskSlack + bytes; free < need {
		return fmt.Errorf("%d MiB are free below %s, and %d MiB must be (store.diskReserve)", free>>20, dir, need>>20)
	}
	return nil
}

func snapshotState(m *snapshot.Manifest) *store.SnapshotState {
	return &store.SnapshotState{
		ID: m.ID(), LSN: m.LSN, Taken: m.Taken, Entries: m.Entries, Bytes: m.Bytes, Stored: m.Stored(), LogBytes: m.LogBytes,
	}
}

// takeSnapshot copies one partition. One that fails is tried again when the log has grown
// as much again: a store that is away must not be asked every second.
func (s *Server) takeSnapshot(ctx context.Context, p *Partition, pacer *pace.Pacer) (*snapshot.Manifest, error) {
	h := s.enter()
	if h == nil {
		return nil, errStopped
	}
	defer h.users.Done()
	// A rest may be long, and who makes a damaged engine anew waits until nobody uses it.
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(h.over, func() { stop(errStopped) })() //nolint:contextcheck // the home is a scope of its own
	began := time.Now()
	m, err := s.writeSnapshot(ctx, p, func() error {
		if p.isClosed() {
			return errStopped
		}
		if err := s.roomForSnapshot(snapshotSlack); err != nil {
			return err
		}
		return pacer.Pace(ctx)
	})
	if m != nil {
		p.copied.Store(snapshotState(m))
		p.readWhole.Store(m.ID(), true) // it is read back before it counts
		p.counted.Store(&countedSnapshot{m.ID(), m.Items()})
		p.doubted.Store(0)
		meters.snapshots.Add(ctx, 1)
		meters.snapshotBytes.Add(ctx, int64(m.Stored()))
		p.log.Info("snapshot taken", "lsn", uint64(m.LSN), "entries", m.Entries, "bytes", m.Bytes, "stored", m.Stored(),
			"took", time.Since(began).Round(time.Millisecond))
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, errStopped) {
		return m, err
	}
	if m != nil {
		p.log.Warn("what an older snapshot takes could not be freed; the next one tries again", "error", err)
		return m, nil
	}
	meters.snapshotsFailed.Add(ctx, 1)
	p.log.Error("no snapshot could be taken; the one before stays", "error", err, "store", s.cfg.snapshots.String())
	var failed store.SnapshotState
	if last := p.copied.Load(); last != nil {
		failed = *last
	}
	failed.LogBytes, failed.Failed = p.logBytes.Load(), err.Error()
	p.copied.Store(&failed)
	return nil, err
}

// snapshotSlack is what must be free beyond the reserve for the part that is written next.
const snapshotSlack = 16 << 20

func (s *Server) writeSnapshot(ctx context.Context, p *Partition, turn func() error) (m *snapshot.Manifest, err error) {
	defer func() {
		if wrong := p.engine.Caught(recover()); wrong != nil {
			m, err = nil, wrong
		}
	}()
	source, _, refusal := p.wholeSnapshot(ctx)
	if refusal != nil { // ctx has ended, or the partition
		return nil, fmt.Errorf("%w: %s", errStopped, refusal.Message)
	}
	defer source.Close()
	return snapshot.Write(ctx, s.cfg.snapshots, p.id, source, p.logBytes.Load(), turn, p.engine.Sound)
}

// loadSnapshot makes the state of a partition whose engine holds nothing that counts. It takes the
// newest snapshot that is whole, is of the log's history, and reaches the log's beginning. The
// state is zero if there is none: then the log is replayed from its beginning, if that is
// there.
func (p *Partition) loadSnapshot(ctx context.Context, shape *feed.Shape) (engine.State, error) {
	for _, from := range p.cfg.snapshotStores() {
		if state, err := p.loadSnapshotFrom(ctx, from, shape); err != nil || state.Applied > 0 || shape.Begin() == 1 {
			return state, err
		}
	}
	return engine.State{}, nil
}

// loadSnapshotFrom is loadSnapshot of the snapshots in one store.
func (p *Partition) loadSnapshotFrom(ctx context.Context, from snapshot.Store, shape *feed.Shape) (engine.State, error) {
	all, damage, err := snapshot.Newest(ctx, from, p.id)
	if err != nil {
		return p.withoutSnapshots(ctx, shape, err)
	}
	for _, d := range damage {
		p.log.Error("a snapshot cannot be used", "error", d)
		p.doubt()
	}
	// The owner before this one may still be at work. A snapshot is compared with a log that
	// was asked for later than it:
	//
	//	the log ends at 10
	//	                      appended: 11; a snapshot as of 11 is named
	//	snapshots are read: 11 is not in a log that ended at 10, and nothing is damaged
	if slices.ContainsFunc(all, func(m *snapshot.Manifest) bool { return m.Log == shape.Log && m.LSN > shape.Last }) {
		if shape, err = p.feed.Shape(ctx); err != nil {
			return engine.State{}, fmt.Errorf("partition %s: %w", p.id, err)
		}
	}
	if p.cfg.distrusted.Why(p.id) != "" {
		// Its owner may have taken the newest one when it was wrong already. Those below the trim point stay where they are.
		reaches := func(m *snapshot.Manifest) bool { return m.LSN+1 >= shape.Begin() }
		slices.SortStableFunc(all, func(a, b *snapshot.Manifest) int {
			if reaches(a) && reaches(b) {
				return cmp.Compare(a.LSN, b.LSN)
			}
			return cmp.Compare(b.LSN, a.LSN)
		})
	}
	for _, m := range all {
		if m.Log != shape.Log {
			continue // of a log that was there before
		}
		if m.LSN > shape.Last {
			damage := p.lost(shape, "a snapshot holds what LSN %d to %d made, and they are not in its log: "+
				"the stream was restored older or has lost its end", shape.Last+1, m.LSN)
			damage.need = m.LSN
			return engine.State{}, damage
		}
		reason, err := p.diverges(ctx, shape, m.State())
		if err != nil {
			return engine.State{}, err
		}
		if m.LSN+1 < shape.Begin() {
			reason = fmt.Sprintf("it is of LSN %d, and the log was trimmed since and begins at LSN %d", m.LSN, shape.Begin())
		}
		if reason != "" {
			p.log.Error("a snapshot cannot be used", "snapshot", m.ID(), "error", reason)
			p.unusable.Store(m.ID(), true)
			p.doubt()
			continue
		}
		began := time.Now()
		err = p.loadInto(ctx, from, m, shape.Begin() == 1)
		if err == nil {
			p.log.Info("snapshot loaded", "lsn", uint64(m.LSN), "entries", m.Entries, "bytes", m.Bytes, "took", time.Since(began).Round(time.Millisecond))
			meters.snapshotsLoaded.Add(ctx, 1)
			return p.engine.State()
		}
		if _, full := errors.AsType[*engine.NoRoomError](err); full {
			return engine.State{}, err // to replay the log would take as much room, and more
		}
		if ctx.Err() != nil || errors.Is(err, engine.ErrClosed) || errors.Is(err, engine.ErrNotCleared) {
			return engine.State{}, err
		}
		if _, damaged := errors.AsType[*snapshot.DamagedError](err); !damaged {
			return p.withoutSnapshots(ctx, shape, err)
		}
		p.log.Error("a snapshot cannot be used", "snapshot", m.ID(), "error", err)
		// It was read back when it was taken, so it counts for a trim. What it held is now in an
		// older one, in the log, and in the engine that is made of both.
		p.unusable.Store(m.ID(), true)
		p.doubt()
	}
	return engine.State{}, nil
}

// withoutSnapshots decides how to go on where snapshots cannot be read now, as while their stream
// chooses a leader. A log that holds everything is replayed from its beginning: the partition
// opens later, but it opens. A trimmed log has no other beginning than the snapshots, so the
// opening fails and is tried again.
func (p *Partition) withoutSnapshots(ctx context.Context, shape *feed.Shape, err error) (engine.State, error) {
	if ctx.Err() != nil || shape.Begin() > 1 {
		return engine.State{}, fmt.Errorf("partition %s: read its snapshots: %w", p.id, err)
	}
	p.log.Error("snapshots cannot be read now; the log is replayed from its beginning", "error", err)
	return engine.State{}, nil
}
