package pgsink

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
)

// Open makes and alters tables if the schema asks for it, and begins a term. The
// error is a *SchemaError if the tables that are there would have to be filled anew,
// or if a table has its name that is not the pipeline's.
func (s *Sink) Open(ctx context.Context, schema *project.Schema, t project.Term) (project.Writer, feed.Position, error) {
	w := &writer{s: s, schema: schema, term: t}
	k, err := s.conns.acquireForWriter(ctx)
	if err != nil {
		return nil, feed.Position{}, failure(ctx, "connect", err)
	}
	defer s.conns.releaseByWriter(ctx, k)
	defer rollback(ctx, k)
	// Most terms find their tables as they want them, so that is looked at first, under
	// the lock that writers share. Only who must change something stops the others.
	ready, err := w.open(ctx, k)
	if err == nil && !ready {
		rollback(ctx, k)
		if err = w.prepare(ctx, k); err == nil {
			ready, err = w.open(ctx, k)
		}
	}
	if err == nil && !ready {
		err = &Error{Doing: "open", Message: "the tables are altered by another at the same time"}
	}
	if err != nil {
		return nil, feed.Position{}, failure(ctx, "open "+t.Producer.String(), err)
	}
	return w, w.at, nil
}

// open begins the term if the tables are as the schema wants them.
func (w *writer) open(ctx context.Context, k *conn) (ready bool, err error) {
	if _, err := simpleQuery(ctx, k, w.s.beginWriter(w.schema.Pipeline, shared)); err != nil {
		return false, err
	}
	c, err := w.s.readCatalogue(ctx, k, w.schema.Pipeline)
	if err != nil {
		return false, err
	}
	if err := superseded(c, w.term); err != nil {
		return false, err
	}
	g := c.generation(w.schema.Generation)
	if g == nil {
		return false, nil
	}
	changes, err := w.s.compareTables(g, w.schema)
	if err != nil || changes.any() {
		return false, err
	}
	rows, err := simpleQuery(ctx, k, w.s.fenceStatement(w.term.Producer, w.term.Epoch))
	if err != nil {
		return false, err
	}
	if w.at, err = w.parsePosition(rows); err != nil {
		return false, err
	}
	w.layout = w.s.layoutOf(g, w.schema)
	return true, commit(ctx, k)
}

// superseded returns ErrFenced for a generation in whose place another has come, or
// is coming.
func superseded(c *catalogue, t project.Term) error {
	number := t.Producer.Generation
	if g := c.generation(number); g != nil && g.live {
		return nil
	}
	if newest := c.newest(); newest > number {
		return termOver(t, fmt.Sprintf("generation %d has begun", newest))
	}
	return nil
}

// prepare makes and alters tables in one transaction.
func (w *writer) prepare(ctx context.Context, k *conn) error {
	c, err := w.s.lockAlone(ctx, k, w.schema.Pipeline)
	if err != nil {
		return err
	}
	if err := superseded(c, w.term); err != nil {
		return err
	}
	// The fence of open comes too late here. A late term may know an older declaration of the same
	// generation, and would drop an index that was declared since, which nobody makes again before the
	// next Open. The pipeline's lock is held until the commit, so no later term begins in between.
	rows, err := simpleQuery(ctx, k, w.s.positionQuery(w.term.Producer))
	if err != nil {
		return err
	}
	if _, err := w.parsePosition(rows); err != nil {
		return err
	}
	b, err := w.s.newBuilder(ctx, k, w.schema)
	if err != nil {
		return err
	}
	if err := b.buildGeneration(c); err != nil {
		return err
	}
	if _, err := simpleQuery(ctx, k, b.sql.String()); err != nil {
		return err
	}
	return commit(ctx, k)
}

// lockAlone begins a transaction that has the pipeline to itself, makes the sink's own
// tables if they are missing, and returns the catalogue.
func (s *Sink) lockAlone(ctx context.Context, k *conn, pipeline string) (*catalogue, error) {
	if _, err := simpleQuery(ctx, k, s.beginAlone(pipeline)); err != nil {
		return nil, err
	}
	c, err := s.readCatalogue(ctx, k, pipeline)
	if err != nil || c.exists {
		return c, err
	}
	return c, s.makeOwn(ctx, k)
}

// makeOwn makes the schema and the sink's own tables.
func (s *Sink) makeOwn(ctx context.Context, k *conn) error {
	// CREATE SCHEMA IF NOT EXISTS asks for the right to create one even where there
	// is one.
	rows, err := simpleQuery(ctx, k, "select from pg_namespace where nspname = "+literal(s.cfg.Schema))
	if err != nil {
		return err
	}
	sql := ""
	if len(rows) == 0 {
		sql = "create schema " + quoteName(s.cfg.Schema) + ";\n"
	}
	_, err = simpleQuery(ctx, k, sql+
		"create table "+s.ownTable("format")+" (version integer not null);\n"+
		"insert into "+s.ownTable("format")+fmt.Sprintf(" values (%d);\n", formatVersion)+
		"create table "+s.ownTable("generations")+" (pipeline text, generation bigint, live boolean not null, primary key (pipeline, generation));\n"+
		"create table "+s.ownTable("tables")+" (pipeline text, generation bigint, name text, relation text not null, rejects text not null, "+
		"definition json not null, primary key (pipeline, generation, name));\n"+
		"create table "+s.ownTable("positions")+" (pipeline text, generation bigint, producer text, epoch bigint not null, lsn bigint not null, "+
		"idx bigint not null, updated timestamp with time zone not null default now(), primary key (pipeline, generation, producer));\n")
	return err
}
