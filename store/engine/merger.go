package engine

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/table"

	"github.com/millrace/millrace/store/engine/internal/merge"
	"github.com/millrace/millrace/store/engine/internal/sstable"
)

const (
	// mergeInterval is how often it is looked whether there is something to merge.
	mergeInterval = 50 * time.Millisecond

	// mergeRetry is how long nothing is merged after a merge that failed, which may have written some MiB.
	mergeRetry = time.Second

	// levelFactor is how many times as large as the level above it a level gets.
	levelFactor = 8
)

// merger merges tables of Badger, which does not do so itself here: see the package's documentation.
type merger struct {
	d       *DB
	sizes   merge.Sizes
	builder sstable.Builder   // of what is merged
	flushes sstable.Builder   // of memtables; whoever flushes uses it
	mu      sync.Mutex        // held by whoever merges
	step    func(name string) // tests look at the files then
	quit    chan struct{}
	once    sync.Once
	done    sync.WaitGroup
}

// start begins to merge. The DB has its levels.
func (m *merger) start(d *DB) {
	m.begin(d, d.cfg.mergeSizes())
	m.done.Go(m.run)
}

func (m *merger) begin(d *DB, s merge.Sizes) {
	m.d, m.sizes, m.quit = d, s, make(chan struct{})
	m.step = func(string) {}
	opt := d.b.Opts()
	for _, b := range []*sstable.Builder{&m.builder, &m.flushes} {
		b.BlockBytes, b.FalsePositive = opt.BlockSize, opt.BloomFalsePositive
	}
}

// stop ends it, and gives up the merge at hand. Badger must not be closed before.
func (m *merger) stop() {
	m.once.Do(func() {
		close(m.quit)
		m.done.Wait()
	})
}

func (m *merger) run() {
	tick := time.NewTicker(mergeInterval)
	defer tick.Stop()
	for {
		select {
		case <-m.quit:
			return
		case <-tick.C:
		}
		for {
			more, err := m.next(merge.Choose)
			if err != nil && !errors.Is(err, merge.ErrQuit) {
				m.d.log.Error("tables could not be merged; nothing is lost, and it is tried again: look at free space, inodes, "+
					"descriptors (ulimit -n) and mappings (vm.max_map_count)", "dir", m.d.dir, "error", err)
				tick.Reset(mergeRetry)
				break
			}
			tick.Reset(mergeInterval)
			if !more || err != nil {
				break
			}
		}
	}
}

// flatten merges until all tables stand in one level.
func (m *merger) flatten() error {
	for {
		if more, err := m.next(merge.Flatten); !more || err != nil {
			return err
		}
	}
}

// sizes are those of the levels.
func (c Config) mergeSizes() merge.Sizes {
	return merge.Sizes{
		Level0Tables: level0Max, BaseBytes: baseLevelMemTables * c.MemTableBytes, Multiplier: levelFactor, TableBytes: tableBytes,
	}
}

// next carries out one plan; false if there is none.
func (m *merger) next(choose func(merge.Levels, merge.Sizes) *merge.Plan) (more bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.d
	defer func() {
		if wrong := d.Caught(recover()); wrong != nil {
			err = wrong
		}
	}()
	if d.Sound() != nil {
		return false, nil // a merge would leave out what cannot be read
	}
	plan := choose(d.levels.tables(), m.sizes)
	if plan == nil {
		return false, nil
	}
	before := mismatches.Load()
	tables, err := d.run(&m.builder, m.step).Merge(plan)
	if err != nil {
		return false, err
	}
	m.step("tables written")
	err = d.checkMerged(plan, before)
	if err == nil {
		err = syncFile(d.dir)
	}
	if err != nil {
		merge.Drop(tables)
		return false, err
	}
	if err := d.levels.replace(d.b.Opts(), plan, tables, m.step); err != nil {
		// The manifest may name either tables, so all files stay for whoever opens the DB anew.
		return false, d.fail(&DamagedError{Unsynced: true, Reason: fmt.Sprintf("tables of %s were merged, and it could not be noted: %v", d.dir, err)})
	}
	merge.Drop(tables) // Badger has its own references
	return true, nil
}

// run is how tables are made.
func (d *DB) run(b *sstable.Builder, step func(name string)) *merge.Run {
	opt := d.b.Opts()
	return &merge.Run{
		Dir: d.dir, Builder: b, Discard: d.o.lowest(), Quit: d.merger.quit, NextID: func() uint64 {
			step("table put together")
			return d.levels.nextID.Add(1) - 1
		},
		Options: table.Options{
			BlockSize: opt.BlockSize, BloomFalsePositive: opt.BloomFalsePositive, ChkMode: opt.ChecksumVerificationMode,
			Compression: options.None,
		},
	}
}

// checkMerged looks at what was merged, before it is removed: Badger leaves out what it cannot read, and nobody would find
// that later. before is how many mismatches there were before it was read.
func (d *DB) checkMerged(p *merge.Plan, before uint64) error {
	for _, t := range p.Tables() {
		if at := checkAll(t); at != nil {
			return d.fail(at.damage())
		}
	}
	if mismatches.Load() == before {
		return nil
	}
	if err := d.Sound(); err != nil {
		return err
	}
	return errors.New("a block of another DB does not have its checksum, or one of these has it again")
}

// tables returns the tables of all levels. They stay as long as nothing is merged.
func (l *levels) tables() merge.Levels {
	all := make(merge.Levels, len(l.of))
	for i := range l.of {
		l.of[i].mu.RLock()
		all[i] = *l.of[i].tables // Badger replaces the list, or appends
		l.of[i].mu.RUnlock()
	}
	return all
}

// replace puts tables in the place of those that a plan has merged.
func (l *levels) replace(opt badger.Options, p *merge.Plan, tables []*table.Table, step func(string)) error {
	var changes []*pb.ManifestChange
	for _, t := range tables {
		changes = append(changes, &pb.ManifestChange{Id: t.ID(), Op: pb.ManifestChange_CREATE, Level: uint32(p.To)})
	}
	for _, t := range p.Tables() {
		changes = append(changes, &pb.ManifestChange{Id: t.ID(), Op: pb.ManifestChange_DELETE})
	}
	if err := addChanges(l.manifest, changes, opt); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	step("manifest changed")
	// Those that are new first: a get goes from the first level to the last, and must not pass by both.
	return errors.Join(replaceTables(l.of[p.To].handler, p.Bottom, tables), deleteTables(l.of[p.From].handler, p.Top))
}

// What follows is Badger's, which shows it to nobody.

//go:linkname addChanges github.com/dgraph-io/badger/v4.(*manifestFile).addChanges
func addChanges(manifest unsafe.Pointer, changes []*pb.ManifestChange, opt badger.Options) error

//go:linkname replaceTables github.com/dgraph-io/badger/v4.(*levelHandler).replaceTables
func replaceTables(level unsafe.Pointer, toDel, toAdd []*table.Table) error

//go:linkname deleteTables github.com/dgraph-io/badger/v4.(*levelHandler).deleteTables
func deleteTables(level unsafe.Pointer, toDel []*table.Table) error
