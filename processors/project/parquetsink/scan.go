package parquetsink

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// scanRows is how many rows are decoded at once.
const scanRows = 256

// openFile opens the bytes of a file.
func openFile(data []byte) (*parquet.File, error) {
	return parquet.OpenFile(bytes.NewReader(data), int64(len(data)), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
}

// scan calls f for the rows of a file in the layout, in order and by pieces; at is the
// index in the file of the first of them. The rows are valid until f returns.
// An error of f ends the scan.
func scan(data []byte, l *layout, f func(at int64, rows []parquet.Row) error) (err error) {
	opened, err := openFile(data)
	if err != nil {
		return err
	}
	columns, older, err := l.columnsOfFile(columnNames(opened))
	if err != nil {
		return err
	}
	// Rows of a piece are used again for the next one: decoding a file allocates next to
	// nothing, and whoever keeps a row clones it.
	s := &scanner{layout: l, columns: columns, chunk: make([]parquet.Row, scanRows), f: f}
	if older {
		s.adapted = make([]parquet.Row, scanRows)
	}
	for _, group := range opened.RowGroups() {
		if err := s.group(group); err != nil {
			return err
		}
	}
	return nil
}

// columnNames are those of a file, in their order.
func columnNames(f *parquet.File) []string {
	var all []string
	for _, field := range f.Schema().Fields() {
		all = append(all, field.Name())
	}
	return all
}

// scanner goes through one file.
type scanner struct {
	layout  *layout
	columns []int         // where the columns of an older file stand; nil if it is of the layout
	chunk   []parquet.Row // as they are in the file
	adapted []parquet.Row // as they are in the layout
	at      int64
	f       func(at int64, rows []parquet.Row) error
}

func (s *scanner) group(group parquet.RowGroup) (err error) {
	reader := group.Rows()
	defer func() { err = errors.Join(err, reader.Close()) }()
	for {
		n, err := reader.ReadRows(s.chunk)
		if n > 0 {
			rows := s.chunk[:n]
			if s.adapted != nil {
				rows = s.adapt(rows)
			}
			if err := s.f(s.at, rows); err != nil {
				return err
			}
			s.at += int64(n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// adapt moves the values of rows of an older file to their columns; columns that were added
// since are null. Files are not rewritten when a column is added, only when a row in them
// changes.
func (s *scanner) adapt(rows []parquet.Row) []parquet.Row {
	for i, row := range rows {
		to := s.adapted[i]
		if to == nil {
			to = make(parquet.Row, len(s.layout.columns))
			s.adapted[i] = to
		}
		for j := range to {
			to[j] = s.layout.nullValue(j)
		}
		for j, v := range row {
			to[s.columns[j]] = s.layout.inColumn(v, s.columns[j])
		}
	}
	return s.adapted[:len(rows)]
}

// hashesOf returns the hashes of all rows of a file in ascending order. It reads
// no more than the columns that it needs.
func hashesOf(data []byte, l *layout) ([]uint64, error) {
	opened, err := openFile(data)
	if err != nil {
		return nil, err
	}
	columns := l.key
	if l.hash >= 0 {
		columns = []int{l.hash}
	}
	inFile := columnNames(opened)
	all := make([]uint64, 0, opened.NumRows())
	for _, group := range opened.RowGroups() {
		// Column by column, as the file has them: rows need not be put together, and the
		// columns outside of the key are not even decompressed.
		hashes := make([]uint64, group.NumRows())
		for i := range hashes {
			hashes[i] = hashSeed
		}
		for _, column := range columns {
			at := slices.Index(inFile, l.columns[column].as)
			if at < 0 {
				return nil, fmt.Errorf("column %q is missing", l.columns[column].as)
			}
			if err := foldColumn(hashes, group.ColumnChunks()[at], l.hash >= 0); err != nil {
				return nil, err
			}
		}
		all = append(all, hashes...)
	}
	slices.Sort(all)
	return all, nil
}

// foldColumn takes the values of a column into the hashes of its rows, or makes
// them the hashes.
func foldColumn(hashes []uint64, chunk parquet.ColumnChunk, whole bool) (err error) {
	pages := chunk.Pages()
	defer func() { err = errors.Join(err, pages.Close()) }()
	values := make([]parquet.Value, scanRows)
	row := 0
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			if row != len(hashes) {
				return fmt.Errorf("a column has %d values for %d rows", row, len(hashes))
			}
			return nil
		}
		if err != nil {
			return err
		}
		reader := page.Values()
		for {
			n, err := reader.ReadValues(values)
			if row+n > len(hashes) {
				return fmt.Errorf("a column has more values than %d rows", len(hashes))
			}
			for _, v := range values[:n] {
				if whole {
					hashes[row] = uint64(v.Int64())
				} else {
					hashes[row] = fold(hashes[row], v)
				}
				row++
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
		}
		parquet.Release(page)
	}
}
