package pgsink

import "github.com/millrace/millrace/processors/project"

// part is what a batch says of one table.
type part struct {
	table     int
	put, drop []*project.Row // the former ordered by key
	reject    []reject       // conflicts
	accept    []id           // of conflicts, and of what PostgreSQL did not take
}

// split divides a batch by tables.
func (w *writer) split(b *project.Batch) []*part {
	parts := make([]*part, len(w.schema.Tables))
	of := func(table int) *part {
		if parts[table] == nil {
			parts[table] = &part{table: table}
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
		source := sourceText(b.Accept[i].Source)
		p.accept = append(p.accept, conflictID(source, b.Accept[i].Element), refusalID(source, b.Accept[i].Element))
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
