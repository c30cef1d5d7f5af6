package pgsink

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
)

// Rows yields the rows of a table as they are at one moment. It has a connection of
// its own until it ends.
func (s *Sink) Rows(ctx context.Context, schema *project.Schema, table int) iter.Seq2[project.Row, error] {
	return func(yield func(project.Row, error) bool) {
		err := s.scan(ctx, schema, table, rowsQuery, func(p *place, values [][]byte) (bool, error) {
			r, err := decodeRow(p, values)
			return err == nil && yield(r, nil), err
		})
		if err != nil {
			yield(project.Row{}, failure(ctx, "read rows of "+schema.Tables[table].Name, err))
		}
	}
}

// Rejects yields the rejects of a table, claims and what PostgreSQL did not take
// among them, as they are at one moment.
func (s *Sink) Rejects(ctx context.Context, schema *project.Schema, table int) iter.Seq2[project.Reject, error] {
	return func(yield func(project.Reject, error) bool) {
		err := s.scan(ctx, schema, table, rejectsQuery, func(p *place, values [][]byte) (bool, error) {
			r, err := decodeReject(p, values)
			return err == nil && yield(r, nil), err
		})
		if err != nil {
			yield(project.Reject{}, failure(ctx, "read rejects of "+schema.Tables[table].Name, err))
		}
	}
}

// Positions returns the positions recorded for the producers of a generation.
func (s *Sink) Positions(ctx context.Context, schema *project.Schema) (map[string]feed.Position, error) {
	positions, err := s.positions(ctx, schema)
	return positions, failure(ctx, "read positions", err)
}

func (s *Sink) positions(ctx context.Context, schema *project.Schema) (map[string]feed.Position, error) {
	k, err := s.conns.borrow(ctx)
	if err != nil {
		return nil, err
	}
	defer s.conns.giveBack(ctx, k)
	c, err := s.read(ctx, k, schema.Pipeline)
	if err != nil || !c.exists {
		return map[string]feed.Position{}, err
	}
	rows, err := ask(ctx, k, "select producer, lsn, idx from "+s.own("positions")+" where "+generationMatch(schema.Pipeline, schema.Generation))
	if err != nil {
		return nil, err
	}
	positions := make(map[string]feed.Position, len(rows))
	for _, row := range rows {
		lsn, err := strconv.ParseUint(string(row[1]), 10, 64)
		index, err2 := strconv.ParseUint(string(row[2]), 10, 32)
		if err := errors.Join(err, err2); err != nil {
			return nil, fmt.Errorf("position of %s: %w", row[0], err)
		}
		if lsn > 0 || index > 0 { // begun, and nothing written
			positions[string(row[0])] = feed.Position{LSN: feed.LSN(lsn), Index: uint32(index)}
		}
	}
	return positions, nil
}

// rowsQuery asks for (columns..., source, element); a column that is not there yet
// is null.
func rowsQuery(p *place) string {
	list := make([]string, len(p.columns), len(p.columns)+2)
	for i, column := range p.columns {
		list[i] = quoteName(column)
		if column == "" {
			list[i] = "null::" + typeOf(p.Columns[i].Type).name
		}
	}
	return "select " + strings.Join(append(list, sourceName, elementName), ", ") + " from " + p.name
}

func rejectsQuery(p *place) string {
	return "select kind, source, element, column_name, reason, row from " + p.rejects
}

// scan asks query of a table and hands on each row until take says that it is
// enough. A table that is swapped meanwhile is looked for once more, as long as
// nothing was handed on.
func (s *Sink) scan(ctx context.Context, schema *project.Schema, table int, query func(*place) string, take func(*place, [][]byte) (bool, error)) error {
	k, err := s.conns.borrow(ctx)
	if err != nil {
		return err
	}
	defer s.conns.giveBack(ctx, k)
	for attempt := 1; ; attempt++ {
		c, err := s.read(ctx, k, schema.Pipeline)
		if err != nil {
			return err
		}
		g := c.generation(schema.Generation)
		if g == nil {
			return nil
		}
		p := &s.layout(g, schema).tables[table]
		if p.name == "" {
			return nil
		}
		begun, err := scanOnce(k.ExecParams(ctx, query(p), nil, nil, nil, []int16{1}), p, take)
		if err == nil || begun || !missing(err) || attempt > 1 {
			return err
		}
	}
}

func scanOnce(r *pgconn.ResultReader, p *place, take func(*place, [][]byte) (bool, error)) (begun bool, err error) {
	for r.NextRow() {
		begun = true
		more, err := take(p, r.Values())
		if err != nil {
			return true, err
		}
		if !more {
			return true, nil // the connection is closed with the rest unread
		}
	}
	_, err = r.Close()
	return begun, err
}

func decodeRow(p *place, values [][]byte) (project.Row, error) {
	n := len(p.Columns)
	r := project.Row{
		Table: p.index, Values: make([]project.Value, n), Source: sourceOf(string(values[n])), Element: string(values[n+1]),
	}
	for i := range p.Columns {
		var err error
		if r.Values[i], err = decodeValue(p.Columns[i].Type, values[i]); err != nil {
			return r, fmt.Errorf("table %s: column %s: %w", p.Name, p.Columns[i].Name, err)
		}
	}
	r.Key = p.KeyOf(r.Values)
	return r, nil
}

func decodeReject(p *place, values [][]byte) (project.Reject, error) {
	r := project.Reject{
		Table: p.index, Source: sourceOf(string(values[1])), Element: string(values[2]),
		Column: string(values[3]), Reason: string(values[4]),
	}
	if values[5] != nil {
		r.Row = append([]byte{}, values[5]...)
	}
	if string(values[0]) != kindClaim {
		return r, nil
	}
	row, err := p.ParseRow(r.Row)
	if err != nil {
		return r, fmt.Errorf("claim of %s: %w", r.Source, err)
	}
	r.Key = p.KeyOf(row)
	return r, nil
}
