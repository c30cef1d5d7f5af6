package accumulator_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/accumulator"
	"github.com/millrace/millrace/store/query"
)

// The recomputation in this file decodes items, adds with fractions, and sorts. It
// shares no code with the package but the comparison of values.

type ref struct{ key, id string }

type order struct {
	Type     string          `json:"type"`
	ID       json.RawMessage `json:"id"`
	Customer json.RawMessage `json:"customer"`
	At       json.RawMessage `json:"at"`
	Paid     json.RawMessage `json:"paid"`
	To       struct {
		City json.RawMessage `json:"city"`
	} `json:"to"`
	Lines []line `json:"lines"`
}

type line struct {
	SKU      json.RawMessage `json:"sku"`
	Price    json.RawMessage `json:"price"`
	Quantity json.RawMessage `json:"quantity"`
	Options  json.RawMessage `json:"options"`
}

// bag is what members of a group say about one field.
type bag struct {
	count  int64
	sum    *big.Rat
	values []json.RawMessage
	latest []newest
}

type newest struct {
	by      json.RawMessage
	key, id string
	copied  string
}

type naive map[accumulator.Group]map[string]*bag

func (n naive) at(g accumulator.Group, field string) *bag {
	if n[g] == nil {
		n[g] = map[string]*bag{}
	}
	if n[g][field] == nil {
		n[g][field] = &bag{sum: new(big.Rat)}
	}
	return n[g][field]
}

func rat(raw json.RawMessage) *big.Rat {
	if document.KindOf(raw) != document.Number {
		return nil
	}
	r, _ := new(big.Rat).SetString(string(raw))
	return r
}

func isScalar(raw json.RawMessage) bool {
	k := document.KindOf(raw)
	return k != document.Absent && k < document.Array
}

func (b *bag) add(r *big.Rat) {
	if r != nil {
		b.count++
		b.sum.Add(b.sum, r)
	}
}

func (b *bag) value(raw json.RawMessage) {
	if isScalar(raw) {
		b.values = append(b.values, raw)
	}
}

// object is a JSON object of the members that are there.
func object(members ...string) string {
	var b strings.Builder
	for i := 0; i < len(members); i += 2 {
		if members[i+1] == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + members[i] + `":` + members[i+1])
	}
	return "{" + b.String() + "}"
}

func naiveTotals(tb testing.TB, items map[ref]string) naive {
	tb.Helper()
	n := naive{}
	for at, body := range items {
		var o order
		must(tb, json.Unmarshal([]byte(body), &o))
		g, ok := accumulator.GroupOf(o.Customer)
		if o.Type != "order" || !ok {
			continue
		}
		n.at(g, "orders").count++
		n.at(g, "avgPaid").add(rat(o.Paid))
		if p := rat(o.Paid); p != nil && p.Sign() > 0 {
			n.at(g, "paid").count++
		}
		n.at(g, "first").value(o.At)
		n.at(g, "last").value(o.At)
		if isScalar(o.At) {
			to := ""
			if o.To.City != nil {
				to = object("city", string(o.To.City))
			}
			copied := object("id", string(o.ID), "at", string(o.At), "to", to)
			n.at(g, "recent").latest = append(n.at(g, "recent").latest, newest{o.At, at.key, at.id, copied})
		}
		for i, l := range o.Lines {
			n.at(g, "lines").count++
			if i <= 1 {
				n.at(g, "best").value(l.Price)
			}
			if p, q := rat(l.Price), rat(l.Quantity); p != nil && q != nil {
				n.at(g, "spent").add(p.Mul(p, q))
			}
		}
	}
	return n
}

func naiveSales(tb testing.TB, items map[ref]string) naive {
	tb.Helper()
	n := naive{}
	for at, body := range items {
		var o order
		must(tb, json.Unmarshal([]byte(body), &o))
		for i, l := range o.Lines {
			g, ok := accumulator.GroupOf(l.SKU, o.To.City)
			if o.Type != "order" || !ok {
				continue
			}
			n.at(g, "count").count++
			n.at(g, "cheapest").value(l.Price)
			if p := rat(l.Price); p != nil && p.Cmp(big.NewRat(1, 1)) >= 0 {
				n.at(g, "sum").add(rat(l.Quantity))
			}
			if isScalar(o.At) {
				copied := object("quantity", string(l.Quantity), "customer", string(o.Customer), "index", strconv.Itoa(i))
				n.at(g, "latest").latest = append(n.at(g, "latest").latest, newest{o.At, at.key, at.id, copied})
			}
			document.Elements(l.Options, func(_ int, option []byte) bool {
				if text, ok := document.Text(option); ok {
					n.at(g, "options").value(document.AppendQuote(nil, text+strconv.Itoa(i)))
				}
				return true
			})
		}
	}
	return n
}

