package sinktest

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
)

// Disk is where Memory sinks keep what is durable: it outlives them. Safe for
// concurrent use.
type Disk struct {
	mu        sync.Mutex
	epochs    map[feed.Producer]uint64
	positions map[feed.Producer]feed.Position
	tables    map[uint32]*tables // by generation
	schemas   map[uint32]*project.Schema
	live      uint32 // the generation that readers see; 0 for none yet
}

// NewDisk returns an empty Disk.
func NewDisk() *Disk {
	return &Disk{
		epochs: map[feed.Producer]uint64{}, positions: map[feed.Producer]feed.Position{},
		tables: map[uint32]*tables{}, schemas: map[uint32]*project.Schema{},
	}
}

// Memory is a project.Sink on a Disk.
type Memory struct {
	disk   *Disk
	buffer bool
	// Fail is asked before each open, write and flush; an error of it is that of the
	// sink. May be nil.
	Fail func(step string) error
}

// NewMemory returns a sink that writes through to disk or, with buffer, at
// Flush.
func NewMemory(disk *Disk, buffer bool) *Memory { return &Memory{disk: disk, buffer: buffer} }

func (m *Memory) failAt(step string) error {
	if m.Fail == nil {
		return nil
	}
	return m.Fail(step)
}

// Close does nothing.
func (m *Memory) Close() error { return nil }

// Open begins a term.
func (m *Memory) Open(_ context.Context, s *project.Schema, t project.Term) (project.Writer, feed.Position, error) {
	if err := m.failAt("open"); err != nil {
		return nil, feed.Position{}, err
	}
	d := m.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.openGeneration(s); err != nil {
		return nil, feed.Position{}, err
	}
	if err := d.fence(t); err != nil {
		return nil, feed.Position{}, err
	}
	d.epochs[t.Producer] = t.Epoch
	return &memoryWriter{m: m, term: t, taken: d.positions[t.Producer]}, d.positions[t.Producer], nil
}

// openGeneration makes the tables of a generation, or the columns that it has gained.
func (d *Disk) openGeneration(s *project.Schema) error {
	switch {
	case d.tables[s.Generation] != nil:
		if former := d.schemas[s.Generation]; width(s) > width(former) {
			d.tables[s.Generation] = d.tables[s.Generation].evolve(former, s)
			break
		}
		return nil
	case s.Generation < d.newest(): // live, or a shadow
		return fmt.Errorf("generation %d has been succeeded: %w", s.Generation, processors.ErrFenced)
	case d.live == 0:
		d.tables[s.Generation], d.live = newTables(), s.Generation
	case s.Shadow:
		// A shadow that was given up goes.
		maps.DeleteFunc(d.tables, func(old uint32, _ *tables) bool { return old != d.live })
		d.tables[s.Generation] = newTables()
	default:
		d.tables[s.Generation] = d.tables[d.live].evolve(d.schemas[d.live], s)
		d.makeLive(s.Generation)
	}
	d.schemas[s.Generation] = s
	return nil
}

// newest returns the newest generation that has tables, 0 if there is none.
func (d *Disk) newest() (generation uint32) {
	for g := range d.tables {
		generation = max(generation, g)
	}
	return generation
}

// width counts the columns of all tables: a schema with more of them is a later one
// of its generation, to which they were added.
func width(s *project.Schema) (columns int) {
	for i := range s.Tables {
		columns += len(s.Tables[i].Columns)
	}
	return columns
}

// makeLive makes a generation the one that readers see.
func (d *Disk) makeLive(generation uint32) {
	d.live = generation
	for old := range d.tables {
		if old < generation {
			delete(d.tables, old)
		}
	}
}

func (d *Disk) fence(t project.Term) error {
	switch {
	case d.tables[t.Producer.Generation] == nil:
		return fmt.Errorf("generation %d has been succeeded: %w", t.Producer.Generation, processors.ErrFenced)
	case d.epochs[t.Producer] > t.Epoch:
		return fmt.Errorf("epoch %d of %s: %w", t.Epoch, t.Producer, &processors.FencedError{Seen: d.epochs[t.Producer]})
	}
	return nil
}

// Swap makes a shadow generation the one that readers see.
func (m *Memory) Swap(_ context.Context, s *project.Schema) error {
	d := m.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.live == s.Generation:
		return nil
	case d.newest() > s.Generation:
		return fmt.Errorf("generation %d has begun: %w", d.newest(), project.ErrGivenUp)
	case d.tables[s.Generation] == nil:
		return fmt.Errorf("generation %d has not been opened", s.Generation)
	}
	d.makeLive(s.Generation)
	return nil
}

type memoryWriter struct {
	m       *Memory
	term    project.Term
	taken   feed.Position
	batches []*project.Batch
}

func (w *memoryWriter) Write(_ context.Context, b *project.Batch) (project.Written, error) {
	if err := w.m.failAt("write"); err != nil {
		return project.Written{}, err
	}
	d := w.m.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fence(w.term); err != nil {
		return project.Written{}, err
	}
	recorded := d.positions[w.term.Producer]
	switch {
	case w.taken.Before(b.After):
		return project.Written{}, fmt.Errorf("%w: %s, taken is %s", project.ErrPosition, b.After, w.taken)
	case !w.taken.Before(b.UpTo):
		return project.Written{Durable: recorded, Skipped: true}, nil
	}
	w.taken = b.UpTo
	if w.m.buffer {
		w.batches = append(w.batches, b)
		return project.Written{Durable: recorded}, nil
	}
	pending := d.tables[w.term.Producer.Generation].apply(b)
	d.positions[w.term.Producer] = b.UpTo
	return project.Written{Durable: b.UpTo, Pending: pending}, nil
}

func (w *memoryWriter) Flush(context.Context) (feed.Position, error) {
	if err := w.m.failAt("flush"); err != nil {
		return feed.Position{}, err
	}
	d := w.m.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fence(w.term); err != nil {
		return feed.Position{}, err
	}
	for _, b := range w.batches {
		d.tables[w.term.Producer.Generation].apply(b)
	}
	w.batches = nil
	d.positions[w.term.Producer] = w.taken
	return w.taken, nil
}

func (w *memoryWriter) Close() error { return nil }

// read returns a copy of what a generation has.
func (m *Memory) read(s *project.Schema) *tables {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	if t := m.disk.tables[s.Generation]; t != nil {
		return t.clone()
	}
	return newTables()
}

// Rows yields the rows of a table.
func (m *Memory) Rows(_ context.Context, s *project.Schema, table int) iter.Seq2[project.Row, error] {
	return func(yield func(project.Row, error) bool) {
		for _, r := range m.read(s).rows {
			if r.Table == table && !yield(r, nil) {
				return
			}
		}
	}
}

// Rejects yields the rejects of a table.
func (m *Memory) Rejects(_ context.Context, s *project.Schema, table int) iter.Seq2[project.Reject, error] {
	return func(yield func(project.Reject, error) bool) {
		t := m.read(s)
		for _, r := range append(slices.Collect(maps.Values(t.rejects)), t.pendingRejects(s)...) {
			if r.Table == table && !yield(r, nil) {
				return
			}
		}
	}
}

// Positions returns the positions of a generation's producers.
func (m *Memory) Positions(_ context.Context, s *project.Schema) (map[string]feed.Position, error) {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	positions := map[string]feed.Position{}
	for producer, position := range m.disk.positions {
		if producer.Generation == s.Generation {
			positions[producer.Source] = position
		}
	}
	return positions, nil
}
