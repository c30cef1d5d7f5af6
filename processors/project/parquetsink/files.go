package parquetsink

import (
	"context"
	"errors"
	"fmt"
	"path"
)

// files are the Parquet files in a store, and the index over those that were
// looked into. Safe for concurrent use.
type files struct {
	store    ObjectStore
	index    *index
	rowsMax  int64
	bytesMax int64
	// parallel is how many files are worked on at once; slots holds a token for
	// each.
	parallel int
	slots    chan struct{}
}

// errGone says that a file of a manifest is not there.
var errGone = errors.New("parquet sink: a live file is missing")

// withSlot does work that takes a core and memory, when there is a slot.
func (f *files) withSlot(ctx context.Context, work func() error) error {
	select {
	case f.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-f.slots }()
	return work()
}

// read returns the bytes of a live file.
func (f *files) read(ctx context.Context, at *file) ([]byte, error) {
	data, err := f.store.Get(ctx, at.Path)
	if missing(err) {
		return nil, fmt.Errorf("%s: %w: it has been superseded, or removed by someone else: %w", at.Path, errGone, err)
	}
	if err != nil {
		return nil, unreachable("read "+at.Path, err)
	}
	return data, nil
}

// hashes returns the hashes of the rows of a live file in ascending order.
func (f *files) hashes(ctx context.Context, at *file, l *layout) (all []uint64, err error) {
	if at.Rows == 0 {
		return nil, nil
	}
	if all, ok := f.index.get(at.Path); ok {
		return all, nil
	}
	err = f.withSlot(ctx, func() error {
		// Read within the slot: all files of a table are asked for at once, and memory
		// has room for as many as there are slots.
		data, err := f.read(ctx, at)
		if err != nil {
			return err
		}
		if all, err = hashesOf(data, l); err != nil {
			return fmt.Errorf("read %s: %w", at.Path, err)
		}
		return nil
	})
	if err == nil {
		f.index.put(at.Path, all)
	}
	return all, err
}

// folderOf is where the files of a table, or of its rejects, stand.
func folderOf(as string, generation uint32, partition string) string {
	return path.Join(as, "data", fmt.Sprintf("g%d", generation), partition)
}

// read returns the bytes of a live file, those of small ones without asking twice: a file
// that changes is read to find its rows, and again to write what stays of it.
func (r *rewrite) read(ctx context.Context, f *file) ([]byte, error) {
	r.mu.Lock()
	data, ok := r.cached[f.Path]
	r.mu.Unlock()
	if ok {
		return data, nil
	}
	data, err := r.files.read(ctx, f)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if int64(r.cachedBytes+len(data)) <= r.files.bytesMax {
		r.cached[f.Path] = data
		r.cachedBytes += len(data)
	}
	return data, nil
}
