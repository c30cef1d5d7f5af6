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

// readCatalogue reads the catalogue of a pipeline.
func (s *Sink) readCatalogue(ctx context.Context, k *conn, pipeline string) (*catalogue, error) {
	// to_regclass answers null for a table that is not there. A query of the table would be
	// an error, and an error ends the transaction.
	c := &catalogue{}
	rows, err := simpleQuery(ctx, k, "select to_regclass("+literal(s.ownTable("format"))+")")
	if err != nil || rows[0][0] == nil {
		return c, err
	}
	c.exists = true
	if rows, err = simpleQuery(ctx, k, "select max(version) from "+s.ownTable("format")); err != nil {
		return nil, err
	}
	if version, err := strconv.Atoi(string(rows[0][0])); err != nil || version > formatVersion {
		return nil, &Error{Doing: "read " + s.ownTable("format"), Message: fmt.Sprintf(
			"the tables are of format %s, this program knows formats up to %d; use a newer one", rows[0][0], formatVersion)}
	}
	rows, err = simpleQuery(ctx, k, `select g.generation, g.live, t.name, t.relation, t.rejects, t.definition, `+
		`to_regclass(quote_ident(`+literal(s.cfg.Schema)+`) || '.' || quote_ident(t.relation)) is null or `+
		`to_regclass(quote_ident(`+literal(s.cfg.Schema)+`) || '.' || quote_ident(t.rejects)) is null from `+
		s.ownTable("generations")+` g left join `+s.ownTable("tables")+` t using (pipeline, generation) where pipeline = `+literal(pipeline)+
		` order by g.generation, t.name collate "C"`)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if err := c.addRow(row); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// addRow takes one row of what readCatalogue asked: a table, or a generation without any.
func (c *catalogue) addRow(row [][]byte) error {
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
	tables []tableTarget // by the table's index in the schema
}

// tableTarget is a declared table and where its rows are in PostgreSQL.
type tableTarget struct {
	*project.TableSchema
	index   int
	name    string   // qualified and quoted
	rejects string   // likewise
	columns []string // by their index in the schema; "" where there is none
	sql     statements
}

// layoutOf finds the tables of a schema in the generation. A table that is not there
// has no name.
func (s *Sink) layoutOf(g *generation, schema *project.Schema) *layout {
	l := &layout{live: g.live, tables: make([]tableTarget, len(schema.Tables))}
	for i := range schema.Tables {
		target := &l.tables[i]
		target.TableSchema, target.index = &schema.Tables[i], i
		t := g.table(target.Name)
		if t == nil {
			continue
		}
		target.name, target.rejects = s.qualified(t.name), s.qualified(t.rejects)
		target.columns = make([]string, len(target.Columns))
		for j := range target.Columns {
			// A column of another type is as good as missing: its values could not be read.
			if c := t.column(target.Columns[j].Name); c != nil && c.Type == target.Columns[j].Type.String() {
				target.columns[j] = c.Column
			}
		}
		if !slices.Contains(target.columns, "") {
			target.sql = newStatements(target)
		}
	}
	return l
}

// complete says whether every table and column of the schema is there.
func (l *layout) complete() bool {
	return !slices.ContainsFunc(l.tables, func(target tableTarget) bool { return target.sql.upsert == "" })
}
