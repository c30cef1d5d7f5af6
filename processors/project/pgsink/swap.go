package pgsink

import (
	"context"
	"fmt"
	"strings"

	"github.com/millrace/millrace/processors/project"
)

// Swap gives the names of the live tables to those of the schema's generation and
// removes the former ones, in one transaction. Rights that were granted on the
// former tables are granted on the new ones; everything else that was added by hand
// goes with them. A view that rests on a former table is an error. So is a generation behind
// which a later one was begun, with project.ErrGivenUp: its tables are gone.
func (s *Sink) Swap(ctx context.Context, schema *project.Schema) error {
	k, err := s.conns.acquireForWriter(ctx)
	if err != nil {
		return failure(ctx, "connect", err)
	}
	defer s.conns.releaseByWriter(ctx, k)
	defer rollback(ctx, k)
	return failure(ctx, fmt.Sprintf("swap in generation %d of %s", schema.Generation, schema.Pipeline), s.swap(ctx, k, schema))
}

func (s *Sink) swap(ctx context.Context, k *conn, schema *project.Schema) error {
	c, err := s.lockAlone(ctx, k, schema.Pipeline)
	if err != nil {
		return err
	}
	g := c.generation(schema.Generation)
	switch newest := c.newest(); {
	case g != nil && g.live:
		return nil
	case newest > schema.Generation: // superseded refuses to make its tables again, so this stays true
		return fmt.Errorf("pgsink: generation %d of pipeline %s: generation %d has begun: %w", schema.Generation, schema.Pipeline, newest, project.ErrGivenUp)
	case g == nil:
		return &Error{Doing: "swap", Message: fmt.Sprintf("generation %d of pipeline %s has no tables", schema.Generation, schema.Pipeline)}
	}
	b, err := s.newBuilder(ctx, k, schema)
	if err != nil {
		return err
	}
	grants, err := s.grants(ctx, k, c.live(), g)
	if err != nil {
		return err
	}
	if err := b.swapTables(c, g); err != nil {
		return err
	}
	for _, grant := range grants {
		b.write("%s", grant)
	}
	if _, err := simpleQuery(ctx, k, b.sql.String()); err != nil {
		return err
	}
	return commit(ctx, k)
}

// swapTables renames the tables of g, a shadow, and removes all generations before it.
func (b *builder) swapTables(c *catalogue, g *generation) error {
	names := map[string]relation{} // the former tables by their declared names
	if live := c.live(); live != nil {
		for _, t := range live.tables {
			names[t.declared] = t
		}
	}
	// The former tables go first, because the new ones get their names. All of it is one
	// transaction, so readers find the one or the other.
	for i := range c.generations {
		if old := &c.generations[i]; old.number < g.number {
			b.removeGeneration(old)
		}
	}
	// A table takes the name of the former one, also where that was mapped to another name than
	// the declared one: readers go on with what they use. One that is new gets a name here.
	for i := range g.tables {
		t := &g.tables[i]
		former, ok := names[t.declared]
		if !ok {
			var err error
			if former.name, err = b.tableName(t.declared, ""); err != nil {
				return &SchemaError{Pipeline: b.schema.Pipeline, Problems: []string{err.Error()}}
			}
			b.used[former.name] = b.schema.Pipeline
			former.rejects = relationName(t.declared, rejectsSuffix, b.isReserved)
		}
		b.used[former.name], b.used[former.rejects] = b.schema.Pipeline, b.schema.Pipeline
		b.renameTable(t.name, former.name)
		b.renameTable(t.rejects, former.rejects)
		b.write("update %s set relation = %s, rejects = %s where %s and name = %s", b.s.ownTable("tables"), literal(former.name),
			literal(former.rejects), generationMatch(b.schema.Pipeline, g.number), literal(t.declared))
	}
	b.write("update %s set live = true where %s", b.s.ownTable("generations"), generationMatch(b.schema.Pipeline, g.number))
	return nil
}

func (b *builder) renameTable(from, to string) {
	if from != to {
		b.write("alter table %s rename to %s", b.s.qualified(from), quoteName(to))
	}
}

// grants are the statements that grant on the tables of g what is granted on those
// of the live generation.
func (s *Sink) grants(ctx context.Context, k *conn, live, g *generation) ([]string, error) {
	if live == nil {
		return nil, nil
	}
	var statements []string
	for i := range live.tables {
		old := &live.tables[i]
		if g.table(old.declared) == nil {
			continue
		}
		for _, name := range []string{old.name, old.rejects} {
			rows, err := simpleQuery(ctx, k, "select a.privilege_type, a.is_grantable, coalesce(r.rolname, '') from pg_class c, aclexplode(c.relacl) a "+
				"left join pg_roles r on r.oid = a.grantee where c.oid = to_regclass("+literal(s.qualified(name))+") and a.grantee <> c.relowner")
			if err != nil {
				return nil, err
			}
			for _, row := range rows {
				statements = append(statements, s.grant(name, row))
			}
		}
	}
	return statements, nil
}

// grant writes one right on a table that has got the former one's name.
func (s *Sink) grant(name string, row [][]byte) string {
	var sql strings.Builder
	sql.WriteString("grant " + string(row[0]) + " on " + s.qualified(name) + " to ")
	if role := string(row[2]); role != "" {
		sql.WriteString(quoteName(role))
	} else {
		sql.WriteString("public")
	}
	if string(row[1]) == "t" {
		sql.WriteString(" with grant option")
	}
	return sql.String()
}
