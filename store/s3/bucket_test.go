package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/store/s3"
)

// bucketOf returns a bucket on a server that answers with f.
func bucketOf(t testing.TB, timeout time.Duration, f http.HandlerFunc) *s3.Bucket {
	t.Helper()
	// A server learns that its client has gone only where it reads, so what waits there is
	// ended from here.
	work, end := context.WithCancel(context.Background())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f(w, r.WithContext(work)) }))
	t.Cleanup(func() {
		end()
		server.Close()
	})
	t.Setenv("TEST_ACCESS", "who")
	t.Setenv("TEST_SECRET", "the-secret")
	b, err := s3.New(s3.Config{
		Endpoint: strings.TrimPrefix(server.URL, "http://"), Bucket: "shop", Region: "here", Secure: new(bool),
		AccessKeyEnv: "TEST_ACCESS", SecretKeyEnv: "TEST_SECRET", Timeout: timeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A server that takes a connection and never answers, or stops inside of an object, keeps
// nobody: the error is none of a context, because the caller's has not ended.
func TestBucket_EndsWhatIsNotAnswered(t *testing.T) {
	silent := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	stalls := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write([]byte("some"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	ctx := t.Context()
	b := bucketOf(t, 50*time.Millisecond, silent)
	_, get := b.Get(ctx, "a")
	_, names := b.Names(ctx, "")
	_, half := bucketOf(t, 50*time.Millisecond, stalls).Get(ctx, "a")
	for what, err := range map[string]error{
		"get": get, "names": names, "half an object": half, "put": b.Put(ctx, "a", []byte("a")),
		"exclusive": b.PutExclusive(ctx, "a", nil), "delete": b.Delete(ctx, "a"), "delete two": b.Delete(ctx, "a", "b"),
	} {
		if !errors.Is(err, s3.ErrSlow) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want ErrSlow", what, err)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := b.Get(ended, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("get for somebody who has gone: %v, want his own error", err)
	}
	if names, err := b.Names(ended, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("names for somebody who has gone: %v, %v, want his own error", names, err)
	}
}

// A server that pays no heed to conditions is found out: two processes would overwrite each
// other's pointer on it.
func TestBucket_ProveRefusesServersThatDoNotCompare(t *testing.T) {
	for name, compares := range map[string]func(*http.Request) bool{
		"nothing":       func(*http.Request) bool { return false },
		"If-None-Match": func(r *http.Request) bool { return r.Header.Get("If-None-Match") != "" },
		"If-Match":      func(r *http.Request) bool { return r.Header.Get("If-Match") != "" },
		"both":          func(r *http.Request) bool { return r.Header.Get("If-Match")+r.Header.Get("If-None-Match") != "" },
	} {
		b := bucketOf(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if compares(r) {
				w.WriteHeader(http.StatusPreconditionFailed)
				return
			}
			w.Header().Set("ETag", `"abc"`)
		})
		if err := b.Prove(t.Context(), "a", []byte("a")); (err == nil) != (name == "both") {
			t.Errorf("one that compares %s: %v", name, err)
		}
	}
}

func TestConfig_RefusesWhatItCannotUse(t *testing.T) {
	for _, c := range []s3.Config{
		{}, {Bucket: "b", AccessKeyEnv: "A"}, {Bucket: "b", Endpoint: "http://h:9000"}, {Bucket: "b", AccessKeyEnv: "NOT_SET", SecretKeyEnv: "NOT_SET"},
	} {
		if _, err := s3.New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

// Amazon's servers speak TLS, so nothing is sent to them in clear; nor is the identity of the process to a
// machine at Amazon that may be anybody's.
func TestConfig_SendsNothingInClearToAmazon(t *testing.T) {
	t.Setenv("TEST_ACCESS", "who")
	t.Setenv("TEST_SECRET", "the-secret")
	clear, secure := false, true
	for _, c := range []struct {
		endpoint string
		secure   *bool
		keys     bool // of its own
		want     string
	}{
		{"", &clear, false, "s3.amazonaws.com"},
		{"", &clear, true, "leave secure out"},
		{"S3.eu-central-1.amazonaws.com:80", &clear, true, "leave secure out"},
		{"shop.s3.eu-central-1.amazonaws.com", &clear, true, "leave secure out"},
		{"s3.cn-north-1.amazonaws.com.cn", &clear, true, "leave secure out"},
		{"minio-1.elb.us-east-1.amazonaws.com:9000", &clear, false, "accessKeyEnv"},
		{"minio-1.elb.us-east-1.amazonaws.com:9000", &clear, true, ""},
		{"minio:9000", &clear, false, ""},
		{"amazonaws.com.example", &clear, false, ""},
		{"", &secure, false, ""},
		{"s3.eu-central-1.amazonaws.com", nil, false, ""},
	} {
		cfg := s3.Config{Endpoint: c.endpoint, Bucket: "shop", Secure: c.secure}
		if c.keys {
			cfg.AccessKeyEnv, cfg.SecretKeyEnv = "TEST_ACCESS", "TEST_SECRET"
		}
		for what, err := range map[string]error{"check": cfg.Check(), "new": second(s3.New(cfg))} {
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %q, own keys %t: %v; want %q", what, c.endpoint, c.keys, err, c.want)
			}
		}
	}
}

func second(_ *s3.Bucket, err error) error { return err }

func TestIsAmazon(t *testing.T) {
	for endpoint, want := range map[string]bool{
		"s3.amazonaws.com": true, "s3.amazonaws.com:443": true, "S3.EU-Central-1.amazonaws.com": true, "s3-us-west-2.amazonaws.com": true,
		"s3.dualstack.us-gov-west-1.amazonaws.com": true, "s3-fips.dualstack.us-east-1.amazonaws.com": true, "s3.cn-north-1.amazonaws.com.cn": true,
		"bucket.vpce-0a1b-2c3d.s3.us-east-1.vpce.amazonaws.com": true,
		"": false, "minio:9000": false, "s3.evil.example": false, "s3.amazonaws.com.evil.example": false, "evil.example:443/s3.amazonaws.com": false,
		"evil.example?s3.amazonaws.com": false, "evil@s3.amazonaws.com": false, "s3.amazonaws.com\nevil.example": false, "s3.amazonaws.com:443@evil.example": false,
		// Anybody may have these.
		"s3-name-123.us-east-1.elb.amazonaws.com": false, "ec2-192-0-2-1.compute-1.amazonaws.com": false, "s3.ec2-192-0-2-1.eu-west-1.compute.amazonaws.com": false,
		"s3xus-east-1.amazonaws.com": false, "vpce-0a1b.evil-svc-1.us-east-1.vpce.amazonaws.com": false,
	} {
		if got := s3.IsAmazon(endpoint); got != want {
			t.Errorf("%q: %v", endpoint, got)
		}
	}
}

// TestBucket_ReadsInOneRequest: an object that is replaced while it is read is read as it was or as it is, and what a server
// says of an object that it does not give is heard: of a bucket that is not there the answer to HEAD says nothing.
func TestBucket_ReadsInOneRequest(t *testing.T) {
	ctx := t.Context()
	asked := 0
	b := bucketOf(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked > 1 && r.Header.Get("If-Match") != "" { // it was replaced since
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprint("v", asked)))
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		w.Header().Set("Content-Length", "4")
		_, _ = w.Write([]byte("some"))
	})
	if data, etag, err := b.Look(ctx, "a"); string(data) != "some" || etag != "v1" || err != nil || asked != 1 {
		t.Errorf("%q, %q, %v, of %d requests", data, etag, err, asked)
	}
	b = bucketOf(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`<?xml version="1.0" encoding="UTF-8"?><Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>`))
	})
	if _, err := b.Get(ctx, "a"); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "bucket does not exist") {
		t.Errorf("a bucket that is not there: %v", err)
	}
}
