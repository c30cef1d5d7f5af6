package verify

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store"
)

// rowDifference is a difference of a row or reject, with what it takes to repair it.
type rowDifference struct {
	Difference
	row    *project.Row    // that should be there, or that is and should not be; nil for a reject
	reject *project.Reject // likewise
	kept   bool            // it has to be there, and its item, as it is, does not make it
}

// examined are what some items must have in the sink, and what is there.
type examined struct {
	j      *rowJudge
	items  map[string]*examinedItem // by source
	holder map[string]string        // by table and key: whose row has it; "" for nobody's
}

// examinedItem is one item.
type examinedItem struct {
	rows    []project.Row
	rejects []project.Reject
	actual  []project.Row
	stored  []project.Reject
}

// newExamined begins to examine items that must have rows and rejects.
func newExamined(j *rowJudge, items map[string]*examinedItem) *examined {
	x := &examined{j: j, items: items, holder: map[string]string{}}
	for _, one := range items {
		for i := range one.rows {
			x.holder[rowName(one.rows[i].Table, one.rows[i].Key)] = ""
		}
	}
	return x
}

// itemsAsRead returns what items must have as they were read.
func (j *rowJudge) itemsAsRead(sources []string, items map[string]store.Item) map[string]*examinedItem {
	must := make(map[string]*examinedItem, len(sources))
	for _, source := range sources {
		one := &examinedItem{}
		if item := items[source]; item.ETag != (store.ETag{}) {
			one.rows, one.rejects = j.check.p.Projection.RowsOf(item.Key, item.ID, item.Body)
		}
		must[source] = one
	}
	return must
}

// rowName tells rows apart by table and key.
func rowName(table int, key []project.Value) string {
	return string(project.AppendKey(strconv.AppendInt(nil, int64(table), 10), key))
}

// readSink reads what the sink has of the items.
func (x *examined) readSink(ctx context.Context) error {
	return x.j.check.readSink(ctx, func(table int, row project.Row) {
		if one := x.items[row.Source]; one != nil {
			one.actual = append(one.actual, row)
		}
		// Also rows of items that are not examined: they may hold the key of one.
		if name := rowName(table, row.Key); x.asked(name) {
			x.holder[name] = row.Source
		}
	}, func(_ int, reject project.Reject) error {
		if one := x.items[reject.Source]; one != nil {
			one.stored = append(one.stored, reject)
		}
		return nil
	})
}

func (x *examined) asked(name string) bool {
	_, asked := x.holder[name]
	return asked
}

// differences compares what one item must have with what is there.
func (x *examined) differences(source string) []rowDifference {
	// Five passes, each of which takes what it explains out of the maps, so that
	// the next one sees what is left:
	//
	//	1 rows that are there      -> actual, by table and key; a second one is surplus
	//	2 what waits or was refused -> claims, rejects
	//	3 rows that must be there  -> take their own out of actual and claims
	//	4 what is left of actual   -> surplus, and of claims: it waits for nothing
	//	5 rejects that must be     -> against what is left of rejects
	//
	// For an item that must have rows a and b, where a is there, b waits for its
	// key and an old c is there too: 1 {a, c}, 2 {b}, 3 leaves {c} and {}, 4 says
	// that c should not be there.
	one := x.items[source]
	actual := map[string]*project.Row{}
	var found []rowDifference
	for i := range one.actual {
		r := &one.actual[i]
		name := rowName(r.Table, r.Key)
		// No sink should ever show two; which of them is right nobody can say.
		if actual[name] != nil {
			found = append(found, x.surplusRow(r, "it is there more than once"))
			continue
		}
		actual[name] = r
	}
	claims, rejects := one.waiting()
	for i := range one.rows {
		want := &one.rows[i]
		name := rowName(want.Table, want.Key)
		if d, ok := x.compareRow(want, actual[name], claims[name]); ok {
			refused := strconv.Itoa(want.Table) + " " + want.Element
			// A row that cannot be written stands among the rejects instead, with the
			// reason: that is how it has to be, and no difference.
			if actual[name] != nil || claims[name] != nil || rejects[refused] == nil {
				found = append(found, d)
			}
			delete(rejects, refused) // the sink could not take it, and says so
		}
		delete(actual, name)
		delete(claims, name)
	}
	// By the pointers: of two rows of one key the first is in the map, and the
	// second was reported above. The list is walked, not the map, for a fixed
	// order of differences.
	for i := range one.actual {
		if r := &one.actual[i]; actual[rowName(r.Table, r.Key)] == r {
			found = append(found, x.surplusRow(r, ""))
		}
	}
	for i := range one.stored {
		if r := &one.stored[i]; r.Pending() && claims[rowName(r.Table, r.Key)] == r {
			row := &project.Row{Table: r.Table, Key: r.Key, Source: r.Source, Element: r.Element}
			found = append(found, x.surplusRow(row, "it waits for its key"))
		}
	}
	// A sink that forgets its rejects would seem to lack all of them.
	if x.j.check.keeps {
		found = append(found, x.compareRejects(one, rejects)...)
	}
	return found
}

