package compile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/pipelines/internal/roots"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/store/s3"
)

// newParquetSink returns a sink of files in a directory or a bucket.
//
//nolint:contextcheck,nolintlint // a sink outlives whoever asks for it; the linter reads this and does not say so
func newParquetSink(rec *registry.Record, limits *SinkLimits) (project.Sink, error) {
	to, cfg := rec.Spec.Project.Sink.Parquet, limits.Parquet
	// The projection gathers rows for the interval that is declared; what the sink
	// adds, so that commits of several readers fall together, is not to make it longer.
	if declared := time.Duration(to.CommitInterval); declared > 0 {
		cfg.CommitInterval = min(declared, cmp.Or(cfg.CommitInterval, time.Second))
	}
	if to.S3 == nil {
		path, err := roots.Below(limits.Roots, to.Path)
		if err != nil {
			return nil, err
		}
		dir := parquetsink.NewDir(path)
		dir.Guard(func(ctx context.Context) error { return limits.Admit(ctx, rec) })
		return parquetsink.New(dir, cfg)
	}
	if to.S3.AccessKeyEnv != "" || to.S3.SecretKeyEnv != "" {
		for _, one := range [...]struct{ field, name string }{{spec.AccessKeyField, to.S3.AccessKeyEnv}, {spec.SecretKeyField, to.S3.SecretKeyEnv}} {
			if err := spec.AdmitVariable(one.field, one.name, limits.Variables); err != nil {
				return nil, fmt.Errorf("spec.project.sink.parquet.s3.%w", err)
			}
		}
	}
	bucket, err := s3.New(s3.Config{
		Endpoint: to.S3.Endpoint, Bucket: to.S3.Bucket, Prefix: to.S3.Prefix, Region: to.S3.Region,
		Secure: to.S3.Secure, AccessKeyEnv: to.S3.AccessKeyEnv, SecretKeyEnv: to.S3.SecretKeyEnv,
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
