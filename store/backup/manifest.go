package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/snapshot"
)

// format is the version of all that this package writes.
const format = 1

// Backup says what a backup holds, and of what objects it is made.
type Backup struct {
	ID      string    `json:"id"`
	Store   string    `json:"store"`   // which store it is of
	Program string    `json:"program"` // that wrote it
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	// Epoch is that of the place when the backup began: see mark.
	Epoch uint64 `json:"epoch,omitempty"`
	// Records are those of containers, databases and pipelines.
	Records    []Record    `json:"records"`
	Partitions []Partition `json:"partitions"`
	// Sent is how much of it was not there before, in bytes.
	Sent uint64 `json:"sent"`
}

// Record is a record of a key-value bucket.
type Record struct {
	Bucket string          `json:"bucket"`
	Key    string          `json:"key"`
	Value  json.RawMessage `json:"value"`
}

// Partition is the state of a physical partition at each LSN from First to Last.
type Partition struct {
	Partition string     `json:"partition"` // as feed.Partition prints it
	Log       feed.LogID `json:"log"`
	// Base is the snapshot that the segments follow; nil if the log begins with them.
	Base     *Base     `json:"base,omitempty"`
	Segments []Segment `json:"segments,omitempty"`
	// First and Last are the LSNs that can be restored, and Sum is the checksum of the
	// commit at Last.
	First feed.LSN     `json:"first"`
	Last  feed.LSN     `json:"last"`
	Sum   snapshot.Sum `json:"sum"`
	// Since is the time of the commit at First, Until one that all commits behind Last are later than,
	// both in Unix milliseconds. Earlier releases wrote when the log was seen to end, for Until.
	Since int64 `json:"since"`
	Until int64 `json:"until"`
}

// Base is a snapshot.
type Base struct {
	ID       string          `json:"id"`
	Manifest json.RawMessage `json:"manifest"`
}

// Segment is a part of a log.
type Segment struct {
	From     feed.LSN     `json:"from"`
	To       feed.LSN     `json:"to"`
	Bytes    uint64       `json:"bytes"`
	Checksum snapshot.Sum `json:"checksum"`
	// Sum is the checksum of the commit at To, Prev that of the commit before From.
	Prev snapshot.Sum `json:"prev"`
	Sum  snapshot.Sum `json:"sum"`
	// Since and Until are the times of the first and of the last commit.
	Since int64 `json:"since"`
	Until int64 `json:"until"`
}

// id returns the partition that p is of.
func (p *Partition) id() (feed.Partition, error) { return feed.ParsePartition(p.Partition) }

// manifest returns the snapshot that p begins with; nil if it has none.
func (p *Partition) manifest() (*snapshot.Manifest, error) {
	if p.Base == nil {
		return nil, nil
	}
	id, err := p.id()
	if err != nil {
		return nil, err
	}
	return snapshot.Decode(id, p.Base.ID, p.Base.Manifest)
}

// lastTime is the time of the commit at Last, in Unix milliseconds.
func (p *Partition) lastTime() (int64, error) {
	if n := len(p.Segments); n > 0 {
		return p.Segments[n-1].Until, nil
	}
	m, err := p.manifest()
	if err != nil || m == nil {
		return 0, err
	}
	return m.Time, nil
}

// Bytes is what the objects of a backup take, those that it shares with others too.
func (b *Backup) Bytes() (bytes uint64, err error) {
	for i := range b.Partitions {
		p := &b.Partitions[i]
		m, err := p.manifest()
		if err != nil {
			return 0, err
		}
		if m != nil {
			bytes += m.Stored()
		}
		for j := range p.Segments {
			bytes += p.Segments[j].Bytes
		}
	}
	return bytes, nil
}

// Containers returns the containers that a backup holds, in order.
func (b *Backup) Containers() (all []store.ContainerInfo, err error) {
	for i := range b.Records {
		r := &b.Records[i]
		if r.Bucket != store.CatalogBucket || !strings.HasPrefix(r.Key, "container.") {
			continue
		}
		info, err := store.DecodeContainer(r.Value)
		if err != nil {
			return nil, fmt.Errorf("record %s: %w", r.Key, err)
		}
		all = append(all, info)
	}
	return all, nil
}

