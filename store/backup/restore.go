package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/naming"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/snapshot"
)

// Latest is Target.At for the end of the newest backup.
const Latest = "latest"

// Plan is a backup that was read and is whole, and the time to which it is to be restored.
type Plan struct {
	place snapshot.Store
	b     *Backup
	text  string    // the time as it was asked for
	at    time.Time // zero: the end
}

// Choose returns the backup to restore, with id "" the first one that reaches at, which is
// a time as RFC 3339 or Latest. All of it is read: the error is *NotWholeError if any is
// damaged, and *OutsideError if no backup reaches at.
func Choose(ctx context.Context, place snapshot.Store, id, at string, progress func(Progress)) (*Plan, error) {
	b, moment, err := choose(ctx, place, id, at)
	if err != nil {
		return nil, err
	}
	report, err := Verify(ctx, place, b.ID, progress)
	if err != nil {
		return nil, err
	}
	if len(report.Damaged) > 0 {
		return nil, &NotWholeError{b.ID, report.Damaged}
	}
	return &Plan{place, b, at, moment}, nil
}

// Target is the empty store that a backup is restored into.
type Target struct {
	// Catalog is opened with CatalogConfig.Restoring.
	Catalog *store.Catalog
	// Empty says what else is in the store that must not be there; "" if nothing is.
	Empty func(context.Context) (string, error)
	// Pipelines registers pipelines, of which it is given the records, when all containers
	// are ready and before anybody may use the store. It may be called again.
	Pipelines func(context.Context, []Record) error
	// Scratch is a directory for the state of one partition at a time; "" is the system's.
	Scratch string
	Logger  *slog.Logger
	// Progress is called now and then; nil for nobody.
	Progress func(Progress)
}

// Restored tells what Restore did.
type Restored struct {
	Backup     string          `json:"backup"`
	At         string          `json:"at"`
	Containers []string        `json:"containers"`
	Partitions []RestoredState `json:"partitions"`
	// LeftOut are containers that were made after At.
	LeftOut []string `json:"leftOut,omitempty"`
}

// RestoredState is what a partition was restored to.
type RestoredState struct {
	From      string       `json:"from"` // the partition that was copied
	Partition string       `json:"partition"`
	LSN       feed.LSN     `json:"lsn"`
	Time      time.Time    `json:"time"` // of the commit at LSN
	Entries   uint64       `json:"entries"`
	Digest    snapshot.Sum `json:"digest"`
}

// OutsideError says that no backup of a place can be restored to a time.
type OutsideError struct {
	At    string
	Kept  []string // the times to which it can be
	Place string
}

func (e *OutsideError) Error() string {
	if len(e.Kept) == 0 {
		return e.Place + " holds no whole backup"
	}
	return fmt.Sprintf("%s is outside of what %s holds: %s", e.At, e.Place, strings.Join(e.Kept, "; "))
}

// NotEmptyError says that a store holds something, so that nothing is restored into it.
type NotEmptyError struct{ What string }

func (e *NotEmptyError) Error() string {
	return fmt.Sprintf("the store is not empty: it has %s. A backup is restored into an empty one only, before stores and workers are started; nothing was changed", e.What)
}

// NotWholeError says that a backup is damaged, so that nothing is restored of it.
type NotWholeError struct {
	Backup  string
	Damaged []Damage
}

func (e *NotWholeError) Error() string {
	return fmt.Sprintf("backup %s is damaged: %s %s (%d in all); nothing was changed", e.Backup, e.Damaged[0].Object, e.Damaged[0].Reason, len(e.Damaged))
}

// Restore makes a store of a backup. The store is seen to be empty before anything is
// changed. After an error, and after a crash, the store cannot be used, and Restore of the
// same backup and time goes on.
func (p *Plan) Restore(ctx context.Context, t *Target) (*Restored, error) {
	r := &restorer{Target: t, Plan: p, result: &Restored{Backup: p.b.ID, At: p.text, Containers: []string{}, Partitions: []RestoredState{}}}
	var err error
	if r.progress, err = t.Catalog.Restoring(ctx); err != nil {
		return nil, err
	}
	if err := r.checkEmpty(ctx); err != nil {
		return nil, err
	}
	if r.progress == nil {
		r.progress = &store.Restoring{Backup: p.b.ID, At: p.text, Began: time.Now().UTC()}
	}
	// One that goes on writes it too: a run of the same restore that still lives learns by it that
	// another has taken its place.
	if err := t.Catalog.PutRestoring(ctx, r.progress); err != nil {
		return nil, err
	}
	if err := r.restoreAll(ctx); err != nil {
		return nil, fmt.Errorf("%w. The restore has not ended; with --backup %s --at %s it goes on", err, r.b.ID, r.text)
	}
	return r.result, nil
}

