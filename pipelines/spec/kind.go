package spec

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/feed/document"
)

// PipelineKind is what a pipeline does with its source.
type PipelineKind string

// The kinds of pipelines.
const (
	CascadeKind   PipelineKind = "cascade"
	AggregateKind PipelineKind = "aggregate"
	ProjectKind   PipelineKind = "project"
)

// Kind returns what the pipeline does, "" for a spec that says nothing.
func (s *PipelineSpec) Kind() PipelineKind {
	switch {
	case s.Cascade != nil:
		return CascadeKind
	case s.Aggregate != nil:
		return AggregateKind
	case s.Project != nil:
		return ProjectKind
	}
	return ""
}

// Target is the name of the container that holds the copies, "" if there is none.
func (s *PipelineSpec) Target() string {
	switch {
	case s.Cascade != nil:
		return s.Cascade.Into
	case s.Aggregate != nil:
		return s.Aggregate.Into
	}
	return ""
}

// Tables are the names of the containers that hold the rows of a projection, in
// the order of its tables, and last the one for rejects if there is one; none
// unless its sink is of containers.
func (s *PipelineSpec) Tables() []string {
	if s.Project == nil || s.Project.Sink.Container == nil {
		return nil
	}
	names := make([]string, len(s.Project.Tables))
	for i := range s.Project.Tables {
		names[i] = s.Project.Tables[i].Name
	}
	if rejects := s.Project.Sink.Container.Rejects; rejects != "" {
		names = append(names, rejects)
	}
	return names
}

// Containers are the names of all containers that the pipeline reads or writes.
func (s *PipelineSpec) Containers() []string {
	names := append([]string{s.Source.Container}, s.Tables()...)
	if target := s.Target(); target != "" {
		names = append(names, target)
	}
	return names
}

// Keeps says in a few words what the pipeline keeps, such as "cascade into product,
// each of tags".
func (s *PipelineSpec) Keeps() string {
	switch s.Kind() {
	case CascadeKind:
		return "cascade into " + s.Cascade.Into + eachOf(s.Cascade.Each)
	case AggregateKind:
		return string(s.Aggregate.Consistency) + " aggregate into " + s.Aggregate.Into + eachOf(s.Aggregate.Each)
	case ProjectKind:
		tables := "1 table"
		if n := len(s.Project.Tables); n != 1 {
			tables = fmt.Sprintf("%d tables", n)
		}
		return fmt.Sprintf("%s in %s %s", tables, s.Project.Sink.Kind(), s.Project.Sink.Where(s.Project))
	}
	return ""
}

func eachOf(array document.Field) string {
	if array.IsZero() {
		return ""
	}
	return ", each of " + array.String()
}

// Destination says where a pipeline writes to: the container of its target, or the
// place of its sink.
func (s *PipelineSpec) Destination() string {
	if s.Project != nil {
		return s.Project.Sink.Where(s.Project)
	}
	return s.Target()
}

// Kind says what holds the rows: container, parquet or postgres; "" for a sink that
// says nothing.
func (s *Sink) Kind() string {
	switch {
	case s.Container != nil:
		return "container"
	case s.Parquet != nil:
		return "parquet"
	case s.Postgres != nil:
		return "postgres"
	}
	return ""
}

// Where says where the rows of p, whose sink it is, are: containers, a directory, a
// bucket, or the variable that holds a connection string and the schema.
func (s *Sink) Where(p *Project) string {
	switch {
	case s.Container != nil:
		return strings.Join((&PipelineSpec{Project: p}).Tables(), ", ")
	case s.Parquet != nil && s.Parquet.S3 != nil:
		return "s3://" + path.Join(s.Parquet.S3.Bucket, s.Parquet.S3.Prefix)
	case s.Parquet != nil:
		return ShownDirectory(s.Parquet.Path)
	case s.Postgres != nil:
		return "$" + s.Postgres.DSNEnv + " " + s.Postgres.Schema
	}
	return ""
}

// Directory returns the directory of a pipeline's files as it is declared, "" if it has
// none.
func (s *PipelineSpec) Directory() string {
	if s.Project == nil || s.Project.Sink.Parquet == nil {
		return ""
	}
	return s.Project.Sink.Parquet.Path
}

// In returns s, which has a directory, with another one.
func (s *PipelineSpec) In(directory string) PipelineSpec {
	other := s.Clone()
	other.Project.Sink.Parquet.Path = directory
	return other
}

// ShownDirectory returns a directory as people read it: one that is not absolute could
// be taken for another name.
func ShownDirectory(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return "./" + filepath.ToSlash(filepath.Clean(path))
}
