package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/store/pace"
	"github.com/millrace/millrace/store/snapshot"
)

// Keep tells which backups stay: the newest Last, and those that ended less than Within ago.
// The newest one stays always. One of both must be set.
type Keep struct {
	Last   int
	Within time.Duration
}

// Pruned tells what Prune deleted, or would delete.
type Pruned struct {
	Backups []string `json:"backups"` // that go
	Kept    []string `json:"kept"`
	Objects int      `json:"objects"` // that no backup names which stays, manifests too
	Done    bool     `json:"done"`    // they were deleted
}

// UnreadableError says that a manifest cannot be read, so that it is not known what it names.
type UnreadableError struct{ Errs []error }

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("what a backup needs is not known, so nothing was deleted: %v. Remove its manifest if nobody can restore it", errors.Join(e.Errs...))
}

const (
	// signInterval is how often a prune shows that it is at work, and learns that it is the
	// one who may be. No request to a place takes as long as pruneDead.
	signInterval = 10 * time.Second
	// pruneDead is how long one may show nothing before others take it for dead.
	pruneDead = 2 * time.Minute
)

// What tests make smaller.
var deadAfter, lookInterval, signEvery = pruneDead, time.Second, signInterval

// Prune deletes backups, and all objects that no remaining backup names; with dry it returns
// what it would delete. See the package's documentation for what may run beside it. After an
// error and after a crash no backup is there in part: the next Prune goes on.
func Prune(ctx context.Context, place snapshot.Store, keep Keep, dry bool, progress func(Progress)) (*Pruned, error) {
	if keep.Last < 0 || keep.Within < 0 || keep.Last == 0 && keep.Within == 0 {
		return nil, errors.New("which backups are to stay is not said")
	}
	m, err := readMark(ctx, place)
	// A dry one changes nothing, so it may run beside another prune; what it tells may be old then.
	if err == nil && !dry {
		m, err = awaitPrune(ctx, place, m)
	}
	if err != nil {
		return nil, err
	}
	p := &pruner{place: place, mark: m, progress: progress}
	all, err := p.readManifests(ctx)
	if err != nil {
		return nil, err
	}
	// Those that do not count are no backups, and take no place of the last ones. Their objects go with
	// what nobody names.
	counts := slices.DeleteFunc(slices.Clone(all), func(b *Backup) bool { return !m.lists(b) })
	stay, result := keep.choose(counts, time.Now()), &Pruned{Backups: []string{}, Kept: []string{}, Done: !dry}
	for _, b := range counts {
		if !slices.Contains(stay, b) {
			result.Backups = append(result.Backups, b.ID)
		}
	}
	if !dry {
		if err := sweep(ctx, place); err != nil {
			return nil, err
		}
		if stay, err = p.beginDeleting(ctx, all, stay); err != nil {
			return nil, err
		}
	}
	for _, b := range stay {
		result.Kept = append(result.Kept, b.ID)
	}
	unnamed, err := p.unnamedObjects(ctx, stay, dry)
	if err != nil {
		return nil, err
	}
	if result.Objects = len(unnamed); dry {
		return result, nil
	}
	if err := p.removeObjects(ctx, unnamed); err != nil {
		return nil, err
	}
	// After an error it stays set: the next create or prune waits until this one counts as dead.
	m.Pruning = ""
	return result, writeMark(ctx, place, m)
}

// choose returns the backups that stay, of some that begin with the oldest.
func (k *Keep) choose(all []*Backup, now time.Time) (stay []*Backup) {
	for i, b := range all {
		last := len(all)-i <= max(k.Last, 1)
		if last || k.Within > 0 && now.Sub(b.Ended) < k.Within {
			stay = append(stay, b)
		}
	}
	return stay
}

// pruner is one run of Prune.
type pruner struct {
	place    snapshot.Store
	mark     *mark
	progress func(Progress)
	signed   time.Time // when the mark was written last
}

// readManifests returns all manifests of the place, those too that do not count.
func (p *pruner) readManifests(ctx context.Context) ([]*Backup, error) {
	all, damage, err := readAll(ctx, p.place)
	if err != nil || len(damage) == 0 {
		return all, err
	}
	for _, d := range damage {
		if _, damaged := errors.AsType[*DamagedError](d); !damaged { // it may be whole, so nobody is to remove it
			return nil, fmt.Errorf("what a backup needs is not known, so nothing was deleted: %w", d)
		}
	}
	return nil, &UnreadableError{damage}
}

