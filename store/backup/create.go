package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/pace"
	"github.com/millrace/millrace/store/snapshot"
)

// Source is the store that is copied.
type Source struct {
	JetStream jetstream.JetStream
	Client    *store.Client
	Log       feed.LogConfig
	// Pipelines is the bucket of the pipelines' records, and PipelineKeys the subject of
	// their keys. A bucket that is not there has none.
	Pipelines, PipelineKeys string
	Program                 string // the version of the program, for the manifest
	// Progress is called now and then from several goroutines; nil for nobody.
	Progress func(Progress)
}

// Progress tells how far long work is.
type Progress struct {
	Partitions, Of int    // done
	Bytes          uint64 // sent or read
	Total          uint64 // of which it will be about so many; 0: not known
	What           string // partition at hand
}

// Result tells what Create did.
type Result struct {
	*Backup
	// Skipped are containers that are being made or deleted, and are not in the backup.
	Skipped []string
	// Damaged are manifests of earlier backups that cannot be read.
	Damaged []error
	// Notes say what was not as it should be, and what was taken in its place.
	Notes []string
}

// AnotherStoreError says that a place holds the backups of another store.
type AnotherStoreError struct{ Place, Holds, Store string }

func (e *AnotherStoreError) Error() string {
	return fmt.Sprintf("%s holds backups of another store, whose catalog was made at %s; this one's was made at %s. Name another directory", e.Place, e.Holds, e.Store)
}

const (
	// parallel is how many partitions are copied at once.
	parallel = 4
	// attempts is how often the copy of a partition begins again because its snapshot went,
	// or its log was trimmed, meanwhile.
	attempts = 5
	// tailMin is how much log may stand behind a base whatever its size, in bytes.
	tailMin = 64 << 20
)

// Identity returns what tells a store from others: when its catalog was made.
func Identity(ctx context.Context, js jetstream.JetStream) (string, error) {
	stream, err := js.Stream(ctx, "KV_"+store.CatalogBucket)
	if err != nil {
		return "", fmt.Errorf("the stream of the catalog: %w", err)
	}
	return stream.CachedInfo().Created.UTC().Format(time.RFC3339Nano), nil
}

// errPruned says that a prune may have deleted objects that this backup found and did not send.
var errPruned = errors.New("backups of the place were pruned meanwhile; run it again")

// Create makes a backup of a store that goes on working. After an error, and after a
// crash, what was sent stays and is used by the next Create in the same place.
func Create(ctx context.Context, place snapshot.Store, src *Source) (*Result, error) {
	for attempt := 1; ; attempt++ {
		r, err := createOnce(ctx, place, src)
		if !errors.Is(err, errPruned) || attempt == attempts {
			return r, err
		}
	}
}

func createOnce(ctx context.Context, place snapshot.Store, src *Source) (*Result, error) {
	identity, err := Identity(ctx, src.JetStream)
	if err != nil {
		return nil, err
	}
	c := &creator{src: src, place: place, known: map[string]Segment{}, former: map[string]*Partition{}}
	result := &Result{Backup: &Backup{Store: identity, Program: src.Program, Began: time.Now().UTC()}}
	if result.Damaged, err = c.openPlace(ctx, identity); err != nil {
		return nil, err
	}
	containers, err := src.Client.Catalog().List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range containers {
		if containers[i].State != store.ContainerReady {
			result.Skipped = append(result.Skipped, containers[i].Database+"/"+containers[i].Name)
			continue
		}
		c.containers = append(c.containers, containers[i])
	}
	if result.Partitions, err = c.copyPartitions(ctx); err != nil {
		return nil, err
	}
	if err := c.copyRecords(ctx, result); err != nil {
		return nil, err
	}
	result.Ended, result.Sent, result.Notes = time.Now().UTC(), c.sent, c.notes
	result.ID = result.Began.Format("20060102T150405.000000Z")
	return result, c.publish(ctx, result.Backup)
}

