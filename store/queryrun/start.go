package queryrun

import (
	"bytes"
	"math"

	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/query"
	"github.com/millrace/millrace/store/queryplan"
)

// start is where a page goes on: at an item, behind some of its rows or all.
type start struct {
	itemKey []byte // of the item; nil begins
	entry   []byte // of the index that Range and Order read, as far as it is known
	missing bool   // the item has no value in the index of Order
}

// pageStart returns where the page goes on. Where all items are read anyway there is
// nothing to know; the run leaves out what earlier pages had.
func (e *execution) pageStart() (*start, error) {
	// GROUP BY and DISTINCT may find a row's group or double anywhere, and a sort without
	// an index its next row: their pages all read everything from the beginning.
	at := &start{}
	if e.r.After == nil || e.q.Kind() == query.Grouped || e.q.Distinct() {
		return at, nil
	}
	values, rank, number, err := e.q.Place(e.r.After)
	if err != nil {
		return nil, err
	}
	if e.q.Kind() == query.Sorted {
		if e.access.Kind == queryplan.Order {
			e.startInOrder(at, values[0], rank)
		}
		return at, nil
	}
	if e.access.Kind == queryplan.Range {
		at.entry = rank
		return at, nil
	}
	// number is that of the row among those of its item (JOIN gives several). The largest
	// says that no row of the item is left, so the next key follows at once.
	if at.itemKey = rank; number == math.MaxUint32 {
		at.itemKey = append(at.itemKey, 0)
	}
	return at, nil
}

// startInOrder finds the place in an index from the value of ORDER BY and the rank.
func (e *execution) startInOrder(at *start, value, rank []byte) {
	itemKey := itemKeyOf(rank, e.access.Desc)
	if value == nil {
		at.itemKey, at.missing = itemKey, true
		return
	}
	if at.entry = engine.AppendIndexValue(nil, value); len(at.entry) == 0 {
		at.entry = queryplan.PlainMax() // behind it are arrays and objects
		return
	}
	// Values that were cut share entries, in which nobody can tell the place of one.
	if engine.IsCut(at.entry) {
		e.sortInstead()
		at.entry = nil
		return
	}
	at.entry = append(at.entry, itemKey...)
}

// rankOf returns the rank of an item in the order of a query that sorts: its key, or
// if the order descends, what sorts the other way.
func rankOf(dst, itemKey []byte, desc bool) []byte {
	if !desc {
		return append(dst, itemKey...)
	}
	// Ranks are compared as bytes, ascending. Turning every bit alone would not do, for a
	// key sorts before all that it begins. So a zero is written 0 FF and the end 0 1, and
	// then the bits are turned:
	//
	//	key        escaped         rank
	//	61         61 00 01        9E FF FE
	//	61 00      61 00 FF 00 01  9E FF 00 FF FE    before 61, as it must be descending
	for {
		i := bytes.IndexByte(itemKey, 0)
		if i < 0 {
			break
		}
		dst = append(append(dst, itemKey[:i]...), 0, 0xFF)
		itemKey = itemKey[i+1:]
	}
	dst = append(append(dst, itemKey...), 0, 1)
	for i := range dst {
		dst[i] = ^dst[i]
	}
	return dst
}

// itemKeyOf returns the item key of which rankOf made a rank.
func itemKeyOf(rank []byte, desc bool) []byte {
	if !desc {
		return rank
	}
	var key []byte
	for i := 0; i < len(rank)-2; i++ {
		key = append(key, ^rank[i])
		if ^rank[i] == 0 {
			i++ // the byte that says that it is no end
		}
	}
	return key
}