// best returns the least value; of equal ones, the one in the shortest form, then
// the first text.
func best(values []json.RawMessage, sign int) string {
	if len(values) == 0 {
		return ""
	}
	return string(slices.MinFunc(values, func(a, b json.RawMessage) int {
		if n := query.Compare(valueOf(a), valueOf(b)); n != 0 {
			return n * sign
		}
		plain := func(raw json.RawMessage) int {
			if document.KindOf(raw) == document.Number && (bytes.ContainsAny(raw, "eE") || string(raw) == "-0" ||
				bytes.ContainsRune(raw, '.') && raw[len(raw)-1] == '0' || len(raw) > 34) {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(plain(a), plain(b)), bytes.Compare(a, b))
	}))
}

// check compares the value of a field; what is equal but written otherwise is
// told apart for numbers alone.
func (b *bag) check(t *testing.T, g accumulator.Group, f *accumulator.Field, got []byte) {
	t.Helper()
	fail := func(want string) {
		t.Helper()
		t.Errorf("group %s: %s is %s, want %s", g, f.Path, got, want)
	}
	switch f.Func {
	case accumulator.Count:
		if want := strconv.FormatInt(b.count, 10); string(got) != want {
			fail(want)
		}
	case accumulator.Sum:
		if r := rat(got); r == nil || r.Cmp(b.sum) != 0 {
			fail(b.sum.RatString())
		}
	case accumulator.Avg:
		switch {
		case b.count == 0 && got != nil:
			fail("absent")
		case b.count > 0:
			if want := roundedAvg(b.sum, b.count); got == nil || rat(got).Cmp(want) != 0 {
				fail(want.RatString())
			}
		}
	case accumulator.Min, accumulator.Max:
		sign := 1
		if f.Func == accumulator.Max {
			sign = -1
		}
		want := best(b.values, sign)
		if document.KindOf([]byte(want)) == document.Number && string(got) != want || !document.Equal(got, []byte(want)) {
			fail(want)
		}
	case accumulator.Latest:
		b.checkLatest(t, g, f, got)
	}
}

// checkLatest compares a list in which members that tie altogether may stand in any
// order.
func (b *bag) checkLatest(t *testing.T, g accumulator.Group, f *accumulator.Field, got []byte) {
	t.Helper()
	order := func(x, y newest) int {
		return cmp.Or(-query.Compare(valueOf(x.by), valueOf(y.by)), cmp.Compare(x.key, y.key), cmp.Compare(x.id, y.id))
	}
	slices.SortFunc(b.latest, order)
	if document.KindOf(got) != document.Array {
		t.Fatalf("group %s: %s is %s, want an array", g, f.Path, got)
	}
	var list []string
	document.Elements(got, func(_ int, raw []byte) bool {
		list = append(list, string(raw))
		return true
	})
	if want := min(f.N, len(b.latest)); len(list) != want {
		t.Errorf("group %s: %s is %s, want %d", g, f.Path, got, want)
		return
	}
	for i := 0; i < len(list); {
		end := i
		var tied []string
		for end < len(b.latest) && order(b.latest[i], b.latest[end]) == 0 {
			tied = append(tied, b.latest[end].copied)
			end++
		}
		for ; i < min(end, len(list)); i++ {
			at := slices.Index(tied, list[i])
			if at < 0 {
				t.Errorf("group %s: %s[%d] is %s, want one of %s", g, f.Path, i, list[i], tied)
				return
			}
			tied = slices.Delete(tied, at, at+1)
		}
	}
}

// roundedAvg rounds half to even to 17 significant digits.
func roundedAvg(sum *big.Rat, count int64) *big.Rat {
	q := new(big.Rat).Quo(sum, new(big.Rat).SetInt64(count))
	if q.Sign() == 0 {
		return q
	}
	// Scale to an integer part of 17 digits: by a guess, then by steps.
	abs := new(big.Rat).Abs(q)
	guess := 16 - int64(float64(abs.Num().BitLen()-abs.Denom().BitLen())*math.Log10(2))
	scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(max(guess, -guess)), nil))
	if guess < 0 {
		scale.Inv(scale)
	}
	ten, low, high := big.NewRat(10, 1), new(big.Rat).SetInt64(1e16), new(big.Rat).SetInt64(1e17)
	for m := new(big.Rat).Mul(abs, scale); m.Cmp(low) < 0; m.Mul(abs, scale) {
		scale.Mul(scale, ten)
	}
	for m := new(big.Rat).Mul(abs, scale); m.Cmp(high) >= 0; m.Mul(abs, scale) {
		scale.Quo(scale, ten)
	}
	m := new(big.Rat).Mul(abs, scale)
	whole := new(big.Int).Quo(m.Num(), m.Denom())
	rest := m.Sub(m, new(big.Rat).SetInt(whole))
	if c := rest.Cmp(big.NewRat(1, 2)); c > 0 || c == 0 && whole.Bit(0) == 1 {
		whole.Add(whole, big.NewInt(1))
	}
	out := new(big.Rat).SetInt(whole)
	out.Quo(out, scale)
	if q.Sign() < 0 {
		out.Neg(out)
	}
	return out
}
