package project

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// A reject is an item of the container for rejects:
//
//	{"id": …, "pipeline": "analytics", "table": "orders", "_source": "customer/[\"c1\"]/o7", "_element": "3",
//	 "column": "price", "reason": "is …", "row": {…}}

// rejectKeys are the members of a reject that can be its partition key: those by
// which it is found again.
var rejectKeys = []string{"/id", "/pipeline", "/table"}

// addReject gives a reject to its partition; gone means that it goes.
func (w *containerWriter) addReject(r *Reject, gone bool) error {
	t := &w.schema.Tables[r.Table]
	id := rejectID(w.schema.Pipeline, t.Name, r)
	item := append([]byte(`{"id":`), document.AppendQuote(nil, id)...)
	item = document.AppendQuote(append(item, `,"pipeline":`...), w.schema.Pipeline)
	item = document.AppendQuote(append(item, `,"table":`...), t.Name)
	key, err := w.rejects.KeyOf(append(slices.Clip(item), '}'))
	if err != nil {
		return processors.Reject(fmt.Errorf("reject of %s: %w", r.Source, err))
	}
	row := store.Row{Ref: store.ItemRef{Key: key, ID: id}, Source: r.Source}
	if !gone {
		row.Body = appendReject(item, r)
	}
	part, err := w.partFor(w.rejects, key)
	if err != nil {
		return err
	}
	part.rows = append(part.rows, outgoingRow{Row: row})
	return nil
}

// rejectID names a reject; what is too long for an id is cut, with a checksum.
func rejectID(pipeline, table string, r *Reject) string {
	var id []byte
	for i, part := range []string{pipeline, table, r.Source, r.Element} {
		if i > 0 {
			id = append(id, '|')
		}
		id = appendID(id, part)
	}
	if len(id) <= document.IDMax {
		return string(id)
	}
	cut := strings.ToValidUTF8(string(id[:document.IDMax/2]), "")
	return cut + "|" + strconv.FormatUint(xxhash.Sum64(id), 16)
}

// appendReject ends the item of a reject.
func appendReject(item []byte, r *Reject) []byte {
	for _, m := range []struct{ name, text string }{
		{SourceColumn, r.Source}, {ElementColumn, r.Element}, {"column", r.Column}, {"reason", r.Reason},
	} {
		if m.text != "" {
			item = append(document.AppendQuote(append(item, ','), m.name), ':')
			item = document.AppendQuote(item, m.text)
		}
	}
	if r.Row != nil {
		item = append(append(item, `,"row":`...), r.Row...)
	}
	return append(item, '}')
}

// rejectOf returns the reject that an item is; ok is false if it is none of the
// table.
func rejectOf(pipeline string, table int, name string, item *store.Item) (r Reject, ok bool) {
	if p, _ := textAt(item.Body, "pipeline"); p != pipeline {
		return r, false
	}
	if t, _ := textAt(item.Body, "table"); t != name {
		return r, false
	}
	r.Table = table
	r.Source, ok = textAt(item.Body, SourceColumn)
	r.Element, _ = textAt(item.Body, ElementColumn)
	r.Column, _ = textAt(item.Body, "column")
	r.Reason, _ = textAt(item.Body, "reason")
	if raw, has := document.Get(item.Body, document.Path{{Name: "row"}}); has {
		r.Row = append([]byte{}, raw...)
	}
	return r, ok
}
