package parquetsink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"os"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3Config says where a bucket is. The server must honour If-None-Match: * on
// PUT, as AWS, MinIO and R2 do; a Sink finds out and refuses one that does not.
type S3Config struct {
	// Endpoint is the server's host and port. Default s3.amazonaws.com.
	Endpoint string `yaml:"endpoint"`
	// Bucket must exist. Prefix is put before all names in it; it may be empty.
	Bucket string `yaml:"bucket"`
	Prefix string `yaml:"prefix"`
	// Region is the bucket's; empty asks the server.
	Region string `yaml:"region"`
	// Insecure speaks HTTP instead of HTTPS.
	Insecure bool `yaml:"insecure"`
	// AccessKeyEnv and SecretKeyEnv name the environment variables that hold the
	// keys. Without them the usual places are asked: AWS_ACCESS_KEY_ID and
	// AWS_SECRET_ACCESS_KEY, MINIO_ACCESS_KEY and MINIO_SECRET_KEY, the shared
	// credentials file, and the machine's role.
	AccessKeyEnv string `yaml:"accessKeyEnv"`
	SecretKeyEnv string `yaml:"secretKeyEnv"`
	// Transport carries the requests. Default is minio-go's own.
	Transport http.RoundTripper `yaml:"-"`
}

// S3 is an ObjectStore in a bucket of an S3-compatible server. An object appears
// whole or not at all, and lists see it at once, as S3 promises.
type S3 struct {
	client         *minio.Client
	bucket, prefix string
}

// NewS3 returns the store of a bucket. It does not touch the network.
func NewS3(cfg S3Config) (*S3, error) {
	if cfg.Endpoint == "" {
		cfg.Endpoint = "s3.amazonaws.com"
	}
	if cfg.Bucket == "" {
		return nil, errors.New("parquet sink: s3: bucket is missing")
	}
	keys, err := cfg.keys()
	if err != nil {
		return nil, err
	}
	client, err := minio.New(cfg.Endpoint, &minio.Options{
		Creds: keys, Secure: !cfg.Insecure, Region: cfg.Region, Transport: cfg.Transport,
	})
	if err != nil {
		return nil, fmt.Errorf("parquet sink: s3 %s: %w", cfg.Endpoint, err)
	}
	prefix := strings.Trim(cfg.Prefix, "/")
	if prefix != "" {
		prefix += "/"
	}
	return &S3{client: client, bucket: cfg.Bucket, prefix: prefix}, nil
}

func (c *S3Config) keys() (*credentials.Credentials, error) {
	if c.AccessKeyEnv == "" && c.SecretKeyEnv == "" {
		return credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.EnvMinio{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		}), nil
	}
	access, secret := os.Getenv(c.AccessKeyEnv), os.Getenv(c.SecretKeyEnv)
	if access == "" || secret == "" {
		return nil, fmt.Errorf("parquet sink: s3: the environment variables %q and %q must hold the keys", c.AccessKeyEnv, c.SecretKeyEnv)
	}
	return credentials.NewStaticV4(access, secret, ""), nil
}

// String returns the bucket and prefix as a URL.
func (s *S3) String() string { return "s3://" + s.bucket + "/" + s.prefix }

// Get reads an object.
func (s *S3) Get(ctx context.Context, name string) ([]byte, error) {
	object, err := s.client.GetObject(ctx, s.bucket, s.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, translate(err)
	}
	data, err := io.ReadAll(object)
	if closed := object.Close(); err == nil {
		err = closed
	}
	return data, translate(err)
}

// Put writes an object.
func (s *S3) Put(ctx context.Context, name string, data []byte) error {
	return s.put(ctx, name, data, minio.PutObjectOptions{DisableMultipart: true})
}

// PutExclusive writes an object with If-None-Match: *.
func (s *S3) PutExclusive(ctx context.Context, name string, data []byte) error {
	// One request, because the condition is of one request: of an upload in parts it would
	// be checked when the last part has been sent, if the server checks it at all.
	opts := minio.PutObjectOptions{DisableMultipart: true}
	opts.SetMatchETagExcept("*")
	return s.put(ctx, name, data, opts)
}

func (s *S3) put(ctx context.Context, name string, data []byte, opts minio.PutObjectOptions) error {
	opts.ContentType = contentType(name)
	_, err := s.client.PutObject(ctx, s.bucket, s.prefix+name, bytes.NewReader(data), int64(len(data)), opts)
	return translate(err)
}

func contentType(name string) string {
	if strings.HasSuffix(name, ".json") {
		return "application/json"
	}
	return "application/vnd.apache.parquet"
}

// List asks for the names in pages of 1000.
func (s *S3) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		opts := minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true}
		if after != "" {
			opts.StartAfter = s.prefix + after
		}
		for o := range s.client.ListObjectsIter(ctx, s.bucket, opts) {
			if o.Err != nil {
				yield(Object{}, translate(o.Err))
				return
			}
			// List promises names behind after, whatever a server makes of StartAfter.
			name := strings.TrimPrefix(o.Key, s.prefix)
			if name > after && !yield(Object{Name: name, Modified: o.LastModified}, nil) {
				return
			}
		}
	}
}

// Delete removes objects, many in one request.
func (s *S3) Delete(ctx context.Context, names ...string) error {
	if len(names) == 1 {
		err := translate(s.client.RemoveObject(ctx, s.bucket, s.prefix+names[0], minio.RemoveObjectOptions{}))
		if missing(err) {
			return nil
		}
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	objects := make(chan minio.ObjectInfo)
	go func() {
		defer close(objects)
		for _, name := range names {
			select {
			case objects <- minio.ObjectInfo{Key: s.prefix + name}:
			case <-ctx.Done():
				return
			}
		}
	}()
	// The loop ends when all have been answered: the client closes its channel then.
	var first error
	for failed := range s.client.RemoveObjects(ctx, s.bucket, objects, minio.RemoveObjectsOptions{}) {
		if err := translate(failed.Err); first == nil && !missing(err) {
			first = fmt.Errorf("%s: %w", failed.ObjectName, err)
		}
	}
	return first
}

// translate makes the two answers that callers choose by into those of io/fs.
func translate(err error) error {
	if err == nil {
		return nil
	}
	switch answer := minio.ToErrorResponse(err); {
	case answer.Code == minio.NoSuchKey:
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case answer.StatusCode == http.StatusPreconditionFailed, answer.Code == minio.PreconditionFailed:
		return fmt.Errorf("%w: %w", fs.ErrExist, err)
	}
	return err
}
