package project

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store/query"
)

// The columns that every row has beside the declared ones, where a sink keeps
// them as columns or members.
const (
	SourceColumn  = "_source"  // Row.Source
	ElementColumn = "_element" // Row.Element; only where a table has each
)

// Check returns everything that is wrong with the declaration in cfg. Its source
// is not looked at; its sink only if there is one and it is a Checker.
func Check(cfg *Config) processors.Problems {
	_, problems := declare(cfg)
	return problems
}

// declaration is a checked Config with everything parsed.
type declaration struct {
	sourceWhere *query.Expr // nil: all
	tables      []table
	schema      Schema
}

// table is a parsed Table.
type table struct {
	*TableSchema
	index   int
	where   *query.Expr // nil: all
	perItem bool        // where asks for the item alone
	each    scope
	columns []column
	keyFrom int // where the key's columns follow each other, -1 if they do not
}

// column is a parsed Column.
type column struct {
	expr *query.Expr
	typ  Type
	path *query.Expr // the same over one root alone, if it is nothing but a path; else nil
	root int         // that root
}

type checker struct {
	cfg      *Config
	d        declaration
	problems processors.Problems
}

func declare(cfg *Config) (*declaration, processors.Problems) {
	c := &checker{cfg: cfg}
	c.d.sourceWhere = c.expression("source.where", cfg.SourceWhere, scope(nil).parseColumn)
	switch cfg.OnExpire {
	case "", Keep, Delete:
	default:
		c.problems.Add("project.onExpire", "is %q; keep or delete is expected", cfg.OnExpire)
	}
	if len(cfg.Tables) == 0 || len(cfg.Tables) > TablesMax {
		c.problems.Add("project.tables", "has %d tables; 1 to %d are expected", len(cfg.Tables), TablesMax)
	}
	c.d.schema = Schema{Pipeline: cfg.Pipeline, Generation: cfg.Generation, Shadow: cfg.Shadow}
	c.d.schema.Tables = make([]TableSchema, len(cfg.Tables))
	c.d.tables = make([]table, len(cfg.Tables))
	for i := range cfg.Tables {
		c.table(i)
	}
	// A schema with mistakes of its own would only be told to be wrong twice.
	if checker, ok := cfg.Sink.(Checker); ok && len(c.problems) == 0 {
		c.problems = append(c.problems, checker.Check(&c.d.schema)...)
	}
	return &c.d, c.problems
}

// expression reads an expression by parse; nil for none, and for a bad one.
func (c *checker) expression(field, text string, parse func(string) (*query.Expr, error)) *query.Expr {
	e := c.problems.Expression(field, text, parse)
	if e == nil {
		return nil
	}
	if params := e.Params(); len(params) > 0 {
		c.problems.Add(field, "has the parameter @%s; a declaration has no parameters", params[0])
	}
	return e
}

// name checks the name of a table or column.
func (c *checker) name(field, name string) {
	if name == "" || len(name) > NameMax || !utf8.ValidString(name) || strings.TrimSpace(name) != name ||
		strings.ContainsFunc(name, unicode.IsControl) {
		c.problems.Add(field, "%q cannot be a name: 1 to %d bytes of UTF-8 are allowed, without white space around them and control characters", name, NameMax)
	}
}

