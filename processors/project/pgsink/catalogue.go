package pgsink

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/millrace/millrace/processors/project"
)

// formatVersion is that of the sink's own tables: see TABLES.md.
const formatVersion = 1

// catalogue is what the sink's own tables say of one pipeline, the oldest
// generation first.
type catalogue struct {
	exists      bool // the own tables are there
	generations []generation
}

// generation is one of a pipeline that has tables.
type generation struct {
	number uint32
	live   bool // its tables are the ones that readers see
	tables []relation
}

// relation is a table that the sink has made.
type relation struct {
	declared string // its name in the pipeline
	name     string // of the table in PostgreSQL
	rejects  string // of the table of its rejects
	definition
	missing bool // someone has removed one of the two
}

// definition is of what columns a table was made, as it is kept.
type definition struct {
	Columns []columnDefinition `json:"columns"`
	Key     []string           `json:"key"` // declared names
	Indexes []indexDefinition  `json:"indexes,omitempty"`
}

type columnDefinition struct {
	Name   string `json:"name"`   // declared
	Column string `json:"column"` // in PostgreSQL
	Type   string `json:"type"`   // declared
}

type indexDefinition struct {
	Name    string   `json:"name"`    // in PostgreSQL
	Columns []string `json:"columns"` // declared
}

// column returns the definition of a declared column, nil if there is none.
func (d *definition) column(name string) *columnDefinition {
	for i := range d.Columns {
		if d.Columns[i].Name == name {
			return &d.Columns[i]
		}
	}
	return nil
}

// mapping is the names of the columns by their declared names.
func (d *definition) mapping() map[string]string {
	m := make(map[string]string, len(d.Columns))
	for _, c := range d.Columns {
		m[c.Name] = c.Column
	}
	return m
}

func (c *catalogue) generation(number uint32) *generation {
	for i := range c.generations {
		if c.generations[i].number == number {
			return &c.generations[i]
		}
	}
	return nil
}

// live returns the generation that readers see, nil if there is none.
func (c *catalogue) live() *generation {
	for i := range c.generations {
		if c.generations[i].live {
			return &c.generations[i]
		}
	}
	return nil
}

// newest returns the number of the newest generation, 0 if there is none.
func (c *catalogue) newest() uint32 {
	if len(c.generations) == 0 {
		return 0
	}
	return c.generations[len(c.generations)-1].number
}

func (g *generation) table(declared string) *relation {
	for i := range g.tables {
		if g.tables[i].declared == declared {
			return &g.tables[i]
		}
	}
	return nil
}

// read reads the catalogue of a pipeline.
func (s *Sink) read(ctx context.Context, k *conn, pipeline string) (*catalogue, error) {
	c := &catalogue{}
	rows, err := ask(ctx, k, "select to_regclass("+literal(s.own("format"))+")")
	if err != nil || rows[0][0] == nil {
		return c, err
	}
	c.exists = true
	if rows, err = ask(ctx, k, "select max(version) from "+s.own("format")); err != nil {
		return nil, err
	}
	if version, err := strconv.Atoi(string(rows[0][0])); err != nil || version > formatVersion {
		return nil, &Error{Doing: "read " + s.own("format"), Message: fmt.Sprintf(
			"the tables are of format %s, this program knows formats up to %d; use a newer one", rows[0][0], formatVersion)}
	}
	rows, err = ask(ctx, k, `select g.generation, g.live, t.name, t.relation, t.rejects, t.definition, `+
		`to_regclass(quote_ident(`+literal(s.cfg.Schema)+`) || '.' || quote_ident(t.relation)) is null or `+
		`to_regclass(quote_ident(`+literal(s.cfg.Schema)+`) || '.' || quote_ident(t.rejects)) is null from `+
		s.own("generations")+` g left join `+s.own("tables")+` t using (pipeline, generation) where pipeline = `+literal(pipeline)+
		` order by g.generation, t.name collate "C"`)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if err := c.add(row); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// add takes one row of what read asked.
func (c *catalogue) add(row [][]byte) error {
	number, err := strconv.ParseUint(string(row[0]), 10, 32)
	if err != nil {
		return fmt.Errorf("generation %q: %w", row[0], err)
	}
	if len(c.generations) == 0 || c.newest() != uint32(number) {
		c.generations = append(c.generations, generation{number: uint32(number), live: string(row[1]) == "t"})
	}
	if row[2] == nil {
		return nil
	}
	t := relation{declared: string(row[2]), name: string(row[3]), rejects: string(row[4]), missing: string(row[6]) == "t"}
	if err := json.Unmarshal(row[5], &t.definition); err != nil {
		return fmt.Errorf("definition of %s: %w", t.name, err)
	}
	g := &c.generations[len(c.generations)-1]
	g.tables = append(g.tables, t)
	return nil
}

// layout is where the rows of a schema are.
type layout struct {
	live   bool
	tables []place // by the table's index in the schema
}

// place is where the rows of one table are.
type place struct {
	*project.TableSchema
	index   int
	name    string   // qualified and quoted
	rejects string   // likewise
	columns []string // by their index in the schema; "" where there is none
	sql     statements
}

// layout finds the tables of a schema in the generation. A table that is not there
// has no name.
func (s *Sink) layout(g *generation, schema *project.Schema) *layout {
	l := &layout{live: g.live, tables: make([]place, len(schema.Tables))}
	for i := range schema.Tables {
		p := &l.tables[i]
		p.TableSchema, p.index = &schema.Tables[i], i
		t := g.table(p.Name)
		if t == nil {
			continue
		}
		p.name, p.rejects = s.qualified(t.name), s.qualified(t.rejects)
		p.columns = make([]string, len(p.Columns))
		for j := range p.Columns {
			if c := t.column(p.Columns[j].Name); c != nil && c.Type == p.Columns[j].Type.String() {
				p.columns[j] = c.Column
			}
		}
		if !slices.Contains(p.columns, "") {
			p.sql = newStatements(p)
		}
	}
	return l
}

// whole says whether every table and column of the schema has its place.
func (l *layout) whole() bool {
	return !slices.ContainsFunc(l.tables, func(p place) bool { return p.sql.upsert == "" })
}
