package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"

	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/processors/project/sinktest"
)

const (
	access, secret = "millrace", "millrace-secret"
	endpoint       = "s3.test"
)

// transport reaches the server, whatever host is asked for.
var transport *http.Transport

// TestMain runs the server, of which a process has one, on a socket.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
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
	backend, err := posix.New(filepath.Join(dir, "objects"), sidecar, posix.PosixOpts{SideCarDir: filepath.Join(dir, "meta")})
	if err != nil {
		panic(err)
	}
	socket := filepath.Join(dir, "s3.sock")
	transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		err := embedgw.RunVersityGW(ctx, backend, &embedgw.Config{
			RootUserAccess: access, RootUserSecret: secret, Ports: []string{socket}, Quiet: true, KeepAlive: true,
			MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 10000,
		})
		if err != nil && ctx.Err() == nil {
			panic(err)
		}
	})
	defer work.Wait()
	defer cancel()
	if err := listening(socket); err != nil {
		panic(err)
	}
	os.Setenv("TEST_ACCESS", access)
	os.Setenv("TEST_SECRET", secret)
	return m.Run()
}

// listening waits until the server takes connections.
func listening(socket string) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		conn, err := net.Dial("unix", socket)
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

// bucket makes one and returns its store.
func bucket(t testing.TB) func(t testing.TB) *parquetsink.S3 {
	t.Helper()
	client, err := minio.New(endpoint, &minio.Options{Creds: credentials.NewStaticV4(access, secret, ""), Transport: transport, Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("bucket-%d", buckets.Add(1))
	if err := client.MakeBucket(t.Context(), name, minio.MakeBucketOptions{}); err != nil {
		t.Fatalf("make bucket: %v", err)
	}
	return func(t testing.TB) *parquetsink.S3 {
		t.Helper()
		s, err := parquetsink.NewS3(parquetsink.S3Config{
			Endpoint: endpoint, Bucket: name, Prefix: "some/prefix/", Region: "us-east-1", Insecure: true,
			AccessKeyEnv: "TEST_ACCESS", SecretKeyEnv: "TEST_SECRET", Transport: transport,
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func config() parquetsink.Config {
	return parquetsink.Config{CommitInterval: time.Nanosecond, Logger: slog.New(slog.DiscardHandler)}
}

func TestSinkOnS3(t *testing.T) {
	sinktest.Run(t, func(t testing.TB) sinktest.Open {
		store := bucket(t)
		return func(t testing.TB) sinktest.Sink {
			s, err := parquetsink.New(store(t), config())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
	}, sinktest.Options{Quick: true})
}

func TestS3_ObjectsAreMadeOnce(t *testing.T) {
	store := bucket(t)(t)
	ctx := t.Context()
	const rivals = 16
	var won atomic.Int64
	var wg sync.WaitGroup
	for i := range rivals {
		wg.Go(func() {
			switch err := store.PutExclusive(ctx, "_manifest/1", fmt.Appendf(nil, "rival %d", i)); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, fs.ErrExist):
				t.Errorf("rival %d: %v, want fs.ErrExist", i, err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d of %d made the object, want 1", won.Load(), rivals)
	}
}

func TestS3_ReadsListsAndDeletes(t *testing.T) {
	store := bucket(t)(t)
	ctx := t.Context()
	if _, err := store.Get(ctx, "a/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("get of nothing: %v, want fs.ErrNotExist", err)
	}
	names := []string{"a/b/1", "a/b/2", "a/c=%2F é/3.parquet", "ab/4"}
	for _, name := range names {
		if err := store.Put(ctx, name, []byte("first")); err != nil {
			t.Fatal(err)
		}
		if err := store.Put(ctx, name, []byte(name)); err != nil {
			t.Fatal(err)
		}
		if got, err := store.Get(ctx, name); err != nil || string(got) != name {
			t.Errorf("get %s: %q, %v", name, got, err)
		}
	}
	for _, c := range []struct {
		prefix, after string
		want          []string
	}{{"a/", "", names[:3]}, {"a/", "a/b/1", names[1:3]}, {"", "", names}, {"none/", "", nil}} {
		var got []string
		for o, err := range store.List(ctx, c.prefix, c.after) {
			if err != nil {
				t.Fatal(err)
			}
			if age := time.Since(o.Modified); age > time.Hour || age < -time.Hour {
				t.Errorf("%s was modified %s ago", o.Name, age)
			}
			got = append(got, o.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("list %q after %q: %q, want %q", c.prefix, c.after, got, c.want)
		}
	}
	if err := store.Delete(ctx, append(names, "none")...); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(ctx, "none"); err != nil {
		t.Fatal(err)
	}
	for o, err := range store.List(ctx, "", "") {
		t.Errorf("left: %s %v", o.Name, err)
	}
}
