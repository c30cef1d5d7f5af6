package store

// Field is a value at a path. A nil Value stands for an absent field.
type Field struct {
	Path  string // a.b[0].c
	Value []byte // raw JSON
}

// CopyAction is what a pipeline does to a copy.
type CopyAction uint8

// The actions of a Copy.
const (
	CopySet    CopyAction = iota + 1 // fields take the values of Set
	CopyClear                        // fields of Set go; with Each the element goes
	CopyDelete                       // the item goes (never with Each)
)

// Copy says which items hold a copy and what the copy must be.
type Copy struct {
	// Where further restricts the items, an expression of store/query; "" none.
	Where string
	// Each is the path of an array whose elements are the copies; "" if the item
	// itself holds the copy.
	Each string
	// Match are the values that the item's (or element's) fields must equal.
	Match []Field
	Set   []Field
	// Action is what is done where Match and Where hold.
	Action CopyAction
}

// Refusal is an item that could not take its copy.
type Refusal struct {
	Ref    ItemRef
	Status Status
	Reason string
}

func (w *wireWriter) copy(c *Copy) {
	w.str(c.Where)
	w.str(c.Each)
	w.fields(c.Match)
	w.fields(c.Set)
	w.byte(byte(c.Action))
}

func (d *wireReader) copy() Copy {
	return Copy{Where: d.str(), Each: d.str(), Match: d.fields(), Set: d.fields(), Action: CopyAction(d.byte())}
}

func (w *wireWriter) fields(fields []Field) {
	w.uint(uint64(len(fields)))
	for _, f := range fields {
		w.str(f.Path)
		w.bytes(f.Value)
	}
}

func (d *wireReader) fields() []Field {
	n := d.count()
	if n == 0 {
		return nil
	}
	fields := make([]Field, n)
	for i := range fields {
		fields[i] = Field{Path: d.str(), Value: d.bytes()}
	}
	return fields
}

func (w *wireWriter) refusals(all []Refusal) {
	w.uint(uint64(len(all)))
	for _, f := range all {
		w.ref(f.Ref)
		w.uint(uint64(f.Status))
		w.str(f.Reason)
	}
}

func (d *wireReader) refusals() (all []Refusal) {
	for range d.count() {
		all = append(all, Refusal{Ref: d.ref(), Status: Status(d.uint()), Reason: d.str()})
	}
	return all
}
