package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/s3"
)

// Write takes a snapshot of a partition, reads it back, and makes it the newest one.
// logBytes is the size of the log's stream. pace is called first, after each part that was written or read,
// and whenever some 64 KiB were worked on; its error ends the write. sound is asked before the pointer moves: it tells whether what source
// has shown is to be believed.
//
// Nothing is written if source was never written, and the manifest is nil then. After an
// error without a manifest the pointer names what it named before; with one, only what is
// not named any more could not be removed.
func Write(ctx context.Context, s Store, p feed.Partition, source *engine.Snapshot, logBytes uint64, pace, sound func() error) (_ *Manifest, err error) {
	state, err := source.State()
	if err != nil || state.Applied == 0 {
		return nil, err
	}
	if err := pace(); err != nil { // who has lost the partition meanwhile sweeps nothing
		return nil, err
	}
	if err := sweep(ctx, s, p, state.Log); err != nil {
		return nil, err
	}
	m := &Manifest{
		Format: format, Layout: engine.LayoutVersion, Partition: p, Of: p.String(), Log: state.Log, LSN: state.Applied, Checksum: Sum(state.Sum), Time: state.Time,
		Epoch: state.Epoch, Owner: state.Owner, Settings: state.Settings, LogBytes: logBytes, Taken: time.Now().UTC(), id: newID(state.Applied),
	}
	asked := false // for the pointer to name it
	defer func() {
		if err != nil && (!asked || !mayLand(err)) {
			err = errors.Join(err, discard(context.WithoutCancel(ctx), s, m))
		}
	}()
	if err := writeParts(ctx, s, m, source, pace); err != nil {
		return nil, fmt.Errorf("partition %s: snapshot: %w", p, err)
	}
	if err := sound(); err != nil {
		return nil, fmt.Errorf("partition %s: snapshot: %w", p, err)
	}
	source.Close() // the engine need not keep what it sees any longer
	if err := readBack(ctx, s, m, pace); err != nil {
		return nil, err
	}
	if asked, err = publish(ctx, s, m, pace); err != nil {
		return nil, err
	}
	return m, sweep(ctx, s, p, state.Log)
}

// publish makes a snapshot that was read back the newest one. asked says that the store was
// asked to name it.
func publish(ctx context.Context, s Store, m *Manifest, pace func() error) (asked bool, err error) {
	data, err := json.Marshal(m)
	if err != nil {
		return false, err
	}
	if err := s.Put(ctx, m.folder()+manifestFile, data); err != nil {
		return false, fmt.Errorf("partition %s: snapshot: %w", m.Partition, err)
	}
	n := named{m.id, Sum(xxhash.Sum64(data))}
	if _, err := readManifest(ctx, s, m.Partition, n); err != nil {
		return false, err
	}
	at, err := readPointerOrNone(ctx, s, m.Partition)
	if err != nil {
		return false, err
	}
	older, err := firstWhole(ctx, s, m.Partition, at.Snapshots, pace)
	if err != nil {
		return false, err
	}
	unlock, err := lockPointer(ctx, m.Partition)
	if err != nil {
		return false, err
	}
	defer unlock()
	// Read again: somebody may have pinned, or released, while the older one was read.
	if at, err = readPointerOrNone(ctx, s, m.Partition); err != nil {
		return false, err
	}
	// A process that was the owner, and was stopped for a while, goes on with what it had
	// begun:
	//
	//	here                        the next owner
	//	parts as of LSN 40 written
	//	stopped                     snapshot as of 70 named, log trimmed up to 70
	//	names 40: the log begins at 71, so 40 cannot be loaded any more
	//
	// So an older snapshot is refused. Where the store compares revisions, nobody can move the
	// pointer between this look and the write.
	for _, is := range at.Snapshots {
		if is.ID[:min(len(is.ID), lsnDigits)] <= m.id[:lsnDigits] {
			continue
		}
		newer, err := readManifest(ctx, s, m.Partition, is)
		if _, damaged := errors.AsType[*DamagedError](err); damaged {
			continue
		}
		if err != nil {
			return false, err // what it names may be the one that the log was trimmed to
		}
		if newer.Log == m.Log {
			return false, fmt.Errorf("partition %s: snapshot %s: a newer one, %s, was taken meanwhile", m.Partition, m.id, is.ID)
		}
	}
	at.Snapshots = append([]named{n}, older...)
	return true, writePointer(ctx, s, m.Partition, at)
}

