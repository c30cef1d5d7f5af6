package s3

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Config says where a bucket is.
type Config struct {
	// Endpoint is host:port of the server, without a scheme. Default s3.amazonaws.com.
	Endpoint string `yaml:"endpoint"`

	// Bucket must exist.
	Bucket string `yaml:"bucket"`

	// Prefix is a folder in the bucket, before all names. Default the bucket's root.
	Prefix string `yaml:"prefix"`

	// Region of the bucket, such as eu-central-1. Default: the server is asked.
	Region string `yaml:"region"`

	// Secure is whether the server is reached by TLS. Default true; false is refused
	// for servers of Amazon.
	Secure *bool `yaml:"secure"`

	// AccessKeyEnv and SecretKeyEnv name the environment variables that hold the keys, both
	// or neither. Without them the usual places are asked: AWS_ACCESS_KEY_ID and
	// AWS_SECRET_ACCESS_KEY, the shared credentials file, the machine's role.
	AccessKeyEnv string `yaml:"accessKeyEnv"`
	SecretKeyEnv string `yaml:"secretKeyEnv"`

	// Transport carries the requests. Default is that of the client library.
	Transport http.RoundTripper `yaml:"-"`
	// Timeout is how long a request may take, beside a second for each 128 KiB that it
	// carries, with the times that it is sent again. Default 30s.
	Timeout time.Duration `yaml:"-"`
}

// Check returns what is wrong with a configuration, without a look at the environment.
func (c *Config) Check() error {
	switch {
	case c.Bucket == "":
		return errors.New("s3: bucket is missing")
	case (c.AccessKeyEnv == "") != (c.SecretKeyEnv == ""):
		return errors.New("s3: one of accessKeyEnv and secretKeyEnv is missing")
	case strings.Contains(c.Endpoint, "://"):
		return fmt.Errorf("s3: endpoint is %q; host:port without a scheme is expected, and secure: false for HTTP", c.Endpoint)
	}
	if err := c.CheckClear(); err != nil {
		return fmt.Errorf("s3: %w", err)
	}
	return nil
}

// CheckClear returns why nothing may be sent to the server in clear as is configured, nil if it may. Amazon's own
// speak TLS, so nobody needs to. Other machines at Amazon may be anybody's, and are sent the keys that are meant for them,
// but not the identity of the process, whose session token would be read on the way.
func (c *Config) CheckClear() error {
	if c.Secure == nil || *c.Secure {
		return nil
	}
	host := strings.ToLower(cmp.Or(c.Endpoint, endpointDefault))
	// Buckets may be named before it: shop.s3.eu-central-1.amazonaws.com.
	for rest, more := host, true; more; _, rest, more = strings.Cut(rest, ".") {
		if IsAmazon(rest) {
			return fmt.Errorf("secure: false would send the access key, the session token and all objects to %s in clear, and Amazon's servers speak TLS: leave secure out, or write https:// in place of http://", host)
		}
	}
	if c.AccessKeyEnv == "" && hostedAtAmazon.MatchString(host) {
		return fmt.Errorf("secure: false would send the session token of this process's AWS identity to %s in clear: leave secure out, write https:// in place of http://, or name variables with keys of its own (accessKeyEnv, secretKeyEnv)", host)
	}
	return nil
}

// hostedAtAmazon are the names of all machines at Amazon, with or without a port.
var hostedAtAmazon = regexp.MustCompile(`\.amazonaws\.com(\.cn)?(:[0-9]+)?$`)

const endpointDefault = "s3.amazonaws.com"

func (c *Config) keys() (*credentials.Credentials, error) {
	if c.AccessKeyEnv == "" && c.SecretKeyEnv == "" {
		return credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.EnvMinio{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		}), nil
	}
	access, secret := os.Getenv(c.AccessKeyEnv), os.Getenv(c.SecretKeyEnv)
	if access == "" || secret == "" {
		return nil, fmt.Errorf("s3: the environment variables %q and %q must hold the keys", c.AccessKeyEnv, c.SecretKeyEnv)
	}
	return credentials.NewStaticV4(access, secret, ""), nil
}

// amazonHost is how Amazon names its servers of S3, with or without a port. It is narrower than what the client library
// takes for them: anybody may have s3-NAME.REGION.elb.amazonaws.com or a machine below
// compute.amazonaws.com.
// https://docs.aws.amazon.com/general/latest/gr/s3.html
var amazonHost = regexp.MustCompile(`^(bucket\.vpce-[0-9a-z-]+\.)?s3(-fips)?(\.dualstack)?([.-][a-z]{2}(-[a-z]+)+-[0-9]+)?(\.vpce)?\.amazonaws\.com(\.cn)?(:[0-9]+)?$`)

// IsAmazon tells whether an endpoint, host or host:port, is a server of Amazon S3.
func IsAmazon(endpoint string) bool { return amazonHost.MatchString(strings.ToLower(endpoint)) }

// New returns a bucket. It does not touch the network.
func New(c Config) (*Bucket, error) {
	c.Endpoint = cmp.Or(c.Endpoint, endpointDefault)
	if err := c.Check(); err != nil {
		return nil, err
	}
	keys, err := c.keys()
	if err != nil {
		return nil, err
	}
	client, err := minio.New(c.Endpoint, &minio.Options{
		Creds: keys, Secure: c.Secure == nil || *c.Secure, Region: c.Region, Transport: c.Transport,
	})
	if err != nil {
		return nil, fmt.Errorf("s3 %s: %w", c.Endpoint, err)
	}
	prefix := strings.Trim(c.Prefix, "/")
	if prefix != "" {
		prefix += "/"
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	return &Bucket{client: client, bucket: c.Bucket, prefix: prefix, timeout: c.Timeout}, nil
}
