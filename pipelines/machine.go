package pipelines

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors"
)

// machine is what the processors of one generation share in this process: what
// its declaration was compiled to, and the sink of a projection. The first term
// that takes it makes it, and the last one that releases it closes it.
type machine struct {
	compile.Compiled
	key    machineKey
	record registry.Record
	users  int           // guarded by Supervisor.mu
	remade chan struct{} // closed when the declaration has changed

	wholeness wholeness
}

// machineKey tells apart what machines are made from.
type machineKey struct {
	id         string
	generation uint32
	form       string
}

// keyOf returns the key of the machine that a generation needs now, zero if it
// does not run. s.mu is held.
func (s *Supervisor) keyOf(id string, generation uint32) machineKey {
	rec, ok := s.records[id]
	if !ok {
		return machineKey{}
	}
	g := rec.GenerationRecord(generation)
	if g == nil {
		return machineKey{}
	}
	return machineKey{id, generation, g.Form()}
}

// take returns the machine of a resource. Callers release it.
func (s *Supervisor) take(resource processors.Resource) (*machine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.keyOf(resource.Pipeline, resource.Generation)
	if key == (machineKey{}) {
		return nil, fmt.Errorf("pipeline %s has no generation %d any more", resource.Pipeline, resource.Generation)
	}
	m := s.machines[key]
	if m == nil {
		whole := s.records[key.id]
		rec := whole.GenerationRecord(key.generation)
		b, gone := rec.Bound(s.containers)
		if gone != "" {
			return nil, fmt.Errorf("pipeline %s: container %s is gone", rec.Metadata(), gone)
		}
		c, err := compile.Pipeline(s.client, rec, &b, s.limits())
		if err != nil {
			return nil, err
		}
		m = &machine{Compiled: c, key: key, record: *rec, remade: make(chan struct{})}
		s.machines[key] = m
	}
	m.users++
	return m, nil
}

// release gives a machine back. The last one that uses it closes it.
func (s *Supervisor) release(ctx context.Context, m *machine) {
	s.mu.Lock()
	m.users--
	last := m.users == 0
	if last && s.machines[m.key] == m {
		delete(s.machines, m.key)
	}
	s.mu.Unlock()
	if !last {
		return
	}
	if err := m.Close(); err != nil {
		s.cfg.Logger.WarnContext(ctx, "a sink could not be closed", slog.String("pipeline", m.record.Metadata().String()), slog.Any("error", err))
	}
}

// task returns what to run under the lease of one of the machine's resources.
func (m *machine) task(resource processors.Resource) processors.Task {
	_, heads := m.record.Goals(resource)
	return processors.Task{
		Resource: resource, Processor: m.Processor(resource), Start: m.record.Begin(resource), BackfillTo: feed.LSN(heads),
		Rewinds: m.record.Rewinds, Halt: m.record.Spec.OnError == spec.Halt,
	}
}

// limits are those of processors and sinks.
func (s *Supervisor) limits() compile.Limits {
	return compile.Limits{Cascade: s.cfg.Cascade, Project: s.cfg.Project, Sinks: s.cfg.Sinks}
}