// beginDeleting makes the mark name the backups that stay, and those that came meanwhile: no others
// count from then on.
//
//	                     a create of epoch 3
//	lists, none of it
//	epoch 4, keeps 1, 2
//	                     writes its manifest      before the second list: it is kept
//	lists again
//	keeps it too
//	                     writes its manifest      after it: it does not count,
//	deletes                                       and the create looks and sees epoch 4
//
// One that ends in between has not named what was made before it raised the epoch and behind its first
// list. The mark tells that it was choosing, so all of the epoch before count until the next prune chooses.
func (p *pruner) beginDeleting(ctx context.Context, seen, stay []*Backup) ([]*Backup, error) {
	// What came meanwhile is judged by the mark that its create has seen.
	m, was := p.mark, *p.mark
	m.Epoch, m.Kept, m.Pruning, m.Choosing = m.Epoch+1, nil, rand.Text(), true
	for _, b := range stay {
		m.Kept = append(m.Kept, b.ID)
	}
	// By compare-and-set, before the second list: a create that looks at the mark behind its manifest sees
	// the new epoch from here on, and whoever has looked before has its manifest in that list.
	if err := writeMark(ctx, p.place, m); err != nil {
		return nil, err
	}
	again, err := p.readManifests(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range again {
		if was.counts(b) && !slices.ContainsFunc(seen, func(s *Backup) bool { return s.ID == b.ID }) {
			m.Kept, stay = append(m.Kept, b.ID), append(stay, b)
		}
	}
	m.Choosing = false
	// The names, and that it chooses no more, in one write. Nothing was deleted before it.
	return stay, p.signMark(ctx)
}

// signMark shows that the prune is at work. The error is snapshot.ErrChanged if another has taken
// its place.
func (p *pruner) signMark(ctx context.Context) error {
	p.mark.Pruning = rand.Text()
	if err := writeMark(ctx, p.place, p.mark); err != nil {
		return err
	}
	p.signed = time.Now()
	return nil
}

// showAlive signs the mark again if that was a while ago.
func (p *pruner) showAlive(ctx context.Context) error {
	if time.Since(p.signed) < signEvery {
		return nil
	}
	return p.signMark(ctx)
}

// unnamedObjects returns the objects that no backup in stay names, manifests first: the objects of a
// backup may go only when nobody finds its manifest any more.
func (p *pruner) unnamedObjects(ctx context.Context, stay []*Backup, dry bool) (unnamed []string, err error) {
	named := map[string]bool{}
	for _, b := range stay {
		named[backupsFolder+b.ID+".json"] = true
		for i := range b.Partitions {
			if err := b.Partitions[i].objects(func(name string) { named[name] = true }); err != nil {
				return nil, fmt.Errorf("backup %s: %w", b.ID, err)
			}
		}
	}
	for _, folder := range folders {
		err := walk(ctx, p.place, folder, func(name string) error {
			if !named[name] {
				unnamed = append(unnamed, name)
			}
			if dry {
				return nil
			}
			// To list a large place takes longer than a prune may show nothing.
			return p.showAlive(ctx)
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.place, err)
		}
	}
	return unnamed, nil
}

// objects calls f with the name of each object that a partition needs.
func (p *Partition) objects(f func(name string)) error {
	id, err := p.id()
	if err != nil {
		return err
	}
	m, err := p.manifest()
	if err != nil {
		return err
	}
	if m != nil {
		for i := range m.Parts {
			f(partName(id, &m.Parts[i]))
		}
	}
	for i := range p.Segments {
		f(logFolder(id, p.Log) + p.Segments[i].file())
	}
	return nil
}

// sweep removes the files that killed creates have left unfinished in a directory, whose lock
// the caller holds. In a bucket there are none: it has an object whole or not at all.
func sweep(ctx context.Context, place snapshot.Store) error {
	dir, leaves := place.(interface {
		Sweep(ctx context.Context, folder string) error
	})
	if !leaves {
		return nil
	}
	for _, folder := range folders {
		if err := dir.Sweep(ctx, folder); err != nil {
			return fmt.Errorf("remove what was written in part: %w", err)
		}
	}
	return nil
}

// walk calls f with the name of each object below a folder, until f returns an error.
func walk(ctx context.Context, place snapshot.Store, folder string, f func(name string) error) error {
	names, err := place.List(ctx, folder)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "/") {
			err = walk(ctx, place, folder+name, f)
		} else {
			err = f(folder + name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeObjects removes objects. It signs the mark before the first, however long ago that was done
// last: to list a large place takes longer than a prune may show nothing, and a create that has taken
// this one for dead since may need them.
func (p *pruner) removeObjects(ctx context.Context, names []string) error {
	p.signed = time.Time{}
	for i, name := range names {
		if err := p.showAlive(ctx); err != nil {
			return err
		}
		if err := p.place.Remove(ctx, name); err != nil {
			return fmt.Errorf("remove %s from %s: %w", name, p.place, err)
		}
		if p.progress != nil {
			p.progress(Progress{Partitions: i + 1, Of: len(names), What: name})
		}
	}
	return nil
}

// awaitPrune waits until no prune is under way. A prune that has not changed the mark for a
// while is taken for dead and is fenced: if it lives, it finds the mark changed before it
// deletes anything more. In a place that does not compare, the caller holds the lock, so that
// no prune can be alive.
func awaitPrune(ctx context.Context, place snapshot.Store, m *mark) (_ *mark, err error) {
	// By the changes that are seen here, and by this clock alone: what the clock of the other one says does
	// not matter.
	for since := time.Now(); m.Pruning != "" && m.revision != "" && time.Since(since) < deadAfter; {
		if err := pace.Pause(ctx, lookInterval); err != nil {
			return nil, err
		}
		was := m.revision
		if m, err = readMark(ctx, place); err != nil {
			return nil, err
		}
		if m.revision != was {
			since = time.Now()
		}
	}
	if m.Pruning == "" {
		return m, nil
	}
	m.Pruning = ""
	if err := writeMark(ctx, place, m); err != nil {
		return nil, err
	}
	return m, nil
}
