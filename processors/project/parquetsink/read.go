package parquetsink

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/parquet-go/parquet-go"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
)

// errStopped ends a scan whose reader wants no more.
var errStopped = errors.New("parquet sink: stopped")

// newest returns the newest manifest, beside commits.
func (s *Sink) newest(ctx context.Context) (*manifest, error) {
	// A log of its own, so that a reader needs no turn: manifests and files do not change,
	// and superseded files stay for Grace.
	c := newCommitLog(s.store)
	err := c.refresh(ctx)
	return c.last, err
}

// Rows yields the rows of a table as of one commit. Reading must not take longer
// than Grace.
func (s *Sink) Rows(ctx context.Context, schema *project.Schema, table int) iter.Seq2[project.Row, error] {
	return scanned(func(yield func(project.Row) error) error {
		t, err := s.tableOf(ctx, schema, table)
		if t == nil || err != nil {
			return err
		}
		l, err := newLayout(t)
		if err != nil {
			return unreachable("read", fmt.Errorf("%w: %w", errManifest, err))
		}
		r := newRowReader(l, &schema.Tables[table], table)
		return s.each(ctx, t.Files, l, func(row parquet.Row) error { return yield(r.read(row)) })
	})
}

// scanned yields what read yields, and then its error. To yield returns errStopped when
// nobody wants more.
func scanned[T any](read func(yield func(T) error) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		err := read(func(v T) error {
			if !yield(v, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			var none T
			yield(none, err)
		}
	}
}

// rowReader makes rows of a schema of those of files.
type rowReader struct {
	l       *layout
	schema  *project.TableSchema
	table   int
	columns []int // of the layout, -1 for one that it does not have
}

func newRowReader(l *layout, schema *project.TableSchema, table int) *rowReader {
	r := &rowReader{l: l, schema: schema, table: table}
	for i := range schema.Columns {
		r.columns = append(r.columns, l.table.Column(schema.Columns[i].Name))
	}
	return r
}

func (r *rowReader) read(row parquet.Row) project.Row {
	values := make([]project.Value, len(r.columns))
	for i, column := range r.columns {
		if column >= 0 {
			values[i] = r.l.decode(column, row[column])
		}
	}
	return project.Row{
		Table: r.table, Key: r.schema.KeyOf(values), Values: values,
		Source: textOf(row[r.l.source]), Element: textOf(row[r.l.element]),
	}
}

// Rejects yields the rejects of a table, pending rows among them, as of one commit.
func (s *Sink) Rejects(ctx context.Context, schema *project.Schema, table int) iter.Seq2[project.Reject, error] {
	return scanned(func(yield func(project.Reject) error) error {
		t, err := s.tableOf(ctx, schema, table)
		if t == nil || err != nil {
			return err
		}
		return s.each(ctx, t.Rejects, newRejectLayout(t.RejectsAs), func(row parquet.Row) error {
			r, err := rejectOf(&schema.Tables[table], table, row)
			if err != nil {
				return err
			}
			return yield(r)
		})
	})
}

func rejectOf(s *project.TableSchema, table int, row parquet.Row) (project.Reject, error) {
	r := project.Reject{
		Table: table, Source: textOf(row[rejectSource]), Element: textOf(row[rejectElement]),
		Column: textOf(row[rejectColumn]), Reason: textOf(row[rejectReason]),
	}
	if v := row[rejectRow]; !v.IsNull() {
		r.Row = []byte(textOf(v))
	}
	if row[rejectKey].IsNull() {
		return r, nil
	}
	values, err := s.ParseRow(r.Row)
	if err != nil {
		return r, unreachable("read a pending row", err)
	}
	r.Key = s.KeyOf(values)
	return r, nil
}

// Positions returns what is recorded for a generation.
func (s *Sink) Positions(ctx context.Context, schema *project.Schema) (map[string]feed.Position, error) {
	m, err := s.newest(ctx)
	if err != nil {
		return nil, err
	}
	positions := map[string]feed.Position{}
	ts := m.setOf(schema.Generation)
	if ts == nil {
		return positions, nil
	}
	for i := range ts.Sources {
		if src := &ts.Sources[i]; src.Generation == schema.Generation {
			at, err := src.position()
			if err != nil {
				return nil, unreachable("read", fmt.Errorf("%w: %w", errManifest, err))
			}
			positions[src.Source] = at
		}
	}
	return positions, nil
}

// tableOf returns a table as of the newest manifest, nil if there is none.
func (s *Sink) tableOf(ctx context.Context, schema *project.Schema, index int) (*table, error) {
	m, err := s.newest(ctx)
	if err != nil {
		return nil, err
	}
	ts := m.setOf(schema.Generation)
	if current := m.current(); ts == nil && current != nil && !schema.Shadow && m.Pipeline == schema.Pipeline && current.newestGeneration() < schema.Generation {
		ts = current // it will join that, see joinSet
	}
	if ts == nil {
		return nil, nil
	}
	return ts.table(schema.Tables[index].Name), nil
}

// each calls f for the rows of files until it returns an error.
func (s *Sink) each(ctx context.Context, files []file, l *layout, f func(parquet.Row) error) error {
	for i := range files {
		data, err := s.files.read(ctx, &files[i])
		if err != nil {
			return unreachable("read", err)
		}
		err = scan(data, l, func(_ int64, rows []parquet.Row) error {
			for _, row := range rows {
				if err := f(row); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return unreachable("read "+files[i].Path, err)
		}
	}
	return nil
}