func (c *checker) table(i int) {
	declared := &c.cfg.Tables[i]
	at := "project.tables." + declared.Name
	c.name(at, declared.Name)
	for j := range i {
		if c.cfg.Tables[j].Name == declared.Name {
			c.problems.Add(at, "is there twice")
		}
	}
	t := &c.d.tables[i]
	t.index, t.TableSchema = i, &c.d.schema.Tables[i]
	t.Name, t.PartitionBy = declared.Name, -1
	var err error
	if t.each, err = scopeOf(declared.Each); err != nil {
		c.problems.Add(at+".each", "%v", err)
	}
	for _, array := range t.each {
		c.names(at+".each", declared.Each, array)
	}
	t.where = c.expression(at+".where", declared.Where, t.each.parseWhere)
	t.perItem = t.where == nil || !readsElement(t.where)
	c.columns(t, declared, at)
	t.Key = c.named(t, at+".key", declared.Key, KeyMax)
	// Where the key's columns follow each other, in the order of the key, a row's key can be
	// a part of its values: columns a, b, c with key [b, c] give values[1:3].
	t.keyFrom = -1
	if len(t.Key) > 0 {
		t.keyFrom = t.Key[0]
	}
	for i, k := range t.Key {
		c.keyColumn(t, at, k)
		if k != t.Key[0]+i {
			t.keyFrom = -1
		}
	}
	if len(declared.Index) > IndexesMax {
		c.problems.Add(at+".index", "has %d indexes; at most %d are allowed", len(declared.Index), IndexesMax)
	}
	for j, columns := range declared.Index {
		t.Index = append(t.Index, c.named(t, fmt.Sprintf("%s.index[%d]", at, j), columns, KeyMax))
	}
	if declared.PartitionBy != "" {
		if t.PartitionBy = t.Column(declared.PartitionBy); t.PartitionBy < 0 {
			c.problems.Add(at+".partitionBy", "%q is not a column of the table", declared.PartitionBy)
		} else if kind := t.Columns[t.PartitionBy].Type.Kind; kind == KindDouble || kind == KindJSON {
			// The name of a folder has to be equal for equal values.
			c.problems.Add(at+".partitionBy", "%q is of type %s, whose values do not name folders", declared.PartitionBy, t.Columns[t.PartitionBy].Type)
		}
	}
}

// names checks that an array of each is found by names alone.
func (c *checker) names(field, text string, path document.Path) {
	for i := range path {
		if s := &path[i]; s.IsIndex || s.KeyName != "" || s.Name == "-" {
			c.problems.Add(field, "is %q; names joined by dots, and [*] between arrays within each other, are expected, such as details[*].options", text)
			return
		}
	}
}

func (c *checker) columns(t *table, declared *Table, at string) {
	if len(declared.Columns) == 0 || len(declared.Columns) > ColumnsMax {
		c.problems.Add(at+".columns", "has %d columns; 1 to %d are expected", len(declared.Columns), ColumnsMax)
	}
	t.Columns = make([]ColumnSchema, 0, len(declared.Columns))
	for i := range declared.Columns {
		col := &declared.Columns[i]
		field := at + ".columns." + col.Name
		c.name(field, col.Name)
		switch {
		case t.Column(col.Name) >= 0:
			c.problems.Add(field, "is there twice")
		case col.Name == SourceColumn || col.Name == ElementColumn:
			c.problems.Add(field, "is the name of a column that every row has; choose another")
		}
		if err := col.Type.check(); err != nil {
			c.problems.Add(field+".type", "%v", err)
		}
		if strings.TrimSpace(col.Expr) == "" {
			c.problems.Add(field, "has no expression")
		}
		t.Columns = append(t.Columns, ColumnSchema{Name: col.Name, Type: col.Type})
		parsed := column{expr: c.expression(field, col.Expr, t.each.parseColumn), typ: col.Type}
		if parsed.expr != nil {
			parsed.path, parsed.root = t.each.path(parsed.expr, col.Expr)
		}
		t.columns = append(t.columns, parsed)
	}
}

// named returns the indexes of 1 to most columns.
func (c *checker) named(t *table, field string, names []string, most int) []int {
	if len(names) == 0 || len(names) > most {
		c.problems.Add(field, "has %d columns; 1 to %d are expected", len(names), most)
	}
	var list []int
	for _, name := range names {
		i := t.Column(name)
		switch {
		case i < 0:
			c.problems.Add(field, "%q is not a column of the table", name)
			continue
		case slices.Contains(list, i):
			c.problems.Add(field, "%q is there twice", name)
		}
		list = append(list, i)
	}
	return list
}

// keyColumn refuses a column that does not identify.
func (c *checker) keyColumn(t *table, at string, i int) {
	switch col := &t.Columns[i]; col.Type.Kind {
	case KindDouble, KindJSON:
		c.problems.Add(at+".key", "%q is of type %s, by which rows are not told apart; string, int64, decimal, bool, timestamp and date can be keys",
			col.Name, col.Type)
	default:
	}
}
