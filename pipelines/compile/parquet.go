package compile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
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
	if err := admitKeys(to.S3, limits.Variables); err != nil {
		return nil, fmt.Errorf("spec.project.sink.parquet.s3%w", err)
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

// admitKeys returns why this process does not sign requests to a bucket as a sink declares, nil
// if it does. A sink that names no variables has them signed with the AWS identity of the
// process, which may be a role and no variable at all. Its key id and session token go to the
// server in clear, so the server must be Amazon's; and whoever lists the variables of sinks
// allows that identity by the names of the two that it usually has.
func admitKeys(to *spec.S3, allowed []string) error {
	if to.AccessKeyEnv != "" || to.SecretKeyEnv != "" {
		for _, one := range [...]struct{ field, name string }{{spec.AccessKeyField, to.AccessKeyEnv}, {spec.SecretKeyField, to.SecretKeyEnv}} {
			if err := spec.AdmitVariable(one.field, one.name, allowed); err != nil {
				return fmt.Errorf(".%w", err)
			}
		}
		return nil
	}
	const without = "without accessKeyEnv and secretKeyEnv requests are signed with the AWS identity of the worker"
	if !s3.IsAmazon(cmp.Or(to.Endpoint, spec.S3EndpointDefault)) {
		return fmt.Errorf(": %s, which %s is not sent: it is none of Amazon's servers; name the variables with its keys", without, to.Endpoint)
	}
	for field, name := range map[string]string{spec.AccessKeyField: identityAccessKey, spec.SecretKeyField: identitySecretKey} {
		if spec.AdmitVariable(field, name, allowed) != nil {
			return fmt.Errorf(": %s, which its sinks may not use; name variables that they may (%s), or add %s and %s to sinks.variables in the worker's configuration",
				without, strings.Join(allowed, ", "), identityAccessKey, identitySecretKey)
		}
	}
	return nil
}

// The variables of the AWS identity of a process.
const (
	identityAccessKey = "AWS_ACCESS_KEY_ID"
	identitySecretKey = "AWS_SECRET_ACCESS_KEY"
)

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
