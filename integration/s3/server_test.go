package s3_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"

	"github.com/millrace/millrace/integration/process"
	"github.com/millrace/millrace/store/s3"
)

const access, secret = "millrace", "millrace-secret"

// endpoint is the server's address, objects the directory in which it keeps buckets, and
// scratch one that lives as long as the tests. repository is the product's: the server
// changes the directory of its process.
var endpoint, objects, scratch, repository string

// TestMain runs the server, of which a process has one.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if repository, err = filepath.Abs(filepath.Join("..", "..")); err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "s3")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for _, folder := range []string{"objects", "meta"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			panic(err)
		}
	}
	// Metadata beside the objects: not every file system has extended attributes.
	sidecar, err := meta.NewSideCar(filepath.Join(dir, "meta"))
	if err != nil {
		panic(err)
	}
	scratch, objects = dir, filepath.Join(dir, "objects")
	backend, err := posix.New(objects, sidecar, posix.PosixOpts{SideCarDir: filepath.Join(dir, "meta")})
	if err != nil {
		panic(err)
	}
	if endpoint, err = freeAddress(); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		err := embedgw.RunVersityGW(ctx, backend, &embedgw.Config{
			RootUserAccess: access, RootUserSecret: secret, Ports: []string{endpoint}, Quiet: true, KeepAlive: true,
			MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 10000,
		})
		if err != nil && ctx.Err() == nil {
			panic(err)
		}
	})
	defer work.Wait()
	defer cancel()
	if err := listening(); err != nil {
		panic(err)
	}
	os.Setenv("TEST_ACCESS", access)
	os.Setenv("TEST_SECRET", secret)
	return m.Run()
}

func freeAddress() (string, error) {
	ports, err := process.FreePorts(1)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort("127.0.0.1", ports[0]), nil
}

// listening waits until the server takes connections.
func listening() error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		conn, err := net.Dial("tcp", endpoint)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

var buckets atomic.Int64

// newBucket makes one, and returns where it is.
func newBucket(t testing.TB) s3.Config {
	t.Helper()
	client, err := minio.New(endpoint, &minio.Options{Creds: credentials.NewStaticV4(access, secret, ""), Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("bucket-%d", buckets.Add(1))
	if err := client.MakeBucket(t.Context(), name, minio.MakeBucketOptions{}); err != nil {
		t.Fatalf("make bucket: %v", err)
	}
	return s3.Config{
		Endpoint: endpoint, Bucket: name, Prefix: "some/prefix/", Region: "us-east-1", Secure: new(bool),
		AccessKeyEnv: "TEST_ACCESS", SecretKeyEnv: "TEST_SECRET",
	}
}

func open(t testing.TB, c s3.Config) *s3.Bucket {
	t.Helper()
	b, err := s3.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
