package accumulator

import "strings"

// fieldName returns the name of a part of a field of set, for errors.
func fieldName(f *Field, part string) string {
	name := "aggregate.set." + f.Path
	if part != "" {
		name += "." + part
	}
	return name
}

func (c *compiler) fields(fields []Field) {
	if len(fields) == 0 || len(fields) > FieldsMax {
		c.bad("aggregate.set", "has %d fields; 1 to %d are expected", len(fields), FieldsMax)
	}
	for i := range fields {
		c.r.fields = append(c.r.fields, c.field(&fields[i]))
	}
}

func (c *compiler) field(s *Field) field {
	// All problems of a field are collected, so nothing returns early. A path or expression
	// that cannot be read stays nil; the rule is not used then.
	f := field{Field: *s, shown: 1}
	f.path = c.names(fieldName(s, ""), s.Path)
	f.levels = c.each(fieldName(s, "each"), s.Each)
	f.depth = len(c.r.levels) + len(f.levels)
	f.where = c.expr(fieldName(s, "where"), s.Where, f.depth)
	of := fieldName(s, string(s.Func))
	switch s.Func {
	case Count:
		c.superfluous(s, s.Expr != "", "an expression; use where to count some")
	case Sum, Avg, Min, Max:
		if f.expr = c.expr(of, s.Expr, f.depth); strings.TrimSpace(s.Expr) == "" {
			c.bad(of, "is empty; an expression is expected, such as price * quantity")
		}
		if s.Func == Max {
			f.mask = flipped // complemented keys: the greatest is the first record
		}
	case Latest:
		c.superfluous(s, s.Expr != "", "an expression; use by and fields")
		c.latest(s, &f)
	default:
		c.bad(fieldName(s, ""), "has the function %q; count, sum, avg, min, max or latest is expected", s.Func)
	}
	if s.Func != Latest {
		c.superfluous(s, s.N != 0 || s.By != "" || len(s.Fields) > 0, "by or fields, which go with latest")
	}
	return f
}

func (c *compiler) superfluous(s *Field, has bool, what string) {
	if has {
		c.bad(fieldName(s, string(s.Func)), "has %s", what)
	}
}

func (c *compiler) latest(s *Field, f *field) {
	f.mask, f.shown = flipped, int64(s.N)
	if s.N < 1 || s.N > LatestMax {
		c.bad(fieldName(s, string(Latest)), "is %d; 1 to %d are expected", s.N, LatestMax)
	}
	if f.expr = c.expr(fieldName(s, "by"), s.By, f.depth); strings.TrimSpace(s.By) == "" {
		c.bad(fieldName(s, "by"), "is empty; what tells the newest is expected, such as orderDate")
	}
	at := fieldName(s, "fields")
	if len(s.Fields) == 0 || len(s.Fields) > CopiesMax {
		c.bad(at, "has %d fields; 1 to %d are expected", len(s.Fields), CopiesMax)
	}
	for _, text := range s.Fields {
		c.copied(at, text, f)
	}
}

// copied adds one of the fields that latest copies.
func (c *compiler) copied(at, text string, f *field) {
	r, named, err := parseRef(text, f.depth)
	if err != nil {
		c.badPath(at, err)
		return
	}
	// The copy gets the name of the path: parent.id is copied as id. A root alone gives its
	// own name, as index does; the whole item would make each member as large as an item.
	name := r.path
	if named && len(r.path) == 0 {
		if f.depth == 0 || r.root == rootItem || r.root == rootParent && f.depth == 1 {
			c.bad(at, "has %q, the whole item; fields of it are expected", text)
			return
		}
		name = c.names(at, text)
	}
	if !isNames(name) {
		c.bad(at, "has %q; names joined by dots are expected, such as address.city", text)
		return
	}
	if !f.copies.add(name, r) {
		c.bad(at, "has %q twice, or together with one that holds it", text)
	}
}
