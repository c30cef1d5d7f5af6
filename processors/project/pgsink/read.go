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
		err := s.scanTable(ctx, schema, table, rowsQuery, func(target *tableTarget, values [][]byte) (bool, error) {
			r, err := decodeRow(target, values)
			return err == nil && yield(r, nil), err
		})
		if err != nil {
			yield(project.Row{}, failure(ctx, "read rows of "+schema.Tables[table].Name, err))
		}
	}
}

// Rejects yields the rejects of a table, pending rows and what PostgreSQL did not take
// among them, as they are at one moment.
func (s *Sink) Rejects(ctx context.Context, schema *project.Schema, table int) iter.Seq2[project.Reject, error] {
	return func(yield func(project.Reject, error) bool) {
		err := s.scanTable(ctx, schema, table, rejectsQuery, func(target *tableTarget, values [][]byte) (bool, error) {
			r, err := decodeReject(target, values)
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
	k, err := s.conns.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer s.conns.release(ctx, k)
	c, err := s.readCatalogue(ctx, k, schema.Pipeline)
	if err != nil || !c.exists {
		return map[string]feed.Position{}, err
	}
	rows, err := simpleQuery(ctx, k, "select producer, lsn, idx from "+s.ownTable("positions")+" where "+generationMatch(schema.Pipeline, schema.Generation))
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
func rowsQuery(target *tableTarget) string {
	list := make([]string, len(target.columns), len(target.columns)+2)
	for i, column := range target.columns {
		list[i] = quoteName(column)
		if column == "" {
			list[i] = "null::" + typeOf(target.Columns[i].Type).name
		}
	}
	return "select " + strings.Join(append(list, sourceName, elementName), ", ") + " from " + target.name
}

func rejectsQuery(target *tableTarget) string {
	return "select kind, source, element, column_name, reason, row from " + target.rejects
}

// scanTable asks query of a table and calls take with each row, until take returns false. If
// the table was swapped since the catalogue was read, it is looked up once more, as long as
// take was not called: a reader must not get rows of two generations.
func (s *Sink) scanTable(ctx context.Context, schema *project.Schema, table int, query func(*tableTarget) string, take func(*tableTarget, [][]byte) (bool, error)) error {
	k, err := s.conns.acquire(ctx)
	if err != nil {
		return err
	}
	defer s.conns.release(ctx, k)
	for attempt := 1; ; attempt++ {
		c, err := s.readCatalogue(ctx, k, schema.Pipeline)
		if err != nil {
			return err
		}
		g := c.generation(schema.Generation)
		takesOver := g == nil && !schema.Shadow // see handOver
		if takesOver {
			g = c.live()
		}
		if g == nil || g.number > schema.Generation {
			return nil
		}
		l := s.layoutOf(g, schema)
		target := &l.tables[table]
		if target.name == "" || takesOver && !l.complete() {
			return nil
		}
		begun, err := scanRows(k.ExecParams(ctx, query(target), nil, nil, nil, []int16{1}), target, take)
		if err == nil || begun || !tableMissing(err) || attempt > 1 {
			return err
		}
	}
}

func scanRows(r *pgconn.ResultReader, target *tableTarget, take func(*tableTarget, [][]byte) (bool, error)) (begun bool, err error) {
	for r.NextRow() {
		begun = true
		more, err := take(target, r.Values())
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

func decodeRow(target *tableTarget, values [][]byte) (project.Row, error) {
	n := len(target.Columns)
	r := project.Row{
		Table: target.index, Values: make([]project.Value, n), Source: sourceOf(string(values[n])), Element: string(values[n+1]),
	}
	for i := range target.Columns {
		var err error
		if r.Values[i], err = decodeValue(target.Columns[i].Type, values[i]); err != nil {
			return r, fmt.Errorf("table %s: column %s: %w", target.Name, target.Columns[i].Name, err)
		}
	}
	r.Key = target.KeyOf(r.Values)
	return r, nil
}

func decodeReject(target *tableTarget, values [][]byte) (project.Reject, error) {
	r := project.Reject{
		Table: target.index, Source: sourceOf(string(values[1])), Element: string(values[2]),
		Column: string(values[3]), Reason: string(values[4]),
	}
	if values[5] != nil {
		r.Row = append([]byte{}, values[5]...)
	}
	if string(values[0]) != kindPending {
		return r, nil
	}
	row, err := target.ParseRow(r.Row)
	if err != nil {
		return r, fmt.Errorf("pending row of %s: %w", r.Source, err)
	}
	r.Key = target.KeyOf(row)
	return r, nil
}
