package backup

import (
	"context"
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
	// attempts is how often a backup begins again because the place was pruned meanwhile,
	// and the copy of a partition because its snapshot went, or its log was trimmed.
	attempts = 5
	// splitAttempts is how often a backup begins again because a partition was split meanwhile. What was sent is not sent
	// again.
	splitAttempts = 20
)

// splitPause is the time until then, in which the catalog comes to name the children.
var splitPause = 500 * time.Millisecond

// errPruned says that a prune may have deleted objects that this backup found and did not send.
var errPruned = errors.New("backups of the place were pruned meanwhile; run it again")

// errSplit says that a partition was split while the backup was made, so that what was copied is not of one moment.
var errSplit = errors.New("a partition was split while the store was copied, each time that this was tried; run it again")

// Create makes a backup of a store that goes on working. After an error, and after a
// crash, what was sent stays and is used by the next Create in the same place.
func Create(ctx context.Context, place snapshot.Store, src *Source) (*Result, error) {
	for pruned, split := 1, 1; ; {
		r, err := createOnce(ctx, place, src)
		switch {
		case errors.Is(err, errPruned) && pruned < attempts:
			pruned++
		case errors.Is(err, errSplit) && split < splitAttempts:
			split++
			if err := pace.Pause(ctx, splitPause); err != nil {
				return nil, err
			}
		default:
			return r, err
		}
	}
}

func createOnce(ctx context.Context, place snapshot.Store, src *Source) (*Result, error) {
	identity, err := store.CatalogIdentity(ctx, src.JetStream)
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
	// Ids sort as backups began: readAll lists them by their names, the oldest first.
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
	// Before what is there is looked at: a prune that begins behind this raises the epoch, and publish sees
	// that. The other way round it could delete what was seen, and its epoch count as the one that was read.
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
			// List begins with the oldest, so the newest backup's stays.
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
				p, err := (&partitionCopy{creator: c, ct: ct, id: id}).run(ctx)
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

// note says what was not as it should be with a partition.
func (c *creator) note(id feed.Partition, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes = append(c.notes, fmt.Sprintf("partition "+id.String()+": "+format, args...))
}
