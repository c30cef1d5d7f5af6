package status

import (
	"context"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/pipelines/internal/roots"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors"
)

// newSinkStatus says what sink a projection has; nil for another pipeline.
func newSinkStatus(s *spec.PipelineSpec) *Sink {
	if s.Project == nil {
		return nil
	}
	return &Sink{Kind: s.Project.Sink.Kind(), Where: s.Project.Sink.Where(s.Project)}
}

// addReader adds what one reader finds: what fails under way is in its checkpoint, what fails
// before there is one, such as the opening of the sink, in its lease. The worst is shown.
func (s *Sink) addReader(w *watched) {
	attempts, text, since := 0, "", int64(0)
	switch cp := w.checkpoint; {
	case w.resource.Role != processors.RoleSource:
	case cp.Attempts > 0:
		attempts, text, since = cp.Attempts, cp.LastError, cp.Since
	case w.lease != nil && w.lease.Attempts > 0:
		attempts, text = w.lease.Attempts, w.lease.LastError
	}
	if attempts > s.Attempts {
		s.Attempts, s.Error, s.Since = attempts, text, time.Time{}
		if since > 0 {
			s.Since = time.UnixMilli(since).UTC()
		}
	}
	s.Rejected = append(s.Rejected, w.checkpoint.Rejected...)
}

// locate puts into s where the files of pipelines are whose directory is relative, if it is the
// same for all workers. What cannot be read now stays as declared.
func (m *Monitor) locate(ctx context.Context, s *Status, records []registry.Record) {
	var firsts []string
	for i := range records {
		path := records[i].Spec.Directory()
		if path == "" || filepath.IsAbs(path) {
			continue
		}
		if firsts == nil {
			workers, err := roots.Workers(ctx, m.js, m.registry.KV)
			if err != nil || len(workers) == 0 {
				return
			}
			firsts = registry.FirstRoots(workers, "")
		}
		if at, err := roots.Below(firsts, path); err == nil && len(firsts) == 1 {
			s.Pipelines[i].Target, s.Pipelines[i].Sink.Where = at, at
		}
	}
}
