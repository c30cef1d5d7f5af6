package parquetsink

import (
	"bytes"
	"context"
	"fmt"

	"github.com/parquet-go/parquet-go"
	"golang.org/x/sync/errgroup"
)

// How files are written. Pages of version 1 are read by every engine.
const (
	rowGroupRowsMax    = 131_072
	dictionaryBytesMax = 256 << 10
	writeRows          = 1024 // handed on at once
)

// fileSet is the live files of a table, or of its rejects, and what a commit changes in
// them. It writes the files that take the place of those that change.
type fileSet struct {
	rewrite *rewrite
	l       *layout
	live    []file
	edits   edits
	added   []parquet.Row
	compact bool

	made []file
}

// writeAll writes the units of the plan, several at once.
func (s *fileSet) writeAll(ctx context.Context) error {
	units := s.planUnits()
	if len(units) == 0 {
		return nil
	}
	each := make([][]file, len(units))
	group, work := errgroup.WithContext(ctx)
	group.SetLimit(s.rewrite.files.parallel)
	for i := range units {
		group.Go(func() error {
			return s.rewrite.files.withSlot(work, func() (err error) {
				each[i], err = s.writeUnit(work, &units[i])
				return err
			})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	// In the order of the plan, whichever was written first.
	for i := range units {
		for _, f := range units[i].inputs {
			s.rewrite.removed[f.Path] = true
		}
		s.made = append(s.made, each[i]...)
	}
	return s.keepOneFile(ctx)
}

// keepOneFile keeps one empty file for a table without rows, so that a reader finds its
// columns, and removes it from a table with rows:
//
//	files before    written    files after
//	empty           2 rows     2 rows
//	2 rows          nothing    empty, a new one
//	empty           nothing    empty, the same
func (s *fileSet) keepOneFile(ctx context.Context) error {
	left := 0
	for _, f := range s.live {
		if !s.rewrite.removed[f.Path] && f.Rows > 0 {
			left++
		}
	}
	for _, f := range s.live {
		if f.Rows == 0 && left+len(s.made) > 0 {
			s.rewrite.removed[f.Path] = true
		} else if f.Rows == 0 {
			return nil
		}
	}
	if left+len(s.made) > 0 {
		return nil
	}
	empty, err := s.rewrite.writeEmpty(ctx, s.l)
	s.made = []file{empty}
	return err
}

// writeEmpty writes a file without rows.
func (r *rewrite) writeEmpty(ctx context.Context, l *layout) (file, error) {
	out := r.output(ctx, l, "")
	if err := out.begin(); err != nil {
		return file{}, err
	}
	if err := out.finish(); err != nil {
		return file{}, err
	}
	return out.files[0], nil
}

// writeUnit writes what takes the place of the inputs of a unit. Rows that stay are copied
// as they were decoded, piece by piece, so that memory holds a few hundred of them.
func (s *fileSet) writeUnit(ctx context.Context, u *unit) ([]file, error) {
	out := s.rewrite.output(ctx, s.l, u.folder)
	for _, f := range u.inputs {
		data, err := s.rewrite.read(ctx, f)
		if err != nil {
			return nil, err
		}
		changes := s.edits[f.Path]
		kept := make([]parquet.Row, 0, scanRows)
		err = scan(data, s.l, func(at int64, rows []parquet.Row) error {
			if len(changes) == 0 { // it is only merged with others
				return out.write(rows)
			}
			kept = kept[:0]
			for i, row := range rows {
				if change, ok := changes[at+int64(i)]; ok {
					row = change
				}
				if row != nil {
					kept = append(kept, row)
				}
			}
			return out.write(kept)
		})
		if err != nil {
			return nil, fmt.Errorf("rewrite %s: %w", f.Path, err)
		}
	}
	s.rewrite.countRewritten(out.total) // so far: what follows is new
	for rest := u.added; len(rest) > 0; {
		n := min(len(rest), writeRows)
		if err := out.write(rest[:n]); err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	err := out.finish()
	return out.files, err
}

func (r *rewrite) output(ctx context.Context, l *layout, folder string) *output {
	put := func(name string, data []byte) error {
		return unreachable("write "+name, r.files.store.Put(ctx, name, data))
	}
	return &output{rewrite: r, l: l, folder: folder, put: put}
}

// output writes rows to one file after the other. It belongs to the goroutine of its unit.
type output struct {
	// Set once.
	rewrite *rewrite
	l       *layout
	folder  string
	put     func(name string, data []byte) error

	buf    bytes.Buffer
	writer *parquet.GenericWriter[any]
	open   bool
	rows   int64
	hashes []uint64

	total int64
	files []file
}

// begin begins a file.
func (o *output) begin() error {
	o.buf = bytes.Buffer{}
	o.open, o.rows, o.hashes = true, 0, nil
	if o.writer != nil {
		// One writer for all files of a unit: it keeps its buffers, which are megabytes.
		o.writer.Reset(&o.buf)
		return nil
	}
	config, err := parquet.NewWriterConfig(o.l.schema, parquet.Compression(codec), parquet.DataPageVersion(1),
		parquet.MaxRowsPerRowGroup(rowGroupRowsMax), parquet.DictionaryMaxBytes(dictionaryBytesMax),
		parquet.CreatedBy("millrace", "1.0.0", "parquet-go"))
	if err != nil {
		return err
	}
	o.writer = parquet.NewGenericWriter[any](&o.buf, config)
	return nil
}

// write writes rows, and finishes a file that is full.
func (o *output) write(rows []parquet.Row) error {
	if len(rows) == 0 {
		return nil
	}
	if !o.open {
		if err := o.begin(); err != nil {
			return err
		}
	}
	if _, err := o.writer.WriteRows(rows); err != nil {
		return err
	}
	for _, row := range rows {
		o.hashes = append(o.hashes, o.l.hashOf(row))
	}
	o.rows += int64(len(rows))
	o.total += int64(len(rows))
	if o.rows >= o.rewrite.files.rowsMax || o.writer.Size() >= o.rewrite.files.bytesMax {
		return o.finish()
	}
	return nil
}

// finish stores the file. The hashes of its rows go into the index at once, or the next
// commit would read it again to find them.
func (o *output) finish() error {
	if !o.open {
		return nil
	}
	o.open = false
	if err := o.writer.Close(); err != nil {
		return err
	}
	f := file{
		Path:   o.rewrite.nameFile(o.l.as, o.folder),
		Folder: o.folder, Rows: o.rows, Bytes: int64(o.buf.Len()),
	}
	if err := o.put(f.Path, o.buf.Bytes()); err != nil {
		return err
	}
	o.rewrite.files.index.putUnsorted(f.Path, o.hashes)
	o.files = append(o.files, f)
	return nil
}