// choose returns the backup to restore, and the time; zero is its end.
//
//	backups from 1 until 5, from 1 until 9, from 7 until 12; at 4: the first
//	                                                        at 8: the second
//	                                                        at 13: none
func choose(ctx context.Context, place snapshot.Store, id, text string) (*Backup, time.Time, error) {
	all, damage, err := List(ctx, place)
	if err != nil {
		return nil, time.Time{}, err
	}
	if id != "" {
		b, err := Find(all, id)
		if err != nil {
			return nil, time.Time{}, errors.Join(append(damage, err)...)
		}
		all = []*Backup{b}
	}
	if text == Latest {
		if len(damage) > 0 && id == "" {
			// The newest may be the one that cannot be read: who wants an older one names it.
			return nil, time.Time{}, errors.Join(damage...)
		}
		if len(all) > 0 {
			return all[len(all)-1], time.Time{}, nil
		}
	}
	outside := &OutsideError{At: text, Place: place.String()}
	if len(all) == 0 {
		return nil, time.Time{}, errors.Join(append(damage, outside)...)
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, at, fmt.Errorf("%q is no time such as 2026-11-23T04:05:06Z, nor %s", text, Latest)
	}
	for _, b := range all {
		since, until, err := b.Span()
		if err != nil {
			return nil, at, fmt.Errorf("backup %s: %w", b.ID, err)
		}
		if !at.Before(since) && !at.After(until) {
			return b, at, nil
		}
		outside.Kept = append(outside.Kept, fmt.Sprintf("backup %s from %s until %s", b.ID, since.Format(time.RFC3339Nano), until.Format(time.RFC3339Nano)))
	}
	return nil, at, errors.Join(append(damage, outside)...)
}

// restorer is one run of Restore.
type restorer struct {
	*Target
	*Plan
	progress *store.Restoring
	result   *Restored

	containers []store.ContainerInfo // as they are restored
	done       int
	bytes      uint64
}

// checkEmpty refuses a store that is not empty, unless what is in it is of the same restore.
func (r *restorer) checkEmpty(ctx context.Context) error {
	if p := r.progress; p != nil {
		if p.Backup != r.b.ID || p.At != r.text {
			return &store.RestoringError{Restoring: *p}
		}
		return nil
	}
	containers, err := r.Catalog.List(ctx)
	if err != nil {
		return err
	}
	if len(containers) > 0 {
		return &NotEmptyError{"the container " + containers[0].Database + "/" + containers[0].Name}
	}
	databases, err := r.Catalog.Databases(ctx)
	if err != nil {
		return err
	}
	if len(databases) > 0 {
		return &NotEmptyError{"the database " + databases[0].Name}
	}
	what, err := r.Empty(ctx)
	if err == nil && what != "" {
		err = &NotEmptyError{what}
	}
	if err != nil {
		return err
	}
	return r.Catalog.AdmitRestore(ctx)
}

