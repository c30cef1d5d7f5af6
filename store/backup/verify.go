package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/snapshot"
)

// Damage is an object that cannot be used.
type Damage struct {
	Backups []string `json:"backups"` // that name it
	Object  string   `json:"object"`
	Reason  string   `json:"reason"`
	// Bytes is what it should have.
	Bytes uint64 `json:"bytes,omitempty"`
}

// Report is what Verify found.
type Report struct {
	Backups []string `json:"backups"` // that were verified
	Objects int      `json:"objects"` // that were read
	Bytes   uint64   `json:"bytes"`
	Damaged []Damage `json:"damaged"`
}

// Verify reads all that backups of a place name, and computes its checksums, the chain of
// its commits, and its snapshots' digests anew. An object that several backups name is
// read once. With id "" it verifies all backups. The error is as of List; what is damaged
// is no error.
func Verify(ctx context.Context, place snapshot.Store, id string, progress func(Progress)) (*Report, error) {
	all, damage, err := List(ctx, place)
	if err != nil {
		return nil, err
	}
	v := &verifier{place: place, report: &Report{Damaged: []Damage{}}, bad: map[string]int{}, done: map[string]bool{}, begins: map[string]bool{}, progress: progress}
	if id != "" {
		b, err := Find(all, id)
		if err != nil {
			// Its manifest may be one of those that cannot be read, which have no id that could be found.
			return nil, errors.Join(append(damage, err)...)
		}
		all, damage = []*Backup{b}, nil
	}
	for _, err := range damage {
		d, ok := errors.AsType[*DamagedError](err)
		if !ok {
			return nil, err
		}
		v.report.Damaged = append(v.report.Damaged, Damage{Object: d.Name, Reason: d.Reason})
	}
	for _, b := range all {
		v.of += len(b.Partitions)
	}
	for _, b := range all {
		v.report.Backups = append(v.report.Backups, b.ID)
		if err := b.complete(); err != nil {
			v.noteDamage(b.ID, backupsFolder+b.ID+".json", err.Error(), 0)
		}
		for i := range b.Partitions {
			if err := v.verifyPartition(ctx, b.ID, &b.Partitions[i]); err != nil {
				return nil, fmt.Errorf("backup %s, partition %s: %w", b.ID, b.Partitions[i].Partition, err)
			}
			v.partitions++
		}
	}
	return v.report, nil
}

// NoBackupError says that a place has no backup of that name.
type NoBackupError struct{ ID string }

func (e *NoBackupError) Error() string {
	return fmt.Sprintf("there is no backup %s; millrace backup list tells which there are", e.ID)
}

// Find returns a backup by its id.
func Find(all []*Backup, id string) (*Backup, error) {
	for _, b := range all {
		if b.ID == id {
			return b, nil
		}
	}
	return nil, &NoBackupError{id}
}

type verifier struct {
	place          snapshot.Store
	report         *Report
	bad            map[string]int // index in report.Damaged, by object
	done           map[string]bool
	begins         map[string]bool // segments with which a log begins
	partitions, of int
	progress       func(Progress)
}

// noteDamage notes an object once, with each backup that names it.
func (v *verifier) noteDamage(backup, object, reason string, bytes uint64) {
	at, known := v.bad[object]
	if !known {
		at = len(v.report.Damaged)
		v.bad[object] = at
		v.report.Damaged = append(v.report.Damaged, Damage{Object: object, Reason: reason, Bytes: bytes})
	}
	if d := &v.report.Damaged[at]; !slices.Contains(d.Backups, backup) {
		d.Backups = append(d.Backups, backup)
	}
}

// firstReading reports whether an object was not read yet. If it was, and is bad, that is noted for
// this backup too: objects are shared, and each backup that needs one is damaged with it.
func (v *verifier) firstReading(backup, object string) bool {
	if v.done[object] {
		if at, bad := v.bad[object]; bad {
			v.report.Damaged[at].Backups = append(v.report.Damaged[at].Backups, backup)
		}
		return false
	}
	v.done[object] = true
	return true
}

func (v *verifier) countRead(n int, what string) {
	v.report.Objects++
	v.report.Bytes += uint64(n)
	if v.progress != nil {
		v.progress(Progress{Partitions: v.partitions, Of: v.of, Bytes: v.report.Bytes, What: what})
	}
}

