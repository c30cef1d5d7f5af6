package parquetsink

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// tierFiles is how many files of one tier are merged into one. A tier is a factor of
// four in size, so a row is rewritten a few times in its life, and a table has a few
// small files. Ten commits of 500 rows each, by the sizes of the files they leave:
//
//	1: 500     2: 500 500     3: 500 500 500     4: 2000     5: 2000 500
//	8: 2000 2000                                             10: 2000 2000 500 500
//
// Merging at each commit would leave one file, and write each row anew in each commit.
const tierFiles = 4

// unit is work on one folder: files that are read, edited and written anew, as one
// or several, with rows that are added.
type unit struct {
	folder string
	inputs []*file
	added  []parquet.Row
}

// folderWork is what happens in one folder.
type folderWork struct {
	files []*file
	added []parquet.Row
	rows  int64 // that its new file will have
	unit  unit
}

// planUnits says what to write: every file that is edited, large ones each by itself,
// small ones together with what is added; and, with compact, small files that
// nothing touches. Folders that nothing touches are left alone.
func (s *fileSet) planUnits() []unit {
	touched := map[string]*folderWork{}
	var order []string
	touch := func(name string) *folderWork {
		if touched[name] == nil {
			touched[name] = &folderWork{unit: unit{folder: name}}
			order = append(order, name)
		}
		return touched[name]
	}
	for i := range s.live {
		if f := &s.live[i]; len(s.edits[f.Path]) > 0 {
			touch(f.Folder)
		}
	}
	if s.l.partition < 0 && len(s.added) > 0 {
		touch("").added = s.added
	} else {
		for _, row := range s.added {
			at := touch(s.l.partitionFolder(row))
			at.added = append(at.added, row)
		}
	}
	for i := range s.live {
		f := &s.live[i]
		if at := touched[f.Folder]; at != nil && f.Rows > 0 {
			at.files = append(at.files, f)
		}
	}
	// One commit merges no more than one file's worth of bytes that nothing touches:
	// writers wait for the commit, and the next one goes on merging.
	var units []unit
	work := s.rewrite.files.bytesMax
	for _, name := range order {
		units = s.planFolder(touched[name], units, &work)
	}
	return units
}

// planFolder adds the units of a folder. work is how many bytes of untouched files
// may still be merged.
func (s *fileSet) planFolder(at *folderWork, units []unit, work *int64) []unit {
	at.unit.added, at.rows = at.added, int64(len(at.added))
	var small []*file
	for _, f := range at.files {
		switch changes := s.edits[f.Path]; {
		case len(changes) > 0 && s.isFull(f):
			units = append(units, unit{folder: f.Folder, inputs: []*file{f}})
		case len(changes) > 0:
			at.unit.inputs = append(at.unit.inputs, f)
			at.rows += f.Rows
		case !s.isFull(f):
			small = append(small, f)
		default:
		}
	}
	if s.compact {
		merged, with := s.chooseSmall(small, at.rows, work)
		switch {
		case with:
			at.unit.inputs = append(at.unit.inputs, merged...)
		case len(merged) > 1:
			units = append(units, unit{folder: at.unit.folder, inputs: merged})
		default:
		}
	}
	if len(at.unit.inputs)+len(at.unit.added) > 0 {
		units = append(units, at.unit)
	}
	return units
}

// isFull says whether a file is not merged with others any more: tierFiles of its size
// are more than one may hold.
func (s *fileSet) isFull(f *file) bool {
	return f.Rows*tierFiles > s.rewrite.files.rowsMax || f.Bytes*tierFiles > s.rewrite.files.bytesMax
}

// chooseSmall chooses small files to merge, with the file of so many rows that is written
// anyway if with is true. There may be none. It takes every tier up to the first one that
// has enough files, not that one alone: smaller files cost little to take along.
func (s *fileSet) chooseSmall(small []*file, rows int64, work *int64) (merged []*file, with bool) {
	slices.SortFunc(small, func(a, b *file) int {
		return cmp.Or(cmp.Compare(a.Rows, b.Rows), cmp.Compare(a.Path, b.Path))
	})
	upTo := -1 // the first tier that has enough
	counts := map[int]int{}
	if rows > 0 {
		counts[tierOf(rows)]++
	}
	for _, f := range small {
		counts[tierOf(f.Rows)]++
	}
	for t := range 64 {
		if counts[t] >= tierFiles {
			upTo = t
			break
		}
	}
	if upTo < 0 {
		return nil, false
	}
	with = rows > 0 && tierOf(rows) <= upTo
	if !with {
		rows = 0
	}
	for _, f := range small {
		if tierOf(f.Rows) > upTo || rows+f.Rows > s.rewrite.files.rowsMax || f.Bytes > *work {
			break
		}
		rows += f.Rows
		*work -= f.Bytes
		merged = append(merged, f)
	}
	return merged, with && len(merged) > 0
}

// tierOf counts powers of four from 1024 rows.
func tierOf(rows int64) int { return (bits.Len64(uint64(rows)>>10) + 1) / 2 }
