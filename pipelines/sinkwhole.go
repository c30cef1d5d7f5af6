package pipelines

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/internal/roots"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
)

// wholeInterval is the time between two looks at whether a directory holds what all
// workers have written.
const wholeInterval = 5 * time.Second

// DividedError says that a directory lacks what the checkpoints of its pipeline say was
// written: the workers do not all see the same files under that name, or files were
// removed or restored older.
type DividedError struct {
	Directory string
	Pipeline  string
	// Partition is the source partition whose changes up to Written are in the files
	// of some worker, and up to Here in those that this one sees.
	Partition     feed.Partition
	Written, Here feed.Position
}

func (e *DividedError) Error() string {
	return fmt.Sprintf("the directory %s has recorded the changes of %s up to %s, and they were written up to %s: not all workers see the same files there, or they were removed or restored older; "+
		"let all workers have one disk there, or write s3: {bucket: ...} instead of path, and fill it again with millrace rewind %s",
		e.Directory, e.Partition, e.Here, e.Written, e.Pipeline)
}

// wholeness remembers, for all processors of a instance, when its directory was looked
// at last, and what was found.
type wholeness struct {
	mu    sync.Mutex
	at    time.Time
	found error
}

// checkWhole returns *DividedError if the directory of a instance's files lacks what another
// worker has written. Each processor sees by itself that its own changes are there;
// those of the others are seen here, for two workers with disks of their own would
// each find their half whole.
func (s *Supervisor) checkWhole(ctx context.Context, m *instance) error {
	if m.record.Spec.Directory() == "" {
		return nil
	}
	m.wholeness.mu.Lock()
	defer m.wholeness.mu.Unlock()
	if time.Since(m.wholeness.at) < wholeInterval {
		return m.wholeness.found
	}
	found, err := s.findDivided(ctx, m)
	if err != nil {
		return nil // what cannot be read now is read at the next look; the writer tells what ails the directory
	}
	m.wholeness.at, m.wholeness.found = time.Now(), found
	return found
}

func (s *Supervisor) findDivided(ctx context.Context, m *instance) (found, err error) {
	// The checkpoints first: what they say was in the files before they said it.
	at, unreadable, err := registry.ReadCheckpoints(ctx, s.registry.JetStream, s.cfg.Bucket)
	if err := errors.Join(err, unreadable); err != nil {
		return nil, err
	}
	reader, ok := m.Projection.Sink().(project.Reader)
	if !ok {
		return nil, nil
	}
	recorded, err := reader.Positions(ctx, m.Projection.Schema())
	if err != nil {
		return nil, err
	}
	for _, partition := range m.Projection.Source().Partitions() {
		cp := at.Of(&m.record, processors.RoleSource, partition)
		if cp.Rewinds < m.record.Rewinds {
			continue // it is to be filled again
		}
		source := m.Projection.Resource(partition).Producer().Source
		if is := recorded[source]; is.Before(cp.Recorded) && s.isNewest(m) {
			directory, err := roots.Below(s.cfg.Sinks.Roots, m.record.Spec.Directory())
			if err != nil {
				return nil, err
			}
			return &DividedError{
				Directory: directory, Pipeline: m.record.Name, Partition: partition, Written: cp.Recorded, Here: is,
			}, nil
		}
	}
	return nil, nil
}

// isNewest says whether a instance's generation is still its pipeline's newest: the files
// of one before it are taken away when another takes its place.
func (s *Supervisor) isNewest(m *instance) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[m.key.id].Generation == m.key.generation
}

// watchWhole ends with *DividedError when the directory of a instance's files is found
// to lack something, and with nil when ctx ends.
func (s *Supervisor) watchWhole(ctx context.Context, m *instance) error {
	ticker := time.NewTicker(wholeInterval)
	defer ticker.Stop()
	for {
		if err := s.checkWhole(ctx, m); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
