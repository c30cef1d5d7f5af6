package parquetsink

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// tierFiles is how many files of about one size are merged into one. Sizes are
// about one within a factor of four, so a row is rewritten a few times in its life,
// and a table has a few small files.
const tierFiles = 4

// unit is work on one folder: files that are read, edited and written anew, as one
// or several, with rows that are added.
type unit struct {
	folder string
	inputs []*file
	added  []parquet.Row
}

// folder is what happens in one.
type folder struct {
	files []*file
	added []parquet.Row
	rows  int64 // that its new file will have
	unit  unit
}

// plan says what to write: every file that is edited, large ones each by itself,
// small ones together with what is added; and, with compact, small files that
// nothing touches. Folders that nothing touches are left alone.
func (w *set) plan() []unit {
	touched := map[string]*folder{}
	var order []string
	touch := func(name string) *folder {
		if touched[name] == nil {
			touched[name] = &folder{unit: unit{folder: name}}
			order = append(order, name)
		}
		return touched[name]
	}
	for i := range w.live {
		if f := &w.live[i]; len(w.edits[f.Path]) > 0 {
			touch(f.Folder)
		}
	}
	if w.l.partition < 0 && len(w.added) > 0 {
		touch("").added = w.added
	} else {
		for _, row := range w.added {
			at := touch(w.l.folder(row))
			at.added = append(at.added, row)
		}
	}
	for i := range w.live {
		f := &w.live[i]
		if at := touched[f.Folder]; at != nil && f.Rows > 0 {
			at.files = append(at.files, f)
		}
	}
	var units []unit
	work := w.g.files.bytesMax
	for _, name := range order {
		units = w.planFolder(touched[name], units, &work)
	}
	return units
}

// planFolder adds the units of a folder. work is how many bytes of untouched files
// may still be merged.
func (w *set) planFolder(at *folder, units []unit, work *int64) []unit {
	at.unit.added, at.rows = at.added, int64(len(at.added))
	var small []*file
	for _, f := range at.files {
		switch changes := w.edits[f.Path]; {
		case len(changes) > 0 && w.full(f):
			units = append(units, unit{folder: f.Folder, inputs: []*file{f}})
		case len(changes) > 0:
			at.unit.inputs = append(at.unit.inputs, f)
			at.rows += f.Rows
		case !w.full(f):
			small = append(small, f)
		default:
		}
	}
	if w.compact {
		merged, with := w.tier(small, at.rows, work)
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

// full says whether a file is not merged with others any more: tierFiles of its size
// are more than one may hold.
func (w *set) full(f *file) bool {
	return f.Rows*tierFiles > w.g.files.rowsMax || f.Bytes*tierFiles > w.g.files.bytesMax
}

// tier chooses small files to merge, with the file of so many rows that is written
// anyway if with is true. There may be none.
func (w *set) tier(small []*file, rows int64, work *int64) (merged []*file, with bool) {
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
		if tierOf(f.Rows) > upTo || rows+f.Rows > w.g.files.rowsMax || f.Bytes > *work {
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