func (r *restorer) restoreAll(ctx context.Context) error {
	containers, err := r.b.Containers()
	if err != nil {
		return err
	}
	for i := range containers {
		c := &containers[i]
		// At that time nobody had made it. Its log cannot be taken back to before its first commit.
		if !r.at.IsZero() && c.Created.After(r.at) {
			r.result.LeftOut = append(r.result.LeftOut, c.Database+"/"+c.Name)
			continue
		}
		is, err := r.Catalog.RestoreContainer(ctx, *c, r.b.ID)
		if err != nil {
			return err
		}
		r.containers = append(r.containers, is)
		for j := range is.Partitions {
			if err := r.restorePartition(ctx, c, &is, is.Partitions[j]); err != nil {
				return fmt.Errorf("container %s/%s, partition %d: %w", c.Database, c.Name, is.Partitions[j].Number, err)
			}
		}
		r.result.Containers = append(r.result.Containers, c.Database+"/"+c.Name)
	}
	// All logs are whole. Until the record of the restore is gone nobody opens the catalog.
	for i := range r.containers {
		if err := r.Catalog.RestoreReady(ctx, &r.containers[i]); err != nil {
			return err
		}
	}
	var pipelines []Record
	for i := range r.b.Records {
		rec := &r.b.Records[i]
		token, isDatabase := strings.CutPrefix(rec.Key, "database.")
		switch {
		case rec.Bucket != store.CatalogBucket:
			pipelines = append(pipelines, *rec)
		case isDatabase:
			name, err := naming.OfToken(token)
			if err != nil {
				return fmt.Errorf("record %s: %w", rec.Key, err)
			}
			if err := r.Catalog.RestoreDatabase(ctx, name, rec.Value); err != nil {
				return err
			}
		}
	}
	if err := r.Pipelines(ctx, pipelines); err != nil {
		return err
	}
	return r.Catalog.EndRestoring(ctx, r.progress)
}

// restorePartition restores one partition of a container.
func (r *restorer) restorePartition(ctx context.Context, was, is *store.ContainerInfo, info store.PartitionInfo) error {
	from, to := feed.Partition{Container: was.ID, Number: info.Number}, feed.Partition{Container: is.ID, Number: info.Number}
	at := slices.IndexFunc(r.b.Partitions, func(p Partition) bool { return p.Partition == from.String() })
	if at < 0 {
		return fmt.Errorf("backup %s has no partition %s", r.b.ID, from)
	}
	// An earlier run has made it whole: a log is noted behind its last commit. One that is not noted may be
	// there in part, and is made anew.
	if slices.Contains(r.progress.Logs, to.String()) {
		return r.noteRestored(ctx, from, to)
	}
	dir, err := os.MkdirTemp(r.Scratch, "millrace-restore-")
	if err != nil {
		return err
	}
	err = r.restoreThrough(ctx, dir, &r.b.Partitions[at], from, to, is, info)
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		return err
	}
	r.done++
	r.progress.Logs = append(r.progress.Logs, to.String())
	return r.Catalog.PutRestoring(ctx, r.progress)
}

// noteRestored tells of a partition that an earlier run has restored.
func (r *restorer) noteRestored(ctx context.Context, from, to feed.Partition) error {
	c, err := r.Catalog.FirstCommit(ctx, to)
	if err != nil {
		return err
	}
	parent, ok := owner.ParentOf(c)
	sum, err := feed.ParseChecksum(parent.Digest)
	if !ok || err != nil {
		return fmt.Errorf("the log of %s does not begin as a restored one does, though the record of the restore names it", to)
	}
	r.done++
	r.result.Partitions = append(r.result.Partitions, RestoredState{
		From: from.String(), Partition: to.String(), LSN: parent.LSN, Time: time.UnixMilli(c.Time).UTC(), Entries: parent.Entries, Digest: snapshot.Sum(sum),
	})
	return nil
}

