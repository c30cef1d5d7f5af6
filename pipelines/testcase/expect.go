package testcase

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/plan"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store"
)

// expectItems compares the items that a step expects with those that are there.
func (run *testRun) expectItems(ctx context.Context, step *spec.TestStep) error {
	err := run.eachItem(ctx, step.Expect, func(name string, item *spec.TestItem, is []byte) {
		if is == nil {
			run.fail(item.Path, Failure{What: name, Message: "it is not there"})
			return
		}
		m := matcher{run: run, exact: step.Exact, at: item.Path}
		m.object(nil, item.Body, is)
		if len(m.found) > 0 {
			run.fail(item.Path, Failure{What: name, Differences: m.found})
		}
	})
	if err != nil {
		return err
	}
	return run.eachItem(ctx, step.Absent, func(name string, item *spec.TestItem, is []byte) {
		if is != nil {
			run.fail(item.Path, Failure{What: name, Message: "it is there", Item: bytes.Clone(is)})
		}
	})
}

// eachItem reads items and calls visit with each, and what it is, nil if it is not
// there.
func (run *testRun) eachItem(ctx context.Context, items spec.TestItems, visit func(name string, item *spec.TestItem, is []byte)) error {
	for i := range items {
		c, err := run.client.Container(ctx, run.database, items[i].Container)
		if err != nil {
			return err
		}
		refs := make([]store.ItemRef, len(items[i].Items))
		for j := range refs {
			body := items[i].Items[j].Body
			refs[j].ID, _ = document.ID(body)
			if refs[j].Key, err = c.KeyOf(body); err != nil {
				return err
			}
		}
		// With the barrier: every append that is in flight is resolved and applied before.
		found, err := c.ReadMany(ctx, refs, true)
		if err != nil {
			return err
		}
		for j := range found {
			var is []byte
			if found[j].ETag != (store.ETag{}) {
				is = found[j].Body
			}
			visit(items[i].Container+" "+refs[j].String(), &items[i].Items[j], is)
		}
	}
	return nil
}

// matcher compares an item or a row with what is expected of it.
type matcher struct {
	run   *testRun
	exact bool
	at    string // path of the expected one in the test
	found []Difference
}

// object compares objects. Names that begin with _ in the item itself are the store's
// and the sinks', and are only looked at if they are written.
func (m *matcher) object(path document.Path, want, is []byte) {
	document.Members(want, func(name, raw []byte) bool {
		step := document.Path{{Name: string(name)}}
		has, _ := document.Get(is, step)
		m.value(append(slices.Clip(path), step...), raw, has)
		return true
	})
	if !m.exact {
		return
	}
	document.Members(is, func(name, raw []byte) bool {
		step := document.Path{{Name: string(name)}}
		if _, ok := document.Get(want, step); !ok && (len(path) > 0 || !strings.HasPrefix(string(name), "_")) {
			m.differs(append(slices.Clip(path), step...), nil, raw)
		}
		return true
	})
}

func (m *matcher) value(path document.Path, want, is []byte) {
	kind := document.KindOf(want)
	switch {
	// Before the case of what is not there: an expected null is content with that.
	case kind == document.Null && (is == nil || document.KindOf(is) == document.Null):
	case is == nil:
		m.differs(path, want, nil)
	case kind == document.Object && document.KindOf(is) == document.Object:
		m.object(path, want, is)
	case kind == document.Array && document.KindOf(is) == document.Array:
		a, b := plan.Elements(want), plan.Elements(is)
		// The arrays are shown as a whole. With one element more at the front, every element behind
		// it would be told of as wrong.
		if len(a) != len(b) {
			m.differs(path, want, is)
			return
		}
		for i := range a {
			m.value(append(slices.Clip(path), document.Step{Index: i, IsIndex: true}), a[i], b[i])
		}
	case !document.Equal(want, is):
		m.differs(path, want, is)
	}
}

