package project

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// askMax bounds the partitions that a container sink asks or writes at a time.
const askMax = 8

// ContainerSink keeps the rows of each table as items of a container.
//
// An item has a member for each column that is not Null, as Value.AppendJSON
// writes it; id, made of the key; _source, and _element in a table with each. The
// partition key of the container must be columns of the key, so that a row that is
// gone can be found; the id is made of the other columns of the key.
//
// Every physical partition of a container keeps, with the rows, how far each
// source partition has come, so a crash repeats nothing. Rows that cannot be are
// items of the container for rejects, if there is one; otherwise they are counted,
// and status shows the last. The store keeps pending rows beside the others.
//
// A container cannot take the place of another: rows of a shadow generation are
// written over those of the one before, and Swap does nothing. Rows that the
// generation does not make are found by a verification.
//
// It is safe for concurrent use.
type ContainerSink struct {
	tables  map[string]*store.Container
	rejects *store.Container
	shapes  sync.Map // of *TableSchema: *shape
}

// NewContainerSink returns a sink that keeps the rows of each table in a
// container, and rejects in the container rejects, which may be nil.
func NewContainerSink(tables map[string]*store.Container, rejects *store.Container) *ContainerSink {
	return &ContainerSink{tables: tables, rejects: rejects}
}

// Close does nothing.
func (s *ContainerSink) Close() error { return nil }

// Swap does nothing: see ContainerSink.
func (s *ContainerSink) Swap(context.Context, *Schema) error { return nil }

// Check returns what keeps the tables of a schema from being containers.
func (s *ContainerSink) Check(schema *Schema) []Problem {
	var problems []Problem
	for i := range schema.Tables {
		t := &schema.Tables[i]
		c, ok := s.tables[t.Name]
		if !ok {
			problems = append(problems, Problem{
				Field:   "project.tables." + t.Name,
				Message: "has no container; each table is kept in the container of its name: declare it",
			})
			continue
		}
		problems = append(problems, checkShape(t, c)...)
	}
	if s.rejects != nil {
		for _, path := range s.rejects.Info().Spec.PartitionKey {
			if !slices.Contains(rejectKeys, path) {
				problems = append(problems, Problem{
					Field: "project.sink",
					Message: fmt.Sprintf("has the container %s for rejects with the partition key %s; rejects have %s",
						s.rejects.Info().Name, path, rejectKeys),
				})
			}
		}
	}
	return problems
}

// CannotHold refuses a row whose key cannot be an id or a partition key, or which
// is too large for an item.
func (s *ContainerSink) CannotHold(schema *Schema, r *Row) (column, reason string) {
	sh, err := s.shape(&schema.Tables[r.Table])
	if err != nil {
		return "", err.Error()
	}
	ref, err := sh.ref(r.Key)
	if err == nil {
		err = document.CheckNewID(ref.ID) // ref has looked at the rest
	}
	if err != nil {
		return "", err.Error()
	}
	if rowBytes(r) > store.ItemBytesMax/6 { // an escaped byte takes six
		if n := len(sh.body(r)); n > store.ItemBytesMax {
			return "", fmt.Sprintf("has %d bytes as an item; at most %d are allowed", n, store.ItemBytesMax)
		}
	}
	return "", ""
}

// Open begins a term in every partition of the containers.
func (s *ContainerSink) Open(ctx context.Context, schema *Schema, t Term) (Writer, feed.Position, error) {
	w := &containerWriter{term: t, schema: schema, rejects: s.rejects}
	all := make([]*store.Container, 0, len(schema.Tables)+1)
	for i := range schema.Tables {
		sh, err := s.shape(&schema.Tables[i])
		if err != nil {
			return nil, feed.Position{}, err
		}
		w.shapes = append(w.shapes, sh)
		all = append(all, sh.container)
	}
	if s.rejects != nil {
		all = append(all, s.rejects)
	}
	w.parts = map[feed.Partition]*containerPart{}
	for _, c := range all {
		for _, p := range c.Partitions() {
			if w.parts[p] == nil {
				w.parts[p] = &containerPart{container: c, partition: p}
				w.order = append(w.order, p)
			}
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(askMax)
	for _, part := range w.parts {
		g.Go(func() error { return part.begin(gctx, &w.term) })
	}
	if err := g.Wait(); err != nil {
		return nil, feed.Position{}, err
	}
	// The furthest, not the least: to a part that was left behind nothing was sent because
	// nothing was its own, or a batch was cut off, which comes again as a whole.
	for _, part := range w.parts {
		if w.recorded.Before(part.position) {
			w.recorded = part.position
		}
	}
	return w, w.recorded, nil
}

// shape returns how the rows of a table are items.
func (s *ContainerSink) shape(t *TableSchema) (*shape, error) {
	if sh, ok := s.shapes.Load(t); ok {
		return sh.(*shape), nil
	}
	sh, err := shapeOf(t, s.tables[t.Name])
	if err == nil {
		s.shapes.Store(t, sh)
	}
	return sh, err
}

// Keeps says that the sink keeps rejects only with a container for them, and pending rows
// in any case.
func (s *ContainerSink) Keeps() (rejects, pending bool) { return s.rejects != nil, true }