// restoreThrough makes the state of a partition in an engine of its own, and a log of that.
func (r *restorer) restoreThrough(ctx context.Context, dir string, p *Partition, from, to feed.Partition, is *store.ContainerInfo, info store.PartitionInfo) (err error) {
	db, err := engine.Open(dir, engine.Config{}, r.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	state, err := db.Partition(from)
	if err != nil {
		return err
	}
	if err := r.replay(ctx, p, from, state); err != nil {
		return err
	}
	// The replay may take minutes, in which another run may have made this log, and have ended: it
	// is dropped only by the run that is the last to have begun.
	if err := r.Catalog.PutRestoring(ctx, r.progress); err != nil {
		return err
	}
	return r.writeLog(ctx, p, from, to, state, is, info)
}

// errReached ends a replay at the time that was asked for.
var errReached = errors.New("reached")

// replay makes the state of a partition: the base, and the commits up to the time.
func (r *restorer) replay(ctx context.Context, p *Partition, id feed.Partition, into *engine.Partition) error {
	m, err := p.manifest()
	if err != nil {
		return err
	}
	if m != nil {
		if err := snapshot.Load(ctx, newView(r.place, id, m), m, into, engine.LoadOptions{}); err != nil {
			return err
		}
		r.showProgress(m.Stored(), id)
	}
	replayer, err := owner.NewReplayer(into, r.Logger)
	if err != nil {
		return err
	}
	for i := range p.Segments {
		s := &p.Segments[i]
		name := logFolder(id, p.Log) + s.file()
		data, err := r.place.Get(ctx, name)
		if err != nil {
			return fmt.Errorf("%s: %w", r.place, err)
		}
		err = readSegment(s, p.Log, data, func(c *feed.Commit) error {
			switch {
			// Before the commits that the base holds are passed over. Times in a log never go back, so the first that
			// is too late ends it.
			case !r.at.IsZero() && c.Time > r.at.UnixMilli():
				return errReached
			case m != nil && c.LSN <= m.LSN:
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			return replayer.Apply(c)
		})
		if errors.Is(err, errReached) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.showProgress(s.Bytes, id)
	}
	return nil
}

func (r *restorer) showProgress(bytes uint64, id feed.Partition) {
	r.bytes += bytes
	if r.Progress != nil {
		r.Progress(Progress{Partitions: r.done, Of: len(r.b.Partitions), Bytes: r.bytes, What: id.String()})
	}
}

// writeLog makes the log of a partition that goes on from a state.
func (r *restorer) writeLog(ctx context.Context, p *Partition, from, to feed.Partition, held *engine.Partition, is *store.ContainerInfo, info store.PartitionInfo) error {
	snap := held.Snapshot()
	defer snap.Close()
	state, err := snap.State()
	if err != nil {
		return err
	}
	if state.Applied < p.First || state.Applied > p.Last {
		return fmt.Errorf("its state is of LSN %d, and the backup holds LSN %d to %d", state.Applied, p.First, p.Last)
	}
	// The entries are gone through twice: the first commit of the log names how many follow, and their digest.
	digest, entries := engine.NewDigester(), uint64(0)
	for e, err := range snap.Dump() {
		if err != nil {
			return err
		}
		digest.Add(e)
		entries++
	}
	log, err := r.Catalog.RestoreLog(ctx, is, info, state.Applied)
	if err != nil {
		return err
	}
	defer log.Close()
	w := &logWriter{log: log, last: state.Applied, sum: state.Sum}
	sum := snapshot.Sum(digest.Sum())
	first, err := owner.Continue(info.Log, &state, &store.Parent{
		Partition: from.String(), Log: state.Log, LSN: state.Applied, Checksum: state.Sum.String(), Entries: entries, Digest: fmt.Sprintf("%016x", uint64(sum)),
	})
	if err != nil {
		return err
	}
	if err := w.append(ctx, first); err != nil {
		return err
	}
	for block, err := range snapshot.Blocks(snap.Dump()) {
		if err != nil {
			return err
		}
		c := owner.StateCommit(info.Log, w.sum, state.Time, state.Applied, &feed.Control{Kind: store.ControlState, Data: block})
		if err := w.append(ctx, c); err != nil {
			return err
		}
	}
	if err := held.Sound(); err != nil { // what the engine has shown is not to be believed
		return err
	}
	r.result.Partitions = append(r.result.Partitions, RestoredState{
		From: from.String(), Partition: to.String(), LSN: state.Applied, Time: time.UnixMilli(state.Time).UTC(), Entries: entries, Digest: sum,
	})
	return nil
}

// logWriter appends to a log that nobody else writes.
type logWriter struct {
	log  *feed.Log
	last feed.LSN
	sum  feed.Checksum
}

func (w *logWriter) append(ctx context.Context, c *feed.Commit) error {
	data := feed.AppendCommit(nil, c)
	lsn, err := w.log.Append(ctx, w.last, c.ID, data)
	if err != nil {
		return err
	}
	written, err := feed.DecodeCommit(data)
	if err != nil {
		return err
	}
	w.last, w.sum = lsn, written.Sum
	return nil
}
