package pgsink

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/processors/project"
)

// changes are what tables lack of a schema.
type changes struct {
	tables  []int         // to be made, by their index in the schema
	columns map[int][]int // to be added, by table
	indexes map[int][][]int
	useless map[int][]indexDefinition // indexes that are no longer declared
	emptied bool                      // a table to be made was there before
}

func (c *changes) any() bool {
	return len(c.tables)+len(c.columns)+len(c.indexes)+len(c.useless) > 0
}

// compareTables returns what a generation lacks of a schema, or a *SchemaError if adding
// is not enough.
func (s *Sink) compareTables(g *generation, schema *project.Schema) (*changes, error) {
	c := &changes{columns: map[int][]int{}, indexes: map[int][][]int{}, useless: map[int][]indexDefinition{}}
	var problems []string
	for i := range schema.Tables {
		t := &schema.Tables[i]
		have := g.table(t.Name)
		switch {
		case have == nil:
			c.tables = append(c.tables, i)
			continue
		case have.missing:
			c.tables, c.emptied = append(c.tables, i), true
			continue
		}
		problems = append(problems, differences(t, have)...)
		for j := range t.Columns {
			if have.column(t.Columns[j].Name) == nil {
				c.columns[i] = append(c.columns[i], j)
			}
		}
		c.compareIndexes(i, t, have)
	}
	for i := range g.tables {
		if !slices.ContainsFunc(schema.Tables, func(t project.TableSchema) bool { return t.Name == g.tables[i].declared }) {
			problems = append(problems, fmt.Sprintf("table %s is no longer declared", g.tables[i].declared))
		}
	}
	if len(problems) > 0 {
		return nil, &SchemaError{Pipeline: schema.Pipeline, Problems: problems}
	}
	return c, nil
}

// differences returns how a declared table differs from the one that is there, except for what
// can be added to it.
func differences(t *project.TableSchema, have *relation) []string {
	var problems []string
	if key := columnsOf(t, t.Key); !slices.Equal(key, have.Key) {
		problems = append(problems, fmt.Sprintf("table %s: the key is (%s) and was (%s)", t.Name, strings.Join(key, ", "), strings.Join(have.Key, ", ")))
	}
	for _, old := range have.Columns {
		at := t.Column(old.Name)
		switch {
		case at < 0:
			problems = append(problems, fmt.Sprintf("table %s: column %s is no longer declared", t.Name, old.Name))
		case t.Columns[at].Type.String() != old.Type:
			problems = append(problems, fmt.Sprintf("table %s: column %s is of type %q and was of type %q", t.Name, old.Name, t.Columns[at].Type, old.Type))
		}
	}
	return problems
}

func (c *changes) compareIndexes(i int, t *project.TableSchema, have *relation) {
	for _, index := range t.Index {
		names := columnsOf(t, index)
		if !slices.ContainsFunc(have.Indexes, func(d indexDefinition) bool { return slices.Equal(d.Columns, names) }) {
			c.indexes[i] = append(c.indexes[i], index)
		}
	}
	for _, d := range have.Indexes {
		if !slices.ContainsFunc(t.Index, func(index []int) bool { return slices.Equal(columnsOf(t, index), d.Columns) }) {
			c.useless[i] = append(c.useless[i], d)
		}
	}
}

// builder writes the statements that make tables what a schema wants.
type builder struct {
	s      *Sink
	schema *project.Schema
	used   map[string]string // relations of the PostgreSQL schema, and whose they are
	sql    strings.Builder
}

// newBuilder looks up which names are used.
func (s *Sink) newBuilder(ctx context.Context, k *conn, schema *project.Schema) (*builder, error) {
	b := &builder{s: s, schema: schema, used: map[string]string{}}
	rows, err := simpleQuery(ctx, k, "select c.relname, coalesce((select pipeline from "+s.ownTable("tables")+
		" t where c.relname in (t.relation, t.rejects) limit 1), '') from pg_class c join pg_namespace n on n.oid = c.relnamespace "+
		"where n.nspname = "+literal(s.cfg.Schema))
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		b.used[string(row[0])] = string(row[1])
	}
	return b, nil
}

func (b *builder) write(format string, args ...any) {
	_, _ = fmt.Fprintf(&b.sql, format+";\n", args...)
}

func (b *builder) isUsed(name string) bool {
	_, ok := b.used[name]
	return ok
}

