package snapshot

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/millrace/millrace/store/engine"
)

// Entries reads a snapshot from the store, and compares each part with its checksum, and
// all of them with the digest: the last thing that it yields is an error if they differ.
// So nothing of what it has yielded is to be believed before it has ended. The error is
// *DamagedError, or that of the store, or of pace, which is called before each part, and then
// whenever some 64 KiB of it were decompressed or yielded.
func Entries(ctx context.Context, s Store, m *Manifest, pace func() error) iter.Seq2[engine.DumpEntry, error] {
	return func(yield func(engine.DumpEntry, error) bool) {
		r := reader{s: s, m: m, digest: engine.NewDigester()}
		stopped, err := r.read(ctx, pace, yield)
		if err != nil && !stopped {
			yield(engine.DumpEntry{}, err)
		}
	}
}

type reader struct {
	s       Store
	m       *Manifest
	digest  *engine.Digester
	content []byte
}

// read yields all entries; stopped says that the caller wants no more, so that nothing may be
// yielded after it, not even an error.
func (r *reader) read(ctx context.Context, pace func() error, yield func(engine.DumpEntry, error) bool) (stopped bool, err error) {
	decoder, err := newDecoder()
	if err != nil {
		return false, err
	}
	defer decoder.Close()
	entries := uint64(0)
	for i := range r.m.Parts {
		if err := pace(); err != nil {
			return false, err
		}
		part := &r.m.Parts[i]
		damaged := func(reason string) error { return &DamagedError{r.m.Partition, r.m.part(i), reason} }
		data, err := r.s.Get(ctx, r.m.part(i))
		if errors.Is(err, ErrNotFound) {
			return false, damaged("is gone")
		}
		if err != nil {
			return false, fmt.Errorf("partition %s: snapshot %s: %w", r.m.Partition, r.m.id, err)
		}
		if err := checkPart(part, data); err != nil {
			return false, damaged(err.Error())
		}
		work := turns{pace: pace}
		var damage error
		if r.content, damage, err = decompress(decoder, data, r.content, &work); err != nil {
			return false, err
		}
		if damage != nil {
			return false, damaged("cannot be decompressed: " + damage.Error())
		}
		count := uint64(0)
		for rest := r.content; len(rest) > 0; count++ {
			var e engine.DumpEntry
			if e, rest, err = nextEntry(rest); err != nil {
				return false, damaged(err.Error())
			}
			r.digest.Add(e)
			if !yield(e, nil) {
				return true, nil
			}
			if err := work.worked(len(e.Key) + len(e.Value)); err != nil {
				return false, err
			}
		}
		if count != part.Entries {
			return false, damaged(fmt.Sprintf("has %d entries, the manifest says %d", count, part.Entries))
		}
		entries += count
	}
	if sum := Sum(r.digest.Sum()); sum != r.m.Digest || entries != r.m.Entries {
		return false, &DamagedError{r.m.Partition, r.m.folder(), fmt.Sprintf("has %d entries with digest %016x, the manifest says %d with %016x",
			entries, uint64(sum), r.m.Entries, uint64(r.m.Digest))}
	}
	return false, nil
}

// checkParts compares each part of a snapshot with its checksum.
func checkParts(ctx context.Context, s Store, m *Manifest, pace func() error) error {
	for i := range m.Parts {
		if err := pace(); err != nil {
			return err
		}
		data, err := s.Get(ctx, m.part(i))
		if errors.Is(err, ErrNotFound) {
			return &DamagedError{m.Partition, m.part(i), "is gone"}
		}
		if err != nil {
			return fmt.Errorf("partition %s: snapshot %s: %w", m.Partition, m.id, err)
		}
		if err := checkPart(&m.Parts[i], data); err != nil {
			return &DamagedError{m.Partition, m.part(i), err.Error()}
		}
	}
	return nil
}

// readBack reads all of a snapshot.
func readBack(ctx context.Context, s Store, m *Manifest, pace func() error) error {
	for _, err := range Entries(ctx, s, m, pace) {
		if err != nil {
			return err
		}
	}
	return nil
}

// Verify reads all of a snapshot, as Entries does, and keeps nothing of it.
func Verify(ctx context.Context, s Store, m *Manifest, progress func() error) error {
	return readBack(ctx, s, m, progress)
}

// Load makes a partition of the engine what the snapshot is of. opt.Bytes is set, and
// opt.Progress is called as Entries calls pace, too. After an error the partition is empty, or as it
// was if that is *engine.NoRoomError. The error is as of Entries, or that of the engine.
func Load(ctx context.Context, s Store, m *Manifest, into *engine.Partition, opt engine.LoadOptions) error {
	opt.Bytes = int64(m.Bytes)
	pace := func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if opt.Progress != nil {
			return opt.Progress(false)
		}
		return nil
	}
	return into.Load(ctx, m.State(), Entries(ctx, s, m, pace), opt)
}