// Span returns the times between which every partition of a backup can be restored. Before
// a container was made it held nothing, which bounds nothing; one that was made when the backup had
// begun may not be in it.
func (b *Backup) Span() (since, until time.Time, err error) {
	containers, err := b.Containers()
	if err != nil {
		return since, until, err
	}
	until = b.Began
	made := map[feed.ResourceID]time.Time{}
	for i := range containers {
		c := &containers[i]
		made[c.ID] = c.Created
		if since.IsZero() || c.Created.Before(since) {
			since = c.Created
		}
	}
	// The times that all partitions have in common:
	//
	//	container made at 1, all of its log here     from 1
	//	container made at 1, base as of 4            from 4
	//	container made at 6, all of its log here     from 1: at 5 it did not exist
	//	backup begun at 9, logs whole until 12 and 8 until 8
	for i := range b.Partitions {
		p := &b.Partitions[i]
		id, err := p.id()
		if err != nil {
			return since, until, err
		}
		created, ok := made[id.Container]
		if !ok {
			return since, until, fmt.Errorf("partition %s is of no container that the backup names", p.Partition)
		}
		if begins := time.UnixMilli(p.Since).UTC(); p.Since > created.UnixMilli() && begins.After(since) {
			since = begins
		}
		if ends := time.UnixMilli(p.Until).UTC(); ends.Before(until) {
			until = ends
		}
	}
	return since, until, nil
}

// DamagedError says that an object of a backup is not what was written.
type DamagedError struct {
	Name   string // of the object, in the place
	Reason string
}

func (e *DamagedError) Error() string { return fmt.Sprintf("%s %s", e.Name, e.Reason) }

// NewerError says that a later program wrote something.
type NewerError struct {
	Name   string
	Format int
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s has format %d and this program reads format %d; use the program that wrote it", e.Name, e.Format, format)
}

// envelope is what stands in the file of a manifest.
type envelope struct {
	Format   int             `json:"format"`
	Checksum snapshot.Sum    `json:"checksum"` // of the bytes of Backup
	Backup   json.RawMessage `json:"backup"`
}

func encodeBackup(b *Backup) ([]byte, error) {
	inner, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	return json.Marshal(envelope{format, snapshot.Sum(xxhash.Sum64(inner)), inner})
}

func decodeBackup(name string, data []byte) (*Backup, error) {
	var e envelope
	if err := snapshot.DecodeJSON(data, &e, false); err != nil {
		return nil, &DamagedError{name, "cannot be read: " + err.Error()}
	}
	if e.Format > format {
		return nil, &NewerError{name, e.Format}
	}
	if sum := snapshot.Sum(xxhash.Sum64(e.Backup)); e.Format != format || sum != e.Checksum {
		return nil, &DamagedError{name, fmt.Sprintf("has format %d and checksum %016x; it says %016x", e.Format, uint64(sum), uint64(e.Checksum))}
	}
	b := &Backup{}
	if err := snapshot.DecodeJSON(e.Backup, b, true); err != nil {
		return nil, &DamagedError{name, "cannot be read: " + err.Error()}
	}
	return b, nil
}

const (
	backupsFolder = "backups/"
	markName      = "millrace-backup.json"
)

// folders are those of all objects but the mark, manifests first.
var folders = [...]string{backupsFolder, "parts/", "log/"}

// mark is the object that tells what a place is, and which of the manifests in it count:
// those of its epoch, which each prune raises, and those of earlier ones that it names.
type mark struct {
	Format int      `json:"format"`
	Store  string   `json:"store"`
	Epoch  uint64   `json:"epoch,omitempty"`
	Kept   []string `json:"kept,omitempty"`
	// Pruning is set while a prune deletes objects, to something else every few seconds.
	Pruning string `json:"pruning,omitempty"`
	// Choosing is set by a prune that has raised the epoch, and has not yet named what came
	// meanwhile. It deletes nothing before that. One that has ended there leaves it set.
	Choosing bool `json:"choosing,omitempty"`

	revision snapshot.Revision // as it was read; what replaces it must be made of this one
}