// publish writes the manifest, and sees that it counts.
func (c *creator) publish(ctx context.Context, b *Backup) error {
	b.Epoch = c.epoch
	data, err := encodeBackup(b)
	if err != nil {
		return err
	}
	name := backupsFolder + b.ID + ".json"
	if err := c.place.Replace(ctx, name, data, ""); err != nil {
		return fmt.Errorf("write %s to %s: %w", name, c.place, err)
	}
	// The mark is read behind the write: a prune that begins after this look finds the
	// manifest, and one that began before has raised the epoch, which shows here.
	if _, err := readBackup(ctx, c.place, b.ID); err != nil {
		return fmt.Errorf("%s does not give back what was written: %w", c.place, err)
	}
	m, err := readMark(ctx, c.place)
	if err != nil {
		return err
	}
	if m.counts(b) {
		return nil
	}
	return errors.Join(errPruned, c.place.Remove(ctx, name))
}

// creator is one run of Create.
type creator struct {
	// Set by Create.
	src        *Source
	place      snapshot.Store
	containers []store.ContainerInfo
	epoch      uint64                // of the place
	known      map[string]Segment    // by name, of earlier backups
	former     map[string]*Partition // of the newest backup

	// Guarded by mu.
	mu    sync.Mutex
	done  int
	of    int
	sent  uint64
	total uint64
	notes []string
}

// openPlace finds what the place holds, or marks an empty one as this store's.
func (c *creator) openPlace(ctx context.Context, identity string) (damage []error, err error) {
	m, err := readMark(ctx, c.place)
	if _, none := errors.AsType[*NoBackupsError](err); none {
		if err = writeMark(ctx, c.place, &mark{Format: format, Store: identity}); err == nil {
			return nil, nil
		}
		if !errors.Is(err, snapshot.ErrChanged) {
			return nil, err
		}
		m, err = readMark(ctx, c.place) // another was faster
	}
	if err != nil {
		return nil, err
	}
	if m.Store != identity {
		return nil, &AnotherStoreError{c.place.String(), m.Store, identity}
	}
	if m, err = awaitPrune(ctx, c.place, m); err != nil {
		return nil, err
	}
	c.epoch = m.Epoch
	if err := sweep(ctx, c.place); err != nil {
		return nil, err
	}
	all, damage, err := List(ctx, c.place)
	if err != nil {
		return nil, err
	}
	for _, b := range all {
		for i := range b.Partitions {
			p := &b.Partitions[i]
			id, err := p.id()
			if err != nil {
				return nil, fmt.Errorf("backup %s: %w", b.ID, err)
			}
			c.former[p.Partition] = p
			for _, s := range p.Segments {
				c.known[logFolder(id, p.Log)+s.file()] = s
			}
		}
	}
	return damage, nil
}