// mayLand reports whether the last request of a write may still be carried out although it has
// failed here. If that was the pointer's, the snapshot must stay, because the pointer may name
// it in the end. If the pointer does not, the next write removes the snapshot.
func mayLand(err error) bool {
	return errors.Is(err, s3.ErrSlow) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// discard removes what a failed write has written: it would take room until the next one. It
// leaves a snapshot that the pointer names: then only a sync behind that failed.
func discard(ctx context.Context, s Store, m *Manifest) error {
	at, err := readPointer(ctx, s, m.Partition)
	if err != nil || at.names(m.id) {
		return nil //nolint:nilerr // what cannot be read tells nothing; the next write sweeps
	}
	return s.Remove(ctx, m.folder())
}

// firstWhole returns the newest of some snapshots that is whole, alone: kept beside the new
// one, a damaged one would cost what the one before it still holds.
func firstWhole(ctx context.Context, s Store, p feed.Partition, all []named, pace func() error) ([]named, error) {
	for _, n := range all {
		m, err := readManifest(ctx, s, p, n)
		if err == nil {
			err = checkParts(ctx, s, m, pace)
		}
		if _, damaged := errors.AsType[*DamagedError](err); damaged {
			continue
		}
		if err != nil {
			return nil, err
		}
		return []named{n}, nil
	}
	return nil, nil
}

// sweep removes what the pointer of a partition does not name: older snapshots, what writes
// left that did not end, and snapshots of another log than this one, which stood in its place.
func sweep(ctx context.Context, s Store, p feed.Partition, log feed.LogID) error {
	// Nobody pins meanwhile what is removed here.
	unlock, err := lockPointer(ctx, p)
	if err != nil {
		return err
	}
	defer unlock()
	at, err := readPointerOrNone(ctx, s, p)
	if err != nil {
		return err
	}
	names, err := s.List(ctx, folder(p))
	if err != nil {
		return fmt.Errorf("partition %s: snapshots: %w", p, err)
	}
	for _, name := range names {
		id, isFolder := strings.CutSuffix(name, "/")
		if !isFolder || at.names(id) || !at.passed(id) && !ofAnother(ctx, s, p, id, log) {
			continue
		}
		if err := s.Remove(ctx, folder(p)+name); err != nil {
			return fmt.Errorf("partition %s: snapshots: %w", p, err)
		}
	}
	return nil
}

// ofAnother tells whether a snapshot is of another log than this one. A log that was deleted
// and made again begins with low LSNs, behind which those of the one before would never come.
func ofAnother(ctx context.Context, s Store, p feed.Partition, id string, log feed.LogID) bool {
	data, err := s.Get(ctx, folder(p)+id+"/"+manifestFile)
	if err != nil {
		return false // it may be on its way
	}
	m, err := Decode(p, id, data)
	return err == nil && m.Log != log
}

// writeParts writes the entries of source, and what they are into m.
func writeParts(ctx context.Context, s Store, m *Manifest, source *engine.Snapshot, pace func() error) error {
	encoder, err := newEncoder()
	if err != nil {
		return err
	}
	defer encoder.Close() //nolint:errcheck // compress closes each frame; one that was given up goes nowhere
	w := partWriter{s: s, m: m, encoder: encoder, work: turns{pace: pace}}
	digest := engine.NewDigester()
	for e, err := range source.Dump() {
		if err != nil {
			return err
		}
		digest.Add(e)
		if err := w.add(ctx, e); err != nil {
			return err
		}
	}
	m.Digest = Sum(digest.Sum())
	return w.flush(ctx)
}

type partWriter struct {
	s       Store
	m       *Manifest
	encoder *zstd.Encoder
	work    turns

	content, part []byte
	entries       uint64
}

func (w *partWriter) add(ctx context.Context, e engine.DumpEntry) error {
	size := len(e.Key) + len(e.Value)
	if len(w.content)+size+20 > partTarget { // 20 is what the two lengths take at most
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	w.content = appendEntry(w.content, e)
	w.entries++
	w.m.Entries++
	if e.IsItem() {
		w.m.items++
	}
	w.m.Bytes += uint64(size)
	return w.work.worked(size)
}

func (w *partWriter) flush(ctx context.Context) (err error) {
	if w.entries == 0 {
		return nil
	}
	if w.part, err = compress(w.encoder, w.content, w.part, &w.work); err != nil {
		return err
	}
	w.m.Parts = append(w.m.Parts, Part{Bytes: uint64(len(w.part)), Checksum: Sum(xxhash.Sum64(w.part)), Entries: w.entries})
	if err := w.s.Put(ctx, w.m.part(len(w.m.Parts)-1), w.part); err != nil {
		return err
	}
	w.content, w.entries = w.content[:0], 0
	return w.work.pace()
}
