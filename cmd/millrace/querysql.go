package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/query"
)

// queryOutputs are the forms in which query prints.
var queryOutputs = []string{"table", "json", "ndjson", "csv", "yaml"}

// querySQL answers a query and prints its rows as they come.
func (a *app) querySQL(cmd *cobra.Command, text string, f *queryFlags) error {
	if err := f.at.resolve(cmd); err != nil {
		return err
	}
	q, unknown := query.ParseQuery(text)
	if unknown != nil && (f.at.url == "" || f.container == "") {
		// An endpoint may know more of the dialect, if it need not be asked what FROM names.
		return &usageError{caret(text, unknown)}
	}
	params, err := parseParams(f.params)
	if err != nil {
		return err
	}
	switch {
	case f.id != "":
		return &usageError{errors.New("--id: a query says it itself, as in WHERE c.id = \"…\"")}
	case !slices.Contains(queryOutputs, f.output):
		return &usageError{fmt.Errorf("--output %s: %s is expected", f.output, strings.Join(queryOutputs, ", "))}
	}
	// Where the text could not be parsed q is nil, and --container names the container, so queried
	// does not look at q.
	err = a.withClient(cmd, &f.at, func(ctx context.Context, c client) error {
		ct, err := a.queried(ctx, c, q, f.container)
		if err != nil {
			return err
		}
		r := store.QueryRequest{Text: text, Params: params, RowsMax: store.QueryRowsMax}
		if f.key != "" {
			key, n, err := parsePrefix(f.key)
			if err != nil {
				return err
			}
			if levels := len(ct.Info().Spec.PartitionKey); n > levels {
				return wrongLevels(f.key, n, levels)
			}
			r.Key = key
		}
		if f.explain {
			r.Explain = true
			page, err := ct.Query(ctx, r)
			if err != nil {
				return err
			}
			return a.printExplain(&r, page, f.output)
		}
		return a.printQuery(ctx, ct, r, f)
	})
	if unknown != nil && errors.Is(err, store.ErrBadRequest) {
		return &usageError{fmt.Errorf("query: %w", err)}
	}
	return err
}

// queried returns the container of a query: the one that is named, else the one that
// FROM names, else the only one.
func (a *app) queried(ctx context.Context, c client, q *query.Query, named string) (container, error) {
	if named != "" {
		database, name := a.splitName(named)
		return c.Container(ctx, database, name)
	}
	if q.Container() != "" {
		ct, err := c.Container(ctx, a.database, q.Container())
		// FROM c is what most people write, and there is no container c: then it is only a name in
		// the query, and the one container of the database is meant.
		if !errors.Is(err, store.ErrNotFound) {
			return ct, err
		}
	}
	infos, err := c.Containers(ctx, a.database)
	if err != nil {
		return nil, err
	}
	if len(infos) == 1 {
		return c.Container(ctx, a.database, infos[0].Name)
	}
	names := make([]string, len(infos))
	for i := range infos {
		names[i] = infos[i].Name
	}
	what := "FROM names none"
	if q.Container() != "" {
		what = "there is no container " + q.Container()
	}
	return nil, bad("%s; name one with --container or in FROM: %s", what, strings.Join(names, ", "))
}

// parseParams reads name=json, or name=text where that is no JSON.
func parseParams(texts []string) (params []store.QueryParam, err error) {
	for _, text := range texts {
		name, value, ok := strings.Cut(strings.TrimPrefix(text, "@"), "=")
		if !ok || name == "" {
			return nil, &usageError{fmt.Errorf("--param %s: name=value is expected", text)}
		}
		raw := []byte(value)
		if !json.Valid(raw) {
			if raw, err = json.Marshal(value); err != nil {
				return nil, &usageError{fmt.Errorf("--param %s: %w", text, err)}
			}
		}
		params = append(params, store.QueryParam{Name: name, Value: raw})
	}
	return params, nil
}

// caret shows below the line of a query where it is wrong.
func caret(text string, err error) error {
	syntax, ok := errors.AsType[*query.SyntaxError](err)
	if !ok {
		return err
	}
	lines := strings.Split(text, "\n")
	if syntax.Line < 1 || syntax.Line > len(lines) {
		return err
	}
	line := strings.TrimRight(lines[syntax.Line-1], "\r")
	at := min(max(syntax.Column-1, 0), utf8.RuneCountInString(line))
	// Long lines are shown around the place.
	const before, after = 60, 20
	runes := []rune(line)
	start, end := max(0, at-before), min(len(runes), at+after)
	shown := strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		return r
	}, string(runes[start:end]))
	return fmt.Errorf("query: %w\n  %s\n  %s^", err, shown, strings.Repeat(" ", at-start))
}

// printExplain prints how a query would be answered. People read in two lines what the steps of
// the JSON say.
func (a *app) printExplain(r *store.QueryRequest, page *store.QueryPage, output string) error {
	if output == "json" || output == "yaml" {
		a.output = output
		if page.Partitions == 0 { // an endpoint tells no more
			return a.print(map[string]any{"access": page.Metrics.Access}, nil)
		}
		explained, err := inspect.Explain(r, page)
		if err != nil {
			return err
		}
		return a.print(explained, nil)
	}
	text := page.Metrics.Access + "\n"
	if page.Partitions > 0 {
		text += "asks " + format.Plural(page.Partitions, "partition", "partitions") + "\n"
	}
	_, err := io.WriteString(a.out, text)
	return err
}

// printQuery prints all rows of a query, page by page.
func (a *app) printQuery(ctx context.Context, ct container, r store.QueryRequest, f *queryFlags) error {
	out := newRowWriter(a.out, f.output)
	var total store.QueryMetrics
	rows := 0
	for {
		if f.limited {
			r.RowsMax = min(store.QueryRowsMax, f.limit-rows)
		}
		page, err := ct.Query(ctx, r)
		if err != nil {
			// The rows so far are printed: a query may fail after an hour.
			return errors.Join(out.flush(), err)
		}
		if err := out.writePage(page.Rows); err != nil {
			return err
		}
		rows += len(page.Rows)
		total.Items += page.Metrics.Items
		total.Entries += page.Metrics.Entries
		total.Time += page.Metrics.Time
		total.Access = page.Metrics.Access
		r.Continuation = page.Continuation
		if r.Continuation == "" || f.limited && rows >= f.limit {
			break
		}
	}
	if err := out.close(); err != nil {
		return err
	}
	return a.printCost(out, rows, &total, r.Continuation != "")
}

// printCost tells what out could not show and, to people, not programs, what the query took.
func (a *app) printCost(out *rowWriter, rows int, m *store.QueryMetrics, more bool) error {
	if left := out.withoutColumn; len(left) > 0 {
		fmt.Fprintf(a.err, "later rows have properties that no column was made for: %s; name them in SELECT\n", strings.Join(left, ", "))
	}
	if n := out.withoutCells; n > 0 {
		fmt.Fprintf(a.err, "rows that are no objects have no columns: %s empty; -o ndjson shows them\n", format.Plural(n, "later row is", "later rows are"))
	}
	if _, ok := terminal(a.err); !ok {
		return nil
	}
	_, err := io.WriteString(a.err, cost(rows, m, more)+"\n")
	return err
}

func cost(rows int, m *store.QueryMetrics, more bool) string {
	text := format.Plural(rows, "row", "rows")
	if more {
		text += ", and more"
	}
	if m.Access == "" { // an endpoint does not tell
		return text
	}
	return fmt.Sprintf("%s; %s; %s read in %.1f ms", text, m.Access, format.Plural(m.Items, "item", "items"), float64(m.Time.Microseconds())/1000)
}
