package pipelines

import (
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/processors"
)

// destination says where a pipeline writes to: the container of its target, or the
// place of its sink.
func (s *PipelineSpec) destination() string {
	if sink := newSinkStatus(s); sink != nil {
		return sink.Where
	}
	return s.target()
}

// newSinkStatus says what sink a projection has; nil for another pipeline.
func newSinkStatus(s *PipelineSpec) *SinkStatus {
	if s.Project == nil {
		return nil
	}
	sink := &s.Project.Sink
	switch {
	case sink.Container != nil:
		return &SinkStatus{Kind: "container", Where: strings.Join(s.tables(), ", ")}
	case sink.Parquet != nil && sink.Parquet.S3 != nil:
		return &SinkStatus{Kind: "parquet", Where: "s3://" + path.Join(sink.Parquet.S3.Bucket, sink.Parquet.S3.Prefix)}
	case sink.Parquet != nil:
		return &SinkStatus{Kind: "parquet", Where: shownDirectory(sink.Parquet.Path)}
	case sink.Postgres != nil:
		return &SinkStatus{Kind: "postgres", Where: "$" + sink.Postgres.DSNEnv + " " + sink.Postgres.Schema}
	}
	return &SinkStatus{}
}

// shownDirectory returns a directory as people read it: one that is not absolute could
// be taken for another name.
func shownDirectory(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return "./" + filepath.ToSlash(filepath.Clean(path))
}

// add takes in what one reader finds.
func (s *SinkStatus) add(w *watched) {
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
