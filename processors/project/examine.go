package project

import (
	"context"
	"fmt"
	"strings"
)

// DifferenceKind is how a row is not as it should be.
type DifferenceKind uint8

// How a row can differ.
const (
	Missing DifferenceKind = iota + 1 // there should be a row, or a reject
	Extra                             // there should be none
	Wrong                             // it says something else
)

// String returns missing, extra or wrong.
func (k DifferenceKind) String() string {
	switch k {
	case Missing:
		return "missing"
	case Extra:
		return "extra"
	case Wrong:
		return "wrong"
	}
	return fmt.Sprintf("difference(%d)", k)
}

// Difference is a row that is not as its item says.
type Difference struct {
	Kind            DifferenceKind
	Table           int
	Key             []Value // nil for a reject that is no claim
	Source, Element string
	// Columns are those that differ, of a wrong row.
	Columns []string
	// Detail tells people what should be and what is.
	Detail string
}

// Examination is what Examine found.
type Examination struct {
	Differences []Difference
	// Rows are the rows that were compared.
	Rows int
	// Waiting are rows that wait for a key which the row of another item holds: they
	// are as they should be, and no reader sees them.
	Waiting int
	// Kept are rows of items that are gone, which OnExpire keep explains.
	Kept int
}

// Examine compares what the sink has of items with what they are, in one pass
// over the tables. Whether a change in flight explains a difference, the caller
// has to know. What is different can be given to Mend by Was.
func (p *Projection) Examine(ctx context.Context, r Reader, items []Item) (*Examination, error) {
	e := &examiner{p: p, bySource: map[string]*examined{}, held: map[string]string{}, claims: true}
	if f, ok := p.cfg.Sink.(Forgetful); ok {
		e.rejects, e.claims = f.Keeps()
	} else {
		e.rejects = true
	}
	for i := range items {
		e.expect(&items[i])
	}
	for table := range p.schema.Tables {
		if err := e.read(ctx, r, table); err != nil {
			return nil, err
		}
	}
	for i := range items {
		e.item(e.bySource[SourceOf(p.container, items[i].Key, items[i].ID)], items[i].Body == nil)
	}
	return &e.result, nil
}

// Was returns what Mend needs to remove what the sink should not have of an item.
func (e *Examination) Was(item Item, container string) Was {
	was := Was{ItemRef: item.ItemRef}
	source := SourceOf(container, item.Key, item.ID)
	for i := range e.Differences {
		d := &e.Differences[i]
		switch {
		case d.Source != source || d.Kind == Missing:
		case d.Key != nil:
			was.Rows = append(was.Rows, Row{Table: d.Table, Key: d.Key, Source: source, Element: d.Element})
		default:
			was.Rejects = append(was.Rejects, Reject{Table: d.Table, Source: source, Element: d.Element})
		}
	}
	return was
}

// examiner is one run of Examine.
type examiner struct {
	p               *Projection
	rejects, claims bool // the sink keeps them
	bySource        map[string]*examined
	held            map[string]string // by table and key: whose row it is, "" for nobody's yet
	result          Examination
}

// examined is one item: what is expected of it and what is there.
type examined struct {
	rows, actual    []Row
	rejects, stored []Reject
}

func tableKey(table int, key []Value) string {
	return string(AppendKey(fmt.Appendf(nil, "%d,", table), key))
}

func (e *examiner) expect(item *Item) {
	x := &examined{}
	x.rows, x.rejects = e.p.RowsOf(item.Key, item.ID, item.Body)
	e.bySource[SourceOf(e.p.container, item.Key, item.ID)] = x
	for i := range x.rows {
		e.held[tableKey(x.rows[i].Table, x.rows[i].Key)] = ""
	}
}

// read collects what the sink has of the items, and who holds their keys.
func (e *examiner) read(ctx context.Context, r Reader, table int) error {
	for row, err := range r.Rows(ctx, &e.p.schema, table) {
		if err != nil {
			return err
		}
		if x := e.bySource[row.Source]; x != nil {
			x.actual = append(x.actual, row)
		}
		if key := tableKey(table, row.Key); len(e.held) > 0 {
			if _, asked := e.held[key]; asked {
				e.held[key] = row.Source
			}
		}
	}
	for reject, err := range r.Rejects(ctx, &e.p.schema, table) {
		if err != nil {
			return err
		}
		if x := e.bySource[reject.Source]; x != nil {
			x.stored = append(x.stored, reject)
		}
	}
	return nil
}

