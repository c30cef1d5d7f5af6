package project_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/processors/project"
)

// said writes rows and rejects as text, one a line.
func said(p *project.Projection, rows []project.Row, rejects []project.Reject) []string {
	var out []string
	for _, r := range rows {
		t := &p.Schema().Tables[r.Table]
		out = append(out, fmt.Sprintf("%s %s #%s %s", t.Name, t.AppendRow(nil, r.Values), r.Element, r.Source))
	}
	for _, r := range rejects {
		out = append(out, fmt.Sprintf("%s reject #%s %s: %s", p.Schema().Tables[r.Table].Name, r.Element, r.Column, r.Reason))
	}
	return out
}

func TestRowsOf(t *testing.T) {
	p := compile(t, analytics(t))
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"a customer": {
			`{"id":"c1","customerId":"c1","type":"customer","firstName":"Ann","lastName":"Lee","addresses":[{"city":"Ulm"}]}`,
			[]string{`customers {"id":"c1","name":"Ann Lee","city":"Ulm"} # customer/["c1"]/x`},
		},
		"what is missing or null is Null": {
			`{"id":"c1","customerId":null,"type":"customer","firstName":null}`,
			[]string{`customers {"id":"c1"} # customer/["c1"]/x`},
		},
		"an order and its lines": {
			`{"id":"o1","customerId":"c1","type":"salesOrder","orderDate":"2014-08-16T00:00:00","details":[{"sku":"A","price":1.5,"quantity":2},{"sku":7,"price":12}]}`,
			[]string{
				`orders {"id":"o1","customerId":"c1","orderDate":"2014-08-16T00:00:00Z"} # customer/["c1"]/x`,
				`orderItems {"orderId":"o1","line":0,"sku":"A","price":1.50,"quantity":2} #0 customer/["c1"]/x`,
				`orderItems {"orderId":"o1","line":1,"sku":"7","price":12.00} #1 customer/["c1"]/x`,
			},
		},
		"a conflict rejects its row alone": {
			`{"id":"o1","type":"salesOrder","orderDate":"soon","details":[{"price":12345678901},{"price":"1"},{"price":1e3,"quantity":1.0}]}`,
			[]string{
				`orderItems {"orderId":"o1","line":2,"price":1000.00,"quantity":1} #2 customer/["c1"]/x`,
				`orders reject # orderDate: is "soon", and the column takes times such as 2024-01-31T08:30:00Z`,
				`orderItems reject #0 price: is 12345678901, and decimal(12,2) has 10 digits before the point`,
				`orderItems reject #1 price: is a string, "1", and the column takes numbers (decimal(12,2))`,
			},
		},
		"a key must not be Null": {
			`{"type":"customer"}`,
			[]string{`customers reject # id: is missing or null, and is part of the key`},
		},
		"no array, no rows":        {`{"id":"o1","type":"salesOrder"}`, []string{`orders {"id":"o1"} # customer/["c1"]/x`}},
		"a null array has no rows": {`{"id":"o1","type":"salesOrder","details":null}`, []string{`orders {"id":"o1"} # customer/["c1"]/x`}},
		"what is no array is a reject": {
			`{"id":"o1","type":"salesOrder","details":{"sku":"A"}}`,
			[]string{`orders {"id":"o1"} # customer/["c1"]/x`, `orderItems reject # : details is an object, {"sku":"A"}, where an array is expected`},
		},
		"not selected": {`{"id":"z","type":"other"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			rows, rejects := p.RowsOf(key(t, "c1"), "x", []byte(c.body))
			if diff := cmp.Diff(c.want, said(p, rows, rejects)); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
		})
	}
	if rows, rejects := p.RowsOf(key(t, "c1"), "x", nil); rows != nil || rejects != nil {
		t.Errorf("no item has rows %v, rejects %v", rows, rejects)
	}
}

func TestRowsOfNestedArrays(t *testing.T) {
	cfg := analytics(t)
	cfg.Tables = []project.Table{{
		Name: "options", Each: "details[*].options", Where: `type = "salesOrder" AND element.on AND parent.sku != "skip" AND index < 3`,
		Key: []string{"order", "name"},
		Columns: []project.Column{
			{Name: "order", Expr: "c.id"},
			{Name: "sku", Expr: "parent.sku"},
			{Name: "line", Expr: "parentIndex"},
			{Name: "n", Expr: "index"},
			{Name: "name", Expr: "name"},
			{Name: "all", Expr: "element"},
			{Name: "bare", Expr: "id"},
		},
	}}
	p := compile(t, cfg)
	rows, rejects := p.RowsOf(key(t, "c1"), "x", []byte(`{"id":"o1","type":"salesOrder","details":[
		{"sku":"A","options":[{"name":"a","on":true,"id":1},{"name":"b"},{"name":"c","on":true}]},
		{"sku":"skip","options":[{"name":"d","on":true}]},
		{"sku":"B","options":[{"name":"a","on":true}]},
		{"sku":"C","options":"none"},
		{"sku":"D","options":[0,1,2,{"name":"late","on":true}]}]}`))
	want := []string{
		`options {"order":"o1","sku":"A","line":"0","n":"0","name":"a","all":"{\"name\":\"a\",\"on\":true,\"id\":1}","bare":"1"} #0.0 customer/["c1"]/x`,
		`options {"order":"o1","sku":"A","line":"0","n":"2","name":"c","all":"{\"name\":\"c\",\"on\":true}"} #0.2 customer/["c1"]/x`,
		`options reject #2.0 : element 0.0 of the same item has the same key`,
		`options reject #3 : options is a string, "none", where an array is expected`,
	}
	if diff := cmp.Diff(want, said(p, rows, rejects)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if got := string(rejects[0].Row); got != `{"order":"o1","sku":"B","line":2,"n":0,"name":"a","all":{"name":"a","on":true}}` {
		t.Errorf("the reject shows %s", got)
	}
}

// The array may be large; its rows are found by key in a map then, and it has an
// end.
func TestRowsOfManyElements(t *testing.T) {
	cfg := analytics(t)
	cfg.Tables = []project.Table{{
		Name: "numbers", Each: "numbers", Key: []string{"n"}, Columns: []project.Column{{Name: "n", Expr: "element"}, {Name: "at", Expr: "index"}},
	}}
	p := compile(t, cfg)
	list := func(n int) []byte {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ",%d", i%(n*9/10))
		}
		return []byte(`{"id":"x","numbers":[` + b.String()[1:] + `]}`)
	}
	rows, rejects := p.RowsOf(key(t, "c1"), "x", list(1000))
	if len(rows) != 900 || len(rejects) != 100 || rejects[0].Reason != "element 0 of the same item has the same key" {
		t.Errorf("%d rows, %d rejects, want 900 and 100; the first is %+v", len(rows), len(rejects), rejects[0])
	}
	rows, rejects = p.RowsOf(key(t, "c1"), "x", list(project.ItemRowsMax+1))
	if len(rows) != 0 || len(rejects) != 1 || !strings.Contains(rejects[0].Reason, "more than 100000") {
		t.Errorf("too many elements: %d rows, rejects %v", len(rows), rejects)
	}
}