// buildGeneration makes the tables of the schema's generation, or alters them:
//
//	there         schema        done
//	none          1             tables of 1
//	1 live        1             altered in place, if they lack anything
//	1 live        2             1 becomes 2, then the same
//	1 live        2, shadow     tables of 2 beside those of 1
//	1 live, 2     3, shadow     2, a shadow that was given up, is removed; tables of 3
func (b *builder) buildGeneration(c *catalogue) error {
	number := b.schema.Generation
	g, live := c.generation(number), c.live()
	if g == nil {
		for i := range c.generations { // shadows that were given up
			if old := &c.generations[i]; !old.live {
				b.removeGeneration(old)
			}
		}
		if live != nil && !b.schema.Shadow {
			g = live
			b.handOver(live)
		} else {
			g = &generation{number: number, live: !b.schema.Shadow}
			b.write("insert into %s values (%s, %d, %t)", b.s.ownTable("generations"), literal(b.schema.Pipeline), number, g.live)
		}
	}
	changes, err := b.s.compareTables(g, b.schema)
	if err != nil {
		return err
	}
	if changes.emptied {
		// Somebody has removed a table, and with it the rows up to the recorded position.
		// Without one the feed is read from its beginning.
		b.write("delete from %s where %s", b.s.ownTable("positions"), generationMatch(b.schema.Pipeline, number))
	}
	return b.alterTables(g, changes)
}

// handOver gives the tables of a generation to the schema's generation.
func (b *builder) handOver(g *generation) {
	old := generationMatch(b.schema.Pipeline, g.number)
	b.write("delete from %s where %s", b.s.ownTable("positions"), old)
	b.write("update %s set generation = %d where %s", b.s.ownTable("generations"), b.schema.Generation, old)
	b.write("update %s set generation = %d where %s", b.s.ownTable("tables"), b.schema.Generation, old)
}

// removeGeneration drops the tables of a generation and all that is known of it.
func (b *builder) removeGeneration(g *generation) {
	match := generationMatch(b.schema.Pipeline, g.number)
	// The delete waits for writers at work, which have locked their positions. They are refused
	// from then on, because their generation is gone.
	b.write("delete from %s where %s", b.s.ownTable("positions"), match)
	for i := range g.tables {
		b.write("drop table if exists %s, %s", b.s.qualified(g.tables[i].name), b.s.qualified(g.tables[i].rejects))
		delete(b.used, g.tables[i].name)
		delete(b.used, g.tables[i].rejects)
	}
	b.write("delete from %s where %s", b.s.ownTable("tables"), match)
	b.write("delete from %s where %s", b.s.ownTable("generations"), match)
}

// alterTables carries out changes of a generation.
func (b *builder) alterTables(g *generation, c *changes) error {
	var problems []string
	for _, i := range c.tables {
		if err := b.createTable(g, &b.schema.Tables[i]); err != nil {
			problems = append(problems, err.Error())
		}
	}
	if len(problems) > 0 {
		return &SchemaError{Pipeline: b.schema.Pipeline, Problems: problems}
	}
	for i := range b.schema.Tables {
		t := &b.schema.Tables[i]
		have := g.table(t.Name)
		if have == nil || len(c.columns[i])+len(c.indexes[i])+len(c.useless[i]) == 0 {
			continue
		}
		names := columnNames(t.Columns, have.mapping())
		for _, j := range c.columns[i] {
			b.write("alter table %s add column %s %s", b.s.qualified(have.name), quoteName(names[j]), typeOf(t.Columns[j].Type).name)
		}
		d := define(t, names)
		for _, old := range have.Indexes {
			if slices.ContainsFunc(c.useless[i], func(u indexDefinition) bool { return u.Name == old.Name }) {
				b.write("drop index if exists %s", b.s.qualified(old.Name))
				continue
			}
			d.Indexes = append(d.Indexes, old)
		}
		b.createIndexes(&d, have.name, t, names, c.indexes[i])
		b.saveDefinition(t.Name, have.name, have.rejects, &d)
	}
	return nil
}