// counts tells whether a backup is one, and stays one whatever a prune does that is under way.
func (m *mark) counts(b *Backup) bool { return b.Epoch == m.Epoch || slices.Contains(m.Kept, b.ID) }

// lists tells whether a backup is one at this moment: those of the epoch before too, while a prune
// has deleted nothing and may not have named one whose create was told that it counts.
func (m *mark) lists(b *Backup) bool { return m.counts(b) || m.Choosing && b.Epoch+1 == m.Epoch }

// writeMark replaces the mark that was read. The error is snapshot.ErrChanged if it is
// another one now.
func writeMark(ctx context.Context, s snapshot.Store, m *mark) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := s.Replace(ctx, markName, data, m.revision); err != nil {
		return fmt.Errorf("write %s to %s: %w", markName, s, err)
	}
	// A Replace does not return the new revision. Another process may have replaced the mark
	// since, so the revision counts only if the content is what was written here.
	if m.revision != "" {
		there, revision, err := s.Look(ctx, markName)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		if !bytes.Equal(there, data) {
			return fmt.Errorf("%s of %s: %w", markName, s, snapshot.ErrChanged)
		}
		m.revision = revision
	}
	return nil
}

// NoBackupsError says that a place holds no backups.
type NoBackupsError struct{ Place string }

func (e *NoBackupsError) Error() string {
	return fmt.Sprintf("%s holds no backups: it has no %s", e.Place, markName)
}

// readMark returns which store the backups of a place are of. The error is
// *NoBackupsError if it has none.
func readMark(ctx context.Context, s snapshot.Store) (*mark, error) {
	data, revision, err := s.Look(ctx, markName)
	if errors.Is(err, snapshot.ErrNotFound) {
		return nil, &NoBackupsError{s.String()}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s, err)
	}
	m := &mark{revision: revision}
	if err := snapshot.DecodeJSON(data, m, false); err != nil {
		return nil, &DamagedError{markName, "cannot be read: " + err.Error()}
	}
	if m.Format != format {
		return nil, &NewerError{markName, m.Format}
	}
	return m, nil
}

// List returns the backups of a place, the oldest first. damage tells of manifests that
// cannot be read; the error is *NoBackupsError or *NewerError, or that of the place.
func List(ctx context.Context, s snapshot.Store) (all []*Backup, damage []error, err error) {
	m, err := readMark(ctx, s)
	if _, damaged := errors.AsType[*DamagedError](err); err != nil && !damaged {
		return nil, nil, err
	}
	unmarked := err
	if all, damage, err = readAll(ctx, s); err != nil {
		return nil, nil, err
	}
	// A prune has deleted it since the names were listed.
	damage = slices.DeleteFunc(damage, func(err error) bool { return errors.Is(err, snapshot.ErrNotFound) })
	if unmarked != nil {
		return all, append([]error{unmarked}, damage...), nil
	}
	return slices.DeleteFunc(all, func(b *Backup) bool { return !m.lists(b) }), damage, nil
}

// readAll returns what all manifests of a place say, the oldest first, those too that do not
// count. damage tells of those that cannot be read: they are damaged, not there any more, or the place does not
// give them, now or ever. Who can do without them goes on.
func readAll(ctx context.Context, s snapshot.Store) (all []*Backup, damage []error, err error) {
	names, err := s.List(ctx, backupsFolder)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s, err)
	}
	slices.Sort(names)
	for _, name := range names {
		id, ok := strings.CutSuffix(name, ".json")
		if !ok {
			continue
		}
		b, err := readBackup(ctx, s, id)
		if _, newer := errors.AsType[*NewerError](err); newer {
			return nil, nil, err
		}
		if err != nil {
			damage = append(damage, err)
			continue
		}
		all = append(all, b)
	}
	return all, damage, nil
}

// readBackup returns one backup.
func readBackup(ctx context.Context, s snapshot.Store, id string) (*Backup, error) {
	name := backupsFolder + id + ".json"
	data, err := s.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	b, err := decodeBackup(name, data)
	if err == nil && b.ID != id {
		err = &DamagedError{name, "is that of " + b.ID}
	}
	return b, err
}