// A text that all rows of an item have counts in each of them, as a sink writes it.
func TestRowsOfAnItemAreBoundedInBytes(t *testing.T) {
	cfg := analytics(t)
	cfg.Tables = []project.Table{{
		Name: "lines", Each: "lines", Key: []string{"line"}, Columns: []project.Column{{Name: "line", Expr: "index"}, {Name: "note", Expr: "item.note"}},
	}}
	p := compile(t, cfg)
	item := func(lines int) []byte {
		return []byte(`{"id":"x","note":"` + strings.Repeat("n", 1<<20) + `","lines":[0` + strings.Repeat(",0", lines-1) + `]}`)
	}
	rows, rejects := p.RowsOf(key(t, "c1"), "x", item(60))
	if len(rows) != 60 || len(rejects) != 0 {
		t.Errorf("60 MiB: %d rows, rejects %v", len(rows), rejects)
	}
	rows, rejects = p.RowsOf(key(t, "c1"), "x", item(100_000))
	if len(rows) != 0 || len(rejects) != 1 || !strings.Contains(rejects[0].Reason, "take more than 64 MiB") {
		t.Errorf("100 GiB: %d rows, rejects %v", len(rows), rejects)
	}
}

func TestSourceRoundTrip(t *testing.T) {
	for _, k := range []any{"c1", `a/b]/"c`, `\"]/`, 12.5, nil, true} {
		for _, want := range []string{"i d", "a/b", `"]/`, "/", "a?#]/b", "[1]/x"} {
			s := project.SourceOf("customer", key(t, k), want)
			container, got, id, err := project.ParseSource(s)
			if err != nil || container != "customer" || got != key(t, k) || id != want {
				t.Errorf("%s is read as %s, %s, %s, %v", s, container, got, id, err)
			}
		}
	}
	for _, s := range []string{"", "customer", "customer/c1/x", "customer/[1]", `customer/["a/x`, `customer/["]/x`, "customer/[1]x"} {
		if _, _, _, err := project.ParseSource(s); err == nil {
			t.Errorf("%q is read as a source", s)
		}
	}
}

func TestRowRoundTrip(t *testing.T) {
	p := compile(t, analytics(t))
	rows, _ := p.RowsOf(key(t, "c1"), "x", []byte(`{"id":"o1","type":"salesOrder","orderDate":"2014-08-16T10:00:00.25+02:00","details":[{"price":1,"quantity":-3}]}`))
	for i := range rows {
		r := &rows[i]
		table := &p.Schema().Tables[r.Table]
		values, err := table.ParseRow(table.AppendRow(nil, r.Values))
		if err != nil || !slices.Equal(values, r.Values) {
			t.Errorf("%v is read as %v, %v", r.Values, values, err)
		}
	}
	if _, err := p.Schema().Tables[1].ParseRow([]byte(`{"id":"o1","orderDate":"never"}`)); err == nil || !strings.Contains(err.Error(), "orderDate") {
		t.Errorf("a bad row: %v, want an error that names the column", err)
	}
}
