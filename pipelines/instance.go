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
	"github.com/millrace/millrace/store"
)

// instance is what the processors of one generation share in this process: what
// its declaration was compiled to, and the sink of a projection. The first term
// that takes it makes it, and the last one that releases it closes it.
type instance struct {
	compile.Compiled
	key      instanceKey
	record   registry.Record
	source   *store.Container
	users    int           // guarded by Supervisor.mu
	replaced chan struct{} // closed when the declaration has changed, or a partition was split
	// partitions are those of the containers that it is about.
	partitions []feed.Partition

	wholeness wholeness
}

// instanceKey tells apart what instances are made from.
type instanceKey struct {
	id          string
	generation  uint32
	fingerprint string
}

// keyOf returns the key of the instance that a generation needs now, zero if it
// does not run. s.mu is held.
func (s *Supervisor) keyOf(id string, generation uint32) instanceKey {
	rec, ok := s.records[id]
	if !ok {
		return instanceKey{}
	}
	g := rec.GenerationRecord(generation)
	if g == nil {
		return instanceKey{}
	}
	return instanceKey{id, generation, g.Fingerprint()}
}

// acquire returns the instance of a resource. Callers release it.
func (s *Supervisor) acquire(resource processors.Resource) (*instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Under the lock from the look for the instance to the counting of its user:
	// two terms that begin at once share one, and the last release of another
	// cannot close it in between. Sinks are opened later, by the terms that write.
	key := s.keyOf(resource.Pipeline, resource.Generation)
	if key == (instanceKey{}) {
		return nil, fmt.Errorf("pipeline %s has no generation %d any more", resource.Pipeline, resource.Generation)
	}
	m := s.instances[key]
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
		source, err := s.client.Open(*b.Source)
		if err != nil {
			return nil, err
		}
		m = &instance{Compiled: c, key: key, record: *rec, source: source, replaced: make(chan struct{}), partitions: partitionsOf(&b)}
		s.instances[key] = m
	}
	m.users++
	return m, nil
}

// release gives an instance back. The last one that uses it closes it.
func (s *Supervisor) release(ctx context.Context, m *instance) {
	s.mu.Lock()
	m.users--
	last := m.users == 0
	// It may have been replaced already, by one of the same key even: a
	// declaration that was changed and changed back.
	if last && s.instances[m.key] == m {
		delete(s.instances, m.key)
	}
	s.mu.Unlock()
	if !last {
		return
	}
	if err := m.Close(); err != nil {
		s.cfg.Logger.WarnContext(ctx, "a sink could not be closed", slog.String("pipeline", m.record.Metadata().String()), slog.Any("error", err))
	}
}

// task returns what to run under the lease of one of the instance's resources.
func (m *instance) task(resource processors.Resource) processors.Task {
	_, heads := m.record.Goals(resource)
	var walk *processors.Walk
	if w := m.record.WalkOf(resource); w != nil {
		source := m.source.Info()
		walk = &processors.Walk{Container: m.source, Snapshot: w.Snapshot, LSN: w.LSN, Items: w.Items, ByHand: m.record.ByHand(&source)}
	}
	return processors.Task{
		Walk: walk, Resource: resource, Processor: m.Processor(resource), Start: m.record.Begin(resource), BackfillTo: feed.LSN(heads),
		Rewinds: m.record.Rewinds, Halt: m.record.Spec.OnError == spec.Halt,
	}
}

// limits are those of processors and sinks.
func (s *Supervisor) limits() compile.Limits {
	return compile.Limits{Cascade: s.cfg.Cascade, Project: s.cfg.Project, Sinks: s.cfg.Sinks}
}
