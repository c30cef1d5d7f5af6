package pgsink

import (
	"slices"

	"github.com/millrace/millrace/processors/project"
)

// tablePart is what a batch says of one table.
type tablePart struct {
	table     int
	put, drop []*project.Row // ordered by key
	reject    []reject       // conflicts
	accept    []id           // of conflicts, and of what PostgreSQL did not take
}

// movesKeys says whether a key passes from one source to another: what is dropped has to
// go before what is put can come. Written together, puts come first, see writeTogether,
// and the new row would find its key taken. Both lists are ordered by key, so one walk
// over both finds a common key.
func (p *tablePart) movesKeys() bool {
	drop := p.drop
	for _, r := range p.put {
		for len(drop) > 0 && compareKeys(drop[0], r) < 0 {
			drop = drop[1:]
		}
		if len(drop) > 0 && slices.Equal(drop[0].Key, r.Key) {
			return true
		}
	}
	return false
}

// splitByTable divides a batch by tables.
func (w *writer) splitByTable(b *project.Batch) []*tablePart {
	parts := make([]*tablePart, len(w.schema.Tables))
	of := func(table int) *tablePart {
		if parts[table] == nil {
			parts[table] = &tablePart{table: table}
		}
		return parts[table]
	}
	for i := range b.Put {
		p := of(b.Put[i].Table)
		p.put = append(p.put, &b.Put[i])
	}
	for i := range b.Drop {
		p := of(b.Drop[i].Table)
		p.drop = append(p.drop, &b.Drop[i])
	}
	for i := range b.Reject {
		p := of(b.Reject[i].Table)
		p.reject = append(p.reject, conflictOf(&b.Reject[i]))
	}
	for i := range b.Accept {
		p := of(b.Accept[i].Table)
		// The projection knows conflicts alone. What PostgreSQL refused is over with its row; what
		// an earlier release noted of a place, with that.
		source := sourceText(b.Accept[i].Source)
		p.accept = append(p.accept, conflictID(source, b.Accept[i].Element), formerRefusalID(source, b.Accept[i].Element))
	}
	some := parts[:0]
	for _, p := range parts {
		if p != nil {
			sortByKey(p.put)
			sortByKey(p.drop)
			some = append(some, p)
		}
	}
	return some
}