// waiting returns the claims of an item by their keys, and its other rejects by
// their places.
func (one *examinedItem) waiting() (claims, rejects map[string]*project.Reject) {
	claims, rejects = map[string]*project.Reject{}, map[string]*project.Reject{}
	for i := range one.stored {
		if r := &one.stored[i]; r.Pending() {
			claims[rowName(r.Table, r.Key)] = r
		} else {
			rejects[rejectName(r)] = r
		}
	}
	return claims, rejects
}

func rejectName(r *project.Reject) string { return strconv.Itoa(r.Table) + " " + r.Element }

// compareRow compares a row that must be there, or wait, with the one that is or does.
func (x *examined) compareRow(want, is *project.Row, claim *project.Reject) (rowDifference, bool) {
	d := x.newDifference(want)
	// A row whose key is another's waits as it would be written, so it is
	// compared like one that is there.
	if is == nil && claim != nil {
		values, err := x.j.check.p.Projection.Schema().Tables[want.Table].ParseRow(claim.Row)
		if is = (&project.Row{Table: want.Table, Values: values, Source: want.Source, Element: claim.Element}); err != nil {
			d.Note = "it waits for its key, and cannot be read: " + err.Error()
			return d, true
		}
	}
	if is != nil {
		d.Fields = x.compareColumns(want, is)
		if want.Element != is.Element {
			d.Note = fmt.Sprintf("it is of element %q, of its source %q", is.Element, want.Element)
		}
	}
	holder := x.holder[rowName(want.Table, want.Key)]
	switch {
	case d.Fields != nil || d.Note != "":
		return d, true
	//	row there   waits   key held by another   verdict
	//	yes         -       -                     equal
	//	no          yes     yes                   equal: its turn comes
	//	no          yes     no                    it should have been let in
	//	no          no      yes                   right only where the sink tells no claims
	//	no          no      no                    missing
	case is != nil && claim == nil, holder != "" && (claim != nil || !x.j.check.claims):
		return d, false
	case claim != nil:
		d.Note = "it waits for its key, which nobody holds"
	case holder != "":
		d.Note = "its key is held by " + holder + ", and it does not wait for it"
	}
	d.Missing = true
	return d, true
}

// compareColumns returns the columns in which two rows differ.
func (x *examined) compareColumns(want, is *project.Row) []FieldDifference {
	var fields []FieldDifference
	for i, column := range x.j.check.p.Projection.Schema().Tables[want.Table].Columns {
		var has project.Value
		if i < len(is.Values) {
			has = is.Values[i]
		}
		if !want.Values[i].Equal(has) {
			fields = append(fields, FieldDifference{column.Name, valueJSON(has), valueJSON(want.Values[i])})
		}
	}
	return fields
}

// valueJSON returns a value of a column as JSON, nil for Null.
func valueJSON(v project.Value) []byte {
	if v.IsNull() {
		return nil
	}
	return v.AppendJSON(nil)
}

// KeyJSON writes the key of a row as an array.
func KeyJSON(key []project.Value) []byte {
	out := []byte{'['}
	for i, v := range key {
		if i > 0 {
			out = append(out, ',')
		}
		out = v.AppendJSON(out)
	}
	return append(out, ']')
}

// newDifference begins to tell of a row that differs.
func (x *examined) newDifference(r *project.Row) rowDifference {
	return rowDifference{
		Difference: Difference{
			Kind: DifferenceDrift, Element: -1, Table: x.j.check.p.Projection.Schema().Tables[r.Table].Name, Row: KeyJSON(r.Key), Source: r.Source,
		},
		row: r,
	}
}

// surplusRow tells of a row that should not be there.
func (x *examined) surplusRow(r *project.Row, note string) rowDifference {
	d := x.newDifference(r)
	d.Surplus, d.Note = true, note
	return d
}

// compareRejects compares the rejects of an item.
func (x *examined) compareRejects(one *examinedItem, stored map[string]*project.Reject) (found []rowDifference) {
	difference := func(r *project.Reject) rowDifference {
		return rowDifference{
			Difference: Difference{
				Kind: DifferenceDrift, Element: -1, Table: x.j.check.p.Projection.Schema().Tables[r.Table].Name, Source: r.Source,
				Note: strings.TrimSpace(r.Column + " " + r.Reason),
			},
			reject: r,
		}
	}
	for i := range one.rejects {
		want := &one.rejects[i]
		is := stored[rejectName(want)]
		delete(stored, rejectName(want))
		// Not the reason: its words may change from one release to the next.
		if is == nil || is.Column != want.Column {
			d := difference(want)
			d.Missing = is == nil
			found = append(found, d)
		}
	}
	for i := range one.stored {
		if r := &one.stored[i]; !r.Pending() && stored[rejectName(r)] == r {
			d := difference(r)
			d.Surplus = true
			found = append(found, d)
		}
	}
	return found
}