// createTable makes a table and that of its rejects.
func (b *builder) createTable(g *generation, t *project.TableSchema) error {
	suffix := ""
	if !g.live {
		suffix = fmt.Sprintf("_g%d", g.number)
	}
	have := g.table(t.Name)
	if have != nil { // one that somebody has removed, or half of it
		b.write("drop table if exists %s, %s", b.s.qualified(have.name), b.s.qualified(have.rejects))
		delete(b.used, have.name)
		delete(b.used, have.rejects)
	}
	name, err := b.tableName(t.Name, suffix)
	if err != nil {
		return err
	}
	rejects := relationName(t.Name, suffix+rejectsSuffix, b.isReserved)
	b.used[name], b.used[rejects] = b.schema.Pipeline, b.schema.Pipeline

	names := columnNames(t.Columns, nil)
	list := make([]string, 0, len(names)+2)
	for i := range t.Columns {
		list = append(list, quoteName(names[i])+" "+typeOf(t.Columns[i].Type).name)
	}
	list = append(list, sourceName+" text not null", elementName+" text not null")
	b.write("create table %s (%s, primary key (%s))", b.s.qualified(name), strings.Join(list, ", "), quoteNames("", elementsAt(names, t.Key)))
	b.write("create table %s (id bytea primary key, kind text not null, source text not null, element text not null, column_name text not null, "+
		"reason text not null, key text, key_hash bytea, row json, since timestamp with time zone not null default now())", b.s.qualified(rejects))
	// Partial indexes: the questions of every batch, whether there are pending rows and
	// whether anything was refused, are answered by an empty index in most tables.
	b.write("create index on %s (key_hash) where key_hash is not null", b.s.qualified(rejects))
	b.write("create index on %s (kind) where kind = 'refused'", b.s.qualified(rejects))
	d := define(t, names)
	b.createIndexes(&d, name, t, names, t.Index)
	b.saveDefinition(t.Name, name, rejects, &d)
	return nil
}

// isReserved says whether a name is used, or is that of another declared table.
func (b *builder) isReserved(name string) bool {
	return b.isUsed(name) || slices.ContainsFunc(b.schema.Tables, func(t project.TableSchema) bool { return t.Name == name })
}

// tableName chooses the name of a declared table.
func (b *builder) tableName(declared, suffix string) (string, error) {
	name := relationName(declared, suffix, func(string) bool { return false })
	owner, used := b.used[name]
	// A name that this pipeline uses itself is mapped to another one, and so is that of a
	// shadow, by which nobody looks for it. A live table must have its own name: if somebody
	// else uses that, users would read the wrong table.
	switch {
	case !used:
		return name, nil
	case owner == b.schema.Pipeline || suffix != "":
		return relationName(declared, suffix, b.isReserved), nil
	case owner != "":
		return "", fmt.Errorf("table %s: pipeline %s has a table of this name; rename one of them, or give the sinks different schemas; "+
			"or, if that pipeline was deleted, drop table %s: it is tried again by itself, and builds its own", declared, owner, b.s.qualified(name))
	}
	return "", fmt.Errorf("table %s: PostgreSQL has a table, view or index %s that is not millrace's; rename one of them, or give the sink a schema of its own",
		declared, b.s.qualified(name))
}

// createIndexes makes indexes and adds them to a definition.
func (b *builder) createIndexes(d *definition, name string, t *project.TableSchema, names []string, indexes [][]int) {
	for _, index := range indexes {
		declared := columnsOf(t, index)
		made := relationName(name+"_"+strings.Join(declared, "_"), "_idx", b.isReserved)
		b.used[made] = b.schema.Pipeline
		b.write("create index %s on %s (%s)", quoteName(made), b.s.qualified(name), quoteNames("", elementsAt(names, index)))
		d.Indexes = append(d.Indexes, indexDefinition{Name: made, Columns: declared})
	}
}

// define describes a table.
func define(t *project.TableSchema, names []string) definition {
	d := definition{Key: columnsOf(t, t.Key)}
	for i, c := range t.Columns {
		d.Columns = append(d.Columns, columnDefinition{Name: c.Name, Column: names[i], Type: c.Type.String()})
	}
	return d
}

// saveDefinition records where a table is and of what columns it was made.
func (b *builder) saveDefinition(declared, name, rejects string, d *definition) {
	text, err := json.Marshal(d)
	if err != nil {
		panic(err) // strings alone
	}
	b.write("insert into %[1]s values (%[2]s, %[3]d, %[4]s, %[5]s, %[6]s, %[7]s) on conflict (pipeline, generation, name) do update set "+
		"relation = excluded.relation, rejects = excluded.rejects, definition = excluded.definition",
		b.s.ownTable("tables"), literal(b.schema.Pipeline), b.schema.Generation, literal(declared), literal(name), literal(rejects), literal(string(text)))
}
