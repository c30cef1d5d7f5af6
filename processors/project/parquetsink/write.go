package parquetsink

import (
	"bytes"
	"context"
	"fmt"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
	"golang.org/x/sync/errgroup"
)

// How files are written. Pages of version 1 are read by every engine.
const (
	rowGroupRowsMax    = 131_072
	dictionaryBytesMax = 256 << 10
	writeRows          = 1024 // handed on at once
)

var codec = &zstd.Codec{Level: zstd.SpeedFastest}

// set writes the files that take the place of those of a table, or of its
// rejects, that change.
type set struct {
	g       *stage
	l       *layout
	live    []file
	edits   edits
	added   []parquet.Row
	compact bool

	made []file
}

func (w *set) write(ctx context.Context) error {
	units := w.plan()
	if len(units) == 0 {
		return nil
	}
	each := make([][]file, len(units))
	group, work := errgroup.WithContext(ctx)
	group.SetLimit(w.g.files.parallel)
	for i := range units {
		group.Go(func() error {
			return w.g.files.heavy(work, func() (err error) {
				each[i], err = w.unit(work, &units[i])
				return err
			})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i := range units {
		for _, f := range units[i].inputs {
			w.g.removed[f.Path] = true
		}
		w.made = append(w.made, each[i]...)
	}
	return w.keepOne(ctx)
}

// keepOne sees to it that a table without rows has one file, which shows its
// columns, and one with rows no such file.
func (w *set) keepOne(ctx context.Context) error {
	left := 0
	for _, f := range w.live {
		if !w.g.removed[f.Path] && f.Rows > 0 {
			left++
		}
	}
	for _, f := range w.live {
		if f.Rows == 0 && left+len(w.made) > 0 {
			w.g.removed[f.Path] = true
		} else if f.Rows == 0 {
			return nil
		}
	}
	if left+len(w.made) > 0 {
		return nil
	}
	empty, err := w.g.empty(ctx, w.l)
	w.made = []file{empty}
	return err
}

// empty writes a file without rows.
func (g *stage) empty(ctx context.Context, l *layout) (file, error) {
	out := g.output(ctx, l, "")
	if err := out.begin(); err != nil {
		return file{}, err
	}
	if err := out.finish(); err != nil {
		return file{}, err
	}
	return out.files[0], nil
}

// unit writes what takes the place of the inputs of a unit.
func (w *set) unit(ctx context.Context, u *unit) ([]file, error) {
	out := w.g.output(ctx, w.l, u.folder)
	for _, f := range u.inputs {
		data, err := w.g.read(ctx, f)
		if err != nil {
			return nil, err
		}
		changes := w.edits[f.Path]
		kept := make([]parquet.Row, 0, scanRows)
		err = scan(data, w.l, func(at int64, rows []parquet.Row) error {
			if len(changes) == 0 {
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
	w.g.countRewritten(out.total)
	for rest := u.added; len(rest) > 0; {
		n := min(len(rest), writeRows)
		if err := out.write(rest[:n]); err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	return out.files, out.finish()
}

func (g *stage) output(ctx context.Context, l *layout, folder string) *output {
	put := func(name string, data []byte) error {
		return unreachable("write "+name, g.files.store.Put(ctx, name, data))
	}
	return &output{g: g, l: l, folder: folder, put: put}
}

// output writes rows to one file after the other.
type output struct {
	g      *stage
	l      *layout
	folder string
	put    func(name string, data []byte) error

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
	if o.rows >= o.g.files.rowsMax || o.writer.Size() >= o.g.files.bytesMax {
		return o.finish()
	}
	return nil
}

// finish puts the file in its place.
func (o *output) finish() error {
	if !o.open {
		return nil
	}
	o.open = false
	if err := o.writer.Close(); err != nil {
		return err
	}
	f := file{
		Path:   o.g.name(o.l.as, o.folder),
		Folder: o.folder, Rows: o.rows, Bytes: int64(o.buf.Len()),
	}
	if err := o.put(f.Path, o.buf.Bytes()); err != nil {
		return err
	}
	o.g.files.index.putUnsorted(f.Path, o.hashes)
	o.files = append(o.files, f)
	return nil
}
