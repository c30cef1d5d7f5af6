package compile

import (
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors/project"
)

// NewSink returns the sink of files or of PostgreSQL that a record declares.
func NewSink(rec *registry.Record, limits *SinkLimits) (project.Sink, error) {
	return newSink(nil, rec, nil, limits)
}
