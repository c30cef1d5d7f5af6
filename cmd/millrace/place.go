package main

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store/s3"
	"github.com/millrace/millrace/store/snapshot"
)

// backupPlace is where backups are: a directory, or a bucket.
type backupPlace struct {
	snapshot.Store
	dir string // "" for a bucket
}

// placeFlags are the flags of a command that names a place.
type placeFlags struct{ endpoint, region string }

func (f *placeFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.endpoint, "endpoint", "", "URL of the server of an s3:// bucket (default AWS_ENDPOINT_URL, or that of AWS)")
	cmd.Flags().StringVar(&f.region, "region", "", "region of the bucket (default AWS_REGION, or the server is asked)")
}

// open returns the place that an argument names.
func (f *placeFlags) open(arg string) (*backupPlace, error) {
	scheme, rest, isURL := strings.Cut(arg, "://")
	if !isURL {
		path, err := filepath.Abs(arg)
		return &backupPlace{snapshot.Directory(path), path}, err
	}
	bucket, prefix, _ := strings.Cut(rest, "/")
	if scheme != "s3" || bucket == "" {
		return nil, &usageError{fmt.Errorf("%s: a directory or s3://BUCKET/PREFIX is expected", arg)}
	}
	c := s3.Config{
		Bucket: bucket, Prefix: prefix, Region: cmp.Or(f.region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
	}
	if endpoint := cmp.Or(f.endpoint, os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL")); endpoint != "" {
		u, err := url.Parse(endpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
			return nil, &usageError{fmt.Errorf("endpoint %s: a URL such as https://minio:9000 is expected", endpoint)}
		}
		secure := u.Scheme == "https"
		c.Endpoint, c.Secure = u.Host, &secure
	}
	b, err := s3.New(c)
	if err != nil {
		return nil, &usageError{err}
	}
	return &backupPlace{snapshot.Bucket(b), ""}, nil
}

// lock keeps others of this machine from writing to a directory. In a bucket what is written
// at once is kept apart by package backup.
func (p *backupPlace) lock() (unlock func(), err error) {
	if p.dir == "" {
		return func() {}, nil
	}
	lock, err := leases.LockDir(p.dir)
	if err != nil {
		return nil, err
	}
	return func() { _ = lock.Close() }, nil // the process ends, and the lock with it
}
