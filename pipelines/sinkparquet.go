package pipelines

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
)

// newParquetSink returns a sink of files in a directory or a bucket.
//
//nolint:contextcheck,nolintlint // a sink outlives whoever asks for it; the linter reads this and does not say so
func newParquetSink(spec *ParquetSink, cfg parquetsink.Config) (project.Sink, error) {
	// The projection gathers rows for the interval that is declared; what the sink
	// adds, so that commits of several readers fall together, is not to make it longer.
	if declared := time.Duration(spec.CommitInterval); declared > 0 {
		cfg.CommitInterval = min(declared, cmp.Or(cfg.CommitInterval, time.Second))
	}
	if spec.S3 == nil {
		return parquetsink.New(parquetsink.NewDir(spec.Path), cfg)
	}
	s3 := parquetsink.S3Config{
		Endpoint: spec.S3.Endpoint, Bucket: spec.S3.Bucket, Prefix: spec.S3.Prefix, Region: spec.S3.Region,
		Insecure: spec.S3.Secure != nil && !*spec.S3.Secure, AccessKeyEnv: spec.S3.AccessKeyEnv, SecretKeyEnv: spec.S3.SecretKeyEnv,
	}
	bucket, err := parquetsink.NewS3(s3)
	if err != nil {
		return nil, err
	}
	return parquetsink.New(bucket, cfg)
}

// absolute returns r with the directories of Parquet sinks made absolute: whoever
// opens them later, a worker or a command that verifies, runs elsewhere.
func (r *Resources) absolute() (*Resources, error) {
	same := *r
	same.Pipelines = slices.Clone(r.Pipelines)
	for i := range same.Pipelines {
		p := &same.Pipelines[i]
		if p.Spec.Project == nil || p.Spec.Project.Sink.Parquet == nil || p.Spec.Project.Sink.Parquet.Path == "" {
			continue
		}
		path, err := filepath.Abs(p.Spec.Project.Sink.Parquet.Path)
		if err != nil {
			return nil, fmt.Errorf("pipeline %s: the directory %s: %w", p.Metadata, p.Spec.Project.Sink.Parquet.Path, err)
		}
		p.Spec = p.Spec.clone()
		p.Spec.Project.Sink.Parquet.Path = path
	}
	return &same, nil
}