func (v *verifier) verifyPartition(ctx context.Context, backup string, p *Partition) error {
	id, err := p.id()
	if err != nil {
		return err
	}
	m, err := p.manifest()
	if err != nil {
		return err
	}
	if m != nil {
		if err := v.verifyBase(ctx, backup, id, m); err != nil {
			return err
		}
	}
	// Objects are read once for all backups that name them; whether they fit together is a question to each
	// backup, and needs its manifest alone.
	if err := p.chain(m); err != nil {
		v.noteDamage(backup, backupsFolder+backup+".json", err.Error(), 0)
	}
	if m == nil && len(p.Segments) == 0 {
		return nil // chain has said so
	}
	folder := logFolder(id, p.Log)
	for i := range p.Segments {
		s := &p.Segments[i]
		name := folder + s.file()
		if !v.firstReading(backup, name) {
			continue
		}
		data, err := v.place.Get(ctx, name)
		if errors.Is(err, snapshot.ErrNotFound) {
			v.noteDamage(backup, name, "is gone", s.Bytes)
			continue
		}
		if err != nil {
			return err
		}
		v.countRead(len(data), p.Partition)
		err = readSegment(s, p.Log, data, func(c *feed.Commit) error {
			if c.LSN == s.From {
				// By name, because another backup that begins with this segment does not read it again.
				v.begins[name] = owner.Begins(c)
			}
			return ctx.Err()
		})
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if _, later := errors.AsType[*feed.VersionError](err); later { // that release can read it
				return fmt.Errorf("%s of backup %s: %w", name, backup, err)
			}
			v.noteDamage(backup, name, err.Error(), s.Bytes)
		}
	}
	if m != nil {
		return nil
	}
	first := folder + p.Segments[0].file()
	if _, bad := v.bad[first]; !bad && !v.begins[first] {
		v.noteDamage(backup, backupsFolder+backup+".json",
			fmt.Sprintf("has partition %s from LSN %d on, with which no log begins, and no snapshot of what stood before", p.Partition, p.First), 0)
	}
	return nil
}

// verifyBase reads a snapshot: its parts one by one, so that each bad one is found, and if all
// are whole their digest.
func (v *verifier) verifyBase(ctx context.Context, backup string, id feed.Partition, m *snapshot.Manifest) error {
	whole := true
	for i := range m.Parts {
		name := partName(id, &m.Parts[i])
		if !v.firstReading(backup, name) {
			_, bad := v.bad[name]
			whole = whole && !bad
			continue
		}
		data, err := v.place.Get(ctx, name)
		switch {
		case errors.Is(err, snapshot.ErrNotFound):
			err = errors.New("is gone")
		case err != nil:
			return err
		default:
			v.countRead(len(data), id.String())
			err = m.Parts[i].Check(data)
		}
		if err != nil {
			whole = false
			v.noteDamage(backup, name, err.Error(), m.Parts[i].Bytes)
		}
	}
	// The digest is of all parts together. It is noted like an object, so that a snapshot which several
	// backups begin with is put together once.
	digest := "snapshot " + id.String() + " " + m.ID()
	if !whole || !v.firstReading(backup, digest) {
		return nil
	}
	for _, err := range snapshot.Entries(ctx, newView(v.place, id, m), m, ctx.Err) {
		if d, damaged := errors.AsType[*snapshot.DamagedError](err); damaged {
			v.noteDamage(backup, digest, d.Reason, 0)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// complete compares the containers that a backup names with the partitions that it has.
func (b *Backup) complete() error {
	containers, err := b.Containers()
	if err != nil {
		return err
	}
	has := map[string]bool{}
	for i := range b.Partitions {
		has[b.Partitions[i].Partition] = true
	}
	for i := range containers {
		c := &containers[i]
		for _, info := range c.Partitions {
			if id := (feed.Partition{Container: c.ID, Number: info.Number}); !has[id.String()] {
				return fmt.Errorf("lacks partition %s of container %s/%s", id, c.Database, c.Name)
			}
		}
	}
	return nil
}

// chain compares the ends of the base and of the segments: each begins where the one
// before has ended, at the same commit.
func (p *Partition) chain(m *snapshot.Manifest) error {
	next, prev := p.First, snapshot.Sum(0)
	if m == nil && len(p.Segments) == 0 {
		return fmt.Errorf("partition %s: it has neither a snapshot nor a log", p.Partition)
	}
	if m != nil {
		if m.Log != p.Log || m.LSN != p.First {
			return fmt.Errorf("partition %s: its base is of log %s at LSN %d, log %s at LSN %d is expected", p.Partition, m.Log, m.LSN, p.Log, p.First)
		}
		next, prev = m.LSN+1, m.Checksum
	}
	for i := range p.Segments {
		s := &p.Segments[i]
		// The first may begin with commits that the base holds.
		// A base that replaced another one keeps the segment in which its LSN lies:
		//
		//	base of LSN 40, segments 31-50 and 51-70   follows; 31 to 40 are passed over
		//	base of LSN 40, segments 11-30 and 51-70   does not
		follows := s.From == next && (prev == 0 || s.Prev == prev) || i == 0 && m != nil && s.From < next && s.To >= next
		if !follows {
			return fmt.Errorf("partition %s: a segment begins with LSN %d and the one before ends with LSN %d", p.Partition, s.From, next-1)
		}
		next, prev = s.To+1, s.Sum
	}
	if p.Last != next-1 || p.Sum != prev {
		return fmt.Errorf("partition %s: it ends with LSN %d, LSN %d is expected", p.Partition, next-1, p.Last)
	}
	return nil
}

// view shows the parts of a snapshot under the names that they have in the store of
// snapshots that they were copied from.
type view struct {
	snapshot.Store
	names map[string]string // in the place, by the name there
}

func newView(place snapshot.Store, id feed.Partition, m *snapshot.Manifest) *view {
	v := &view{place, map[string]string{}}
	for i := range m.Parts {
		v.names[m.PartName(i)] = partName(id, &m.Parts[i])
	}
	return v
}

func (v *view) Get(ctx context.Context, name string) ([]byte, error) {
	return v.Store.Get(ctx, v.names[name])
}