func (m *matcher) differs(path document.Path, want, is []byte) {
	place := m.run.test.At(spec.Join(m.at, path.String()))
	m.found = append(m.found, Difference{Path: path.String(), Place: place.String(), Want: bytes.Clone(want), Is: bytes.Clone(is)})
}

// expectRows compares the rows that a step expects with those of the sinks.
func (run *testRun) expectRows(ctx context.Context, step *spec.TestStep) error {
	for i := range step.ExpectRows {
		t := &step.ExpectRows[i]
		rows, schema, err := run.rowsOf(ctx, t)
		if err != nil {
			return fmt.Errorf("rows of pipeline %s: %w", t.Pipeline, err)
		}
		run.compareRows(t, schema, rows, step.Exact)
	}
	return nil
}

// rowsOf reads the rows of a table as JSON.
func (run *testRun) rowsOf(ctx context.Context, t *spec.TestTable) (rows [][]byte, schema *project.TableSchema, err error) {
	world, err := run.registry.World(ctx)
	if err != nil {
		return nil, nil, err
	}
	// A sink of its own for each reading: that of the worker writes. It finds what was committed
	// last, and the pipeline is at rest.
	rec, err := run.registry.Get(ctx, run.database, t.Pipeline)
	if err != nil {
		return nil, nil, err
	}
	b, gone := rec.Bound(world.Containers)
	if gone != "" {
		return nil, nil, &store.NoContainerError{Database: run.database, Name: gone}
	}
	p, err := compile.Projection(run.client, &rec, &b, compile.Limits{})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, p.Sink().Close()) }()
	reader, ok := p.Sink().(project.Reader)
	if !ok {
		return nil, nil, errors.New("its sink cannot be read")
	}
	// CheckTests has found the table in the declaration, so it is there.
	table := slices.IndexFunc(p.Schema().Tables, func(s project.TableSchema) bool { return s.Name == t.Table })
	schema = &p.Schema().Tables[table]
	for row, err := range reader.Rows(ctx, p.Schema(), table) {
		if err != nil {
			return nil, nil, err
		}
		rows = append(rows, schema.AppendRow(nil, row.Values))
	}
	return rows, schema, nil
}

// compareRows compares rows, which are matched by their keys.
func (run *testRun) compareRows(t *spec.TestTable, schema *project.TableSchema, rows [][]byte, exact bool) {
	// name tells whether two keys are the same, however their numbers are written; key is shown
	// to people.
	keyOf := func(row []byte) (name string, key []byte) {
		var form []byte
		key = []byte{'['}
		for i, column := range schema.Key {
			raw, _ := document.Get(row, document.Path{{Name: schema.Columns[column].Name}})
			if i > 0 {
				key = append(key, ',')
			}
			key, form = append(key, raw...), document.AppendCanonical(form, raw)
		}
		return string(form), append(key, ']')
	}
	left := map[string][]byte{}
	var order []string
	for _, row := range rows {
		name, _ := keyOf(row)
		left[name] = row
		order = append(order, name)
	}
	for i := range t.Rows {
		want := &t.Rows[i]
		name, key := keyOf(want.Body)
		what := fmt.Sprintf("table %s row %s", t.Table, key)
		is, ok := left[name]
		if !ok {
			run.fail(want.Path, Failure{What: what, Message: "it is not there"})
			continue
		}
		delete(left, name)
		m := matcher{run: run, exact: exact, at: want.Path}
		m.object(nil, want.Body, is)
		if len(m.found) > 0 {
			run.fail(want.Path, Failure{What: what, Differences: m.found})
		}
	}
	// Sorted, for sinks tell rows in any order, and a failure is to read the same each time.
	slices.Sort(order)
	for _, name := range order {
		if row, ok := left[name]; ok {
			_, key := keyOf(row)
			run.fail(t.Path, Failure{What: fmt.Sprintf("table %s row %s", t.Table, key), Message: "it is not expected", Item: row})
		}
	}
}