// copyPartitions copies all partitions.
func (c *creator) copyPartitions(ctx context.Context) ([]Partition, error) {
	var all []Partition
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	var mu sync.Mutex
	for i := range c.containers {
		c.of += len(c.containers[i].Partitions)
	}
	for i := range c.containers {
		ct, err := c.src.Client.Open(c.containers[i])
		if err != nil {
			return nil, err
		}
		for _, id := range ct.Partitions() {
			g.Go(func() error {
				p, err := c.copyPartition(ctx, ct, id)
				if err != nil {
					return fmt.Errorf("container %s/%s, partition %s: %w", ct.Info().Database, ct.Info().Name, id, err)
				}
				mu.Lock()
				defer mu.Unlock()
				if p != nil {
					all = append(all, *p)
				}
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Partition) int { return strings.Compare(a.Partition, b.Partition) })
	return all, nil
}

// copyPartition copies one partition; nil if its container was deleted meanwhile.
func (c *creator) copyPartition(ctx context.Context, ct *store.Container, id feed.Partition) (*Partition, error) {
	// back is which snapshot is taken, from the newest on; gone is the last of which a part was
	// gone, worst the newest one, which is damaged.
	back, gone, worst := 0, "", ""
	for attempt := 1; ; attempt++ {
		// What the backup before names may be gone from it, and from the owner too: it is
		// tried once, and the newest snapshot serves always.
		former := c.former[id.String()]
		if attempt > 1 {
			former = nil
		}
		p, err := c.tryPartition(ctx, ct, id, former, back)
		bad, unusable := errors.AsType[*baseError](err)
		if unusable && errors.Is(err, errMoved) && bad.id != gone {
			gone, unusable = bad.id, false // it is most likely not the newest any more
		}
		switch {
		case attempt < attempts && (unusable || back > 0 && (errors.Is(err, errMoved) || errors.Is(err, errHeadless))):
			if back++; unusable && back == 1 {
				worst = bad.id
				c.note(id, "%v; what is older is taken, and more of the log", err)
				continue
			}
			// The log behind the older one is gone, or it is damaged as well. The owner was told
			// by the question for it, and takes a new one if it finds the same.
			c.note(id, "there is no other one that serves (%v); a new snapshot is waited for", err)
			if err := c.awaitNewer(ctx, ct, id, worst); err != nil {
				return nil, err
			}
			back = 0
		case err == nil:
			c.partitionDone(id)
			return p, nil
		case errors.Is(err, feed.ErrNoLog) && c.deleted(ctx, ct):
			c.partitionDone(id)
			return nil, nil
		case attempt == attempts || !errors.Is(err, errMoved) && !errors.Is(err, errHeadless):
			return nil, err
		}
	}
}

// baseError says that a snapshot cannot be copied, because what its owner reads of it is not
// what was written.
type baseError struct {
	id  string
	err error
}

func (e *baseError) Error() string { return e.err.Error() }
func (e *baseError) Unwrap() error { return e.err }

func (c *creator) note(id feed.Partition, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes = append(c.notes, fmt.Sprintf("partition "+id.String()+": "+format, args...))
}

// newerWithin is how long an owner gets to take a snapshot in the place of a damaged one.
const newerWithin = 2 * time.Minute

// awaitNewer waits until the newest snapshot of the owner is not the one that is damaged.
func (c *creator) awaitNewer(ctx context.Context, ct *store.Container, id feed.Partition, damaged string) error {
	for began := time.Now(); time.Since(began) < newerWithin; {
		is, err := c.newestSnapshot(ctx, ct, id, 0)
		if err != nil || is == nil || is.ID() != damaged {
			return err
		}
		if err := pace.Pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("snapshot %s is damaged, and its owner has taken no other one in %s: describe container tells why", damaged, newerWithin)
}

// errMoved says that what was being copied is not there any more, and something newer is.
var errMoved = errors.New("it was replaced while it was copied")

// errHeadless says that of a log no state can be made. One that was trimmed between the
// look at the owner's snapshots and that at the log has a newer snapshot now.
var errHeadless = errors.New("the beginning of its log is gone, and its owner has no snapshot of it: see store.snapshots.directory")

// deleted tells whether a container was deleted meanwhile.
func (c *creator) deleted(ctx context.Context, ct *store.Container) bool {
	info := ct.Info()
	now, err := c.src.Client.Catalog().Get(ctx, info.Database, info.Name)
	return errors.Is(err, store.ErrNotFound) || err == nil && (now.ID != info.ID || now.State == store.ContainerDeleting)
}

// tryPartition copies a partition once. It continues former, the partition in the backup before, unless
// that is nil or does not serve (goesOn).
func (c *creator) tryPartition(ctx context.Context, ct *store.Container, id feed.Partition, former *Partition, back int) (*Partition, error) {
	log, err := feed.OpenLog(ctx, c.src.JetStream, id, c.src.Log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	// The snapshot before the log: its LSN is in the log then, because both only move on. A
	// trim between the two shows as a log that begins behind the snapshot (errMoved).
	newest, err := c.newestSnapshot(ctx, ct, id, back)
	if err != nil {
		return nil, err
	}
	shape, err := log.Shape(ctx)
	if err != nil {
		return nil, err
	}
	p := &Partition{Partition: id.String(), Log: log.ID()}
	if former != nil && former.Log == p.Log && goesOn(former, newest, shape) {
		p.Base, p.First, p.Since = former.Base, former.First, former.Since
	} else if newest != nil {
		p.First, p.Since = newest.LSN, newest.Time
		data, err := json.Marshal(newest)
		if err != nil {
			return nil, err
		}
		p.Base = &Base{newest.ID(), data}
	}
	if p.Base != nil {
		m, err := p.manifest()
		if err != nil {
			return nil, err
		}
		if err := c.copyParts(ctx, ct, id, m); err != nil {
			return nil, err
		}
		p.Last, p.Sum = m.LSN, m.Checksum
	}
	if p.Base == nil {
		if err := begins(ctx, log, shape.First); err != nil {
			return nil, err
		}
		p.First = shape.First
	}
	if err := c.copyLog(ctx, log, id, p, shape); err != nil {
		return nil, err
	}
	p.Until = shape.Time.UnixMilli()
	return p, nil
}

// begins refuses a log that lacks its first commit: what stood there is in no backup that
// has no base.
func begins(ctx context.Context, log *feed.Log, first feed.LSN) error {
	c, err := log.Read(ctx, first)
	if _, trimmed := errors.AsType[*feed.TrimmedError](err); trimmed || errors.Is(err, feed.ErrNotFound) || err == nil && !owner.Begins(c) {
		return fmt.Errorf("%w; the first commit is that at LSN %d", errHeadless, first)
	}
	return err
}

// newestSnapshot returns the manifest of the owner's newest snapshot, or of the one so many before
// it; nil if it has none.
func (c *creator) newestSnapshot(ctx context.Context, ct *store.Container, id feed.Partition, back int) (*snapshot.Manifest, error) {
	object, err := ct.ReadSnapshot(ctx, id, store.ReadSnapshot{Part: back})
	if err != nil || object.ID == "" {
		return nil, err
	}
	return snapshot.Decode(id, object.ID, object.Data)
}

// goesOn tells whether the base of the backup before serves again: the log behind it is
// still there, and has not become large beside it.
//
//	base 1 GiB, 100 MiB of log in the backup, 20 MiB since: again, 20 MiB are sent
//	base 1 GiB, 500 MiB of log in the backup, 20 MiB since: the newest snapshot
//	base 20 MiB, 20 MiB of log in the backup: again
//	no base, the log begins where the backup does: again
//	no base, the log was trimmed since: the newest snapshot
func goesOn(former *Partition, newest *snapshot.Manifest, shape *feed.Shape) bool {
	if former.Last+1 < shape.First || former.Last > shape.Last {
		return false
	}
	// Without a base a state is made of the log from its first commit on: one that begins
	// later now is no such log, whatever the backup holds of what it lacks.
	if former.Base == nil && shape.First != former.First {
		return false
	}
	m, err := former.manifest()
	if err != nil || newest == nil || m != nil && newest.LSN <= m.LSN {
		return err == nil
	}
	var tail uint64
	for i := range former.Segments {
		tail += former.Segments[i].Bytes
	}
	// What the log holds since is larger there than it will be here.
	if shape.Commits > 0 {
		tail += shape.Bytes / shape.Commits * uint64(shape.Last-former.Last)
	}
	return tail <= max(tailMin, newest.Stored()/2)
}

// copyParts copies the parts of a snapshot that are not there.
func (c *creator) copyParts(ctx context.Context, ct *store.Container, id feed.Partition, m *snapshot.Manifest) error {
	names, err := c.place.List(ctx, partsFolder(id))
	if err != nil {
		return fmt.Errorf("%s: %w", c.place, err)
	}
	for i := range m.Parts {
		part := &m.Parts[i]
		if slices.Contains(names, partFile(part)) {
			continue
		}
		object, err := ct.ReadSnapshot(ctx, id, store.ReadSnapshot{ID: m.ID(), Part: i + 1})
		if errors.Is(err, store.ErrNotFound) {
			return &baseError{m.ID(), fmt.Errorf("%w: %w", errMoved, err)}
		}
		if err != nil {
			return err
		}
		if err := part.Check(object.Data); err != nil {
			return &baseError{m.ID(), fmt.Errorf("part %d of snapshot %s, as its owner reads it, %w", i+1, m.ID(), err)}
		}
		if err := c.putObject(ctx, partName(id, part), object.Data, id); err != nil {
			return err
		}
	}
	return nil
}

// putObject writes an object, and counts it.
func (c *creator) putObject(ctx context.Context, name string, data []byte, id feed.Partition) error {
	if err := c.place.Put(ctx, name, data); err != nil {
		return fmt.Errorf("write %s to %s: %w", name, c.place, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent += uint64(len(data))
	c.progressLocked(id)
	return nil
}

// partitionDone counts a partition.
func (c *creator) partitionDone(id feed.Partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	c.progressLocked(id)
}

// progressLocked calls Source.Progress with how far the work is.
func (c *creator) progressLocked(id feed.Partition) {
	if c.src.Progress != nil {
		c.src.Progress(Progress{Partitions: c.done, Of: c.of, Bytes: c.sent, Total: c.total, What: id.String()})
	}
}
