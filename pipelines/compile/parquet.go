package compile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/pipelines/internal/roots"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/store/s3"
)

// newParquetSink returns a sink of files in a directory or a bucket.
//
//nolint:contextcheck,nolintlint // a sink outlives whoever asks for it; the linter reads this and does not say so
func newParquetSink(rec *registry.Record, limits *SinkLimits) (project.Sink, error) {
	spec, cfg := rec.Spec.Project.Sink.Parquet, limits.Parquet
	// The projection gathers rows for the interval that is declared; what the sink
	// adds, so that commits of several readers fall together, is not to make it longer.
	if declared := time.Duration(spec.CommitInterval); declared > 0 {
		cfg.CommitInterval = min(declared, cmp.Or(cfg.CommitInterval, time.Second))
	}
	if spec.S3 == nil {
		path, err := roots.Below(limits.Roots, spec.Path)
		if err != nil {
			return nil, err
		}
		dir := parquetsink.NewDir(path)
		dir.Guard(func(ctx context.Context) error { return limits.Admit(ctx, rec) })
		return parquetsink.New(dir, cfg)
	}
	bucket, err := s3.New(s3.Config{
		Endpoint: spec.S3.Endpoint, Bucket: spec.S3.Bucket, Prefix: spec.S3.Prefix, Region: spec.S3.Region,
		Secure: spec.S3.Secure, AccessKeyEnv: spec.S3.AccessKeyEnv, SecretKeyEnv: spec.S3.SecretKeyEnv,
	})
	if err != nil {
		return nil, fmt.Errorf("parquet sink: %w", err)
	}
	return parquetsink.New(parquetsink.Bucket(bucket), cfg)
}

// Admit returns why this process may not write the files of a pipeline where it says,
// nil if it may.
func (l *SinkLimits) Admit(ctx context.Context, rec *registry.Record) error {
	if rec.Spec.Project == nil || rec.Spec.Project.Sink.Parquet == nil || rec.Spec.Project.Sink.Parquet.S3 != nil {
		return nil
	}
	allowed, err := roots.New(l.Roots, l.Own)
	if err != nil {
		return err
	}
	path, err := roots.Below(l.Roots, rec.Spec.Project.Sink.Parquet.Path)
	if err != nil {
		return err
	}
	err = allowed.Check(path)
	if outside, ok := errors.AsType[*roots.OutsideError](err); ok && outside.Own == "" {
		// Releases without roots have taken any directory. One that holds the
		// pipeline's own files was given to it then, and going on adds nothing to that.
		if owner, ownerErr := parquetsink.Owner(ctx, parquetsink.NewDir(path)); ownerErr == nil && owner == rec.ID {
			return nil
		}
	}
	return err
}