func (e *examiner) item(x *examined, gone bool) {
	actual := map[string]*Row{}
	for i := range x.actual {
		actual[tableKey(x.actual[i].Table, x.actual[i].Key)] = &x.actual[i]
	}
	claims, rejects := map[string]*Reject{}, map[string]*Reject{}
	for i := range x.stored {
		if s := &x.stored[i]; s.Claim() {
			claims[tableKey(s.Table, s.Key)] = s
		} else {
			rejects[fmt.Sprint(s.Table, ",", s.Element)] = s
		}
	}
	e.result.Rows += len(x.rows)
	for i := range x.rows {
		want := &x.rows[i]
		key := tableKey(want.Table, want.Key)
		if is := actual[key]; is != nil {
			e.compare(want, is)
		} else {
			e.absent(want, claims[key], e.held[key])
		}
		delete(actual, key)
		delete(claims, key)
	}
	for i := range x.actual {
		if is := &x.actual[i]; actual[tableKey(is.Table, is.Key)] != nil {
			e.extra(is.Table, is.Key, is.Source, is.Element, gone, "its item has no such row")
		}
	}
	for i := range x.stored {
		if s := &x.stored[i]; s.Claim() && claims[tableKey(s.Table, s.Key)] != nil {
			e.extra(s.Table, s.Key, s.Source, s.Element, gone, "it waits for its key, and its item has no such row")
		}
	}
	e.compareRejects(x, rejects, gone)
}

func (e *examiner) differ(d Difference) { e.result.Differences = append(e.result.Differences, d) }

func (e *examiner) extra(table int, key []Value, source, element string, gone bool, detail string) {
	if gone && e.p.cfg.OnExpire != Delete {
		e.result.Kept++
		return
	}
	e.differ(Difference{Kind: Extra, Table: table, Key: key, Source: source, Element: element, Detail: detail})
}

// compare compares two rows of one item and key.
func (e *examiner) compare(want, is *Row) {
	if EqualRows(want, is) {
		return
	}
	d := Difference{Kind: Wrong, Table: want.Table, Key: want.Key, Source: want.Source, Element: want.Element}
	var details []string
	for i, column := range e.p.schema.Tables[want.Table].Columns {
		if i >= len(is.Values) || !want.Values[i].Equal(is.Values[i]) {
			d.Columns = append(d.Columns, column.Name)
			has := Value{}
			if i < len(is.Values) {
				has = is.Values[i]
			}
			details = append(details, fmt.Sprintf("%s should be %s and is %s", column.Name, shown(want.Values[i]), shown(has)))
		}
	}
	if want.Element != is.Element {
		details = append(details, fmt.Sprintf("it should be of element %s and is of %s", want.Element, is.Element))
	}
	d.Detail = strings.Join(details, "; ")
	e.differ(d)
}

func shown(v Value) string { return excerpt(string(v.AppendJSON(nil))) }

// absent looks for the reason why a row is not there: it may wait for its key.
func (e *examiner) absent(want *Row, claim *Reject, holder string) {
	d := Difference{Kind: Missing, Table: want.Table, Key: want.Key, Source: want.Source, Element: want.Element}
	switch {
	case claim != nil && holder == "":
		d.Detail = "it waits for its key, which nobody holds"
	case claim != nil:
		values, err := e.p.schema.Tables[want.Table].ParseRow(claim.Row)
		is := &Row{Table: want.Table, Values: values, Source: want.Source, Element: claim.Element}
		if err == nil && EqualRows(want, is) {
			e.result.Waiting++
			return
		}
		d.Kind, d.Detail = Wrong, "it waits for its key with other values"
	case holder != "" && !e.claims:
		e.result.Waiting++
		return
	case holder != "":
		d.Detail = "its key is held by " + holder + ", and it does not wait for it"
	default:
		d.Detail = "there is no such row"
	}
	e.differ(d)
}

func (e *examiner) compareRejects(x *examined, stored map[string]*Reject, gone bool) {
	if !e.rejects {
		return
	}
	for i := range x.rejects {
		want := &x.rejects[i]
		at := fmt.Sprint(want.Table, ",", want.Element)
		if is := stored[at]; is == nil || is.Column != want.Column {
			e.differ(Difference{
				Kind: Missing, Table: want.Table, Source: want.Source, Element: want.Element,
				Detail: "it is not among the rejects: " + want.Column + " " + want.Reason,
			})
		}
		delete(stored, at)
	}
	for i := range x.stored {
		if s := &x.stored[i]; !s.Claim() && stored[fmt.Sprint(s.Table, ",", s.Element)] != nil {
			e.extra(s.Table, nil, s.Source, s.Element, gone, "it is among the rejects: "+s.Column+" "+s.Reason)
		}
	}
}
