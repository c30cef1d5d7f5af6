package compile_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
)

// TestSinkLimits_CheckVariables refuses what can match nothing.
func TestSinkLimits_CheckVariables(t *testing.T) {
	l := compile.SinkLimits{Variables: []string{"REPORTS_*", "SHOP_DSN", "*"}}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	for _, pattern := range []string{"", "A*B", "postgres://user:secret@db", "**"} {
		l.Variables = []string{pattern}
		if err := l.Check(); err == nil || !strings.Contains(err.Error(), "sinks.variables") {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}

// TestNewSink_ReadsNoVariableOfMillrace: a record that an earlier release took names one,
// and nothing of it reaches the server that the record names.
func TestNewSink_ReadsNoVariableOfMillrace(t *testing.T) {
	t.Setenv("MILLRACE_CONNECT_PASSWORD", "hush")
	t.Setenv("SHOP_ACCESS_KEY", "shop")
	t.Setenv("SHOP_SECRET_KEY", "hush")
	var asked atomic.Int32
	evil := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer evil.Close()
	s3 := func(access, secret string) spec.Sink {
		return spec.Sink{Parquet: &spec.ParquetSink{S3: &spec.S3{
			Endpoint: strings.TrimPrefix(evil.URL, "http://"), Bucket: "bbb", Region: "r", Secure: new(bool), AccessKeyEnv: access, SecretKeyEnv: secret,
		}}}
	}
	for _, c := range []struct {
		sink    spec.Sink
		allowed []string
		finding string
	}{
		{s3("MILLRACE_CONNECT_PASSWORD", "SHOP_SECRET_KEY"), nil, "s3.accessKeyEnv: MILLRACE_CONNECT_PASSWORD is refused"},
		{s3("SHOP_ACCESS_KEY", "MILLRACE_CONNECT_PASSWORD"), []string{"*"}, "s3.secretKeyEnv: MILLRACE_CONNECT_PASSWORD is refused"},
		{s3("SHOP_SECRET_KEY", "SHOP_SECRET_KEY"), []string{"SHOP_*"}, "s3.accessKeyEnv: SHOP_SECRET_KEY is refused"},
		{s3("PATH", "SHOP_SECRET_KEY"), nil, "sinks.variables"},
		{s3("SHOP_ACCESS_KEY", "SHOP_SECRET_KEY"), []string{"REPORTS_*"}, "sinks.variables"},
		{s3("SHOP_ACCESS_KEY", "SHOP_SECRET_KEY"), nil, ""},
		{spec.Sink{Postgres: &spec.PostgresSink{DSNEnv: "MILLRACE_CONNECT_PASSWORD"}}, []string{"*"}, "postgres.dsnEnv: MILLRACE_CONNECT_PASSWORD is refused"},
		{spec.Sink{Postgres: &spec.PostgresSink{DSNEnv: "SHOP_DSN"}}, []string{"REPORTS_DSN"}, "sinks.variables"},
		{spec.Sink{Postgres: &spec.PostgresSink{DSNEnv: "SHOP_DSN"}}, nil, ""},
	} {
		rec := registry.Record{Spec: spec.PipelineSpec{Project: &spec.Project{Sink: c.sink}}}
		sink, err := compile.NewSink(&rec, &compile.SinkLimits{Variables: c.allowed})
		if c.finding == "" && err != nil || c.finding != "" && (err == nil || !strings.Contains(err.Error(), c.finding)) {
			t.Errorf("%v; %q is expected", err, c.finding)
		}
		if sink != nil {
			_ = sink.Close()
		}
	}
	if asked.Load() > 0 {
		t.Error("the server was asked")
	}
}

// TestNewSink_KeepsTheIdentityOfTheWorker: a sink that names no variables would have its requests
// signed with what the worker is to AWS, which no list of variables holds up by itself.
func TestNewSink_KeepsTheIdentityOfTheWorker(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "worker")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hush")
	const foreign, unlisted = "it is none of Amazon's servers", "add AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to sinks.variables"
	for _, c := range []struct {
		endpoint string
		allowed  []string
		finding  string
	}{
		{"", nil, ""},
		{"s3.eu-central-1.amazonaws.com", nil, ""},
		{"evil.example:443", nil, foreign},
		{"evil.example:443", []string{"AWS_*"}, foreign},
		{"s3-evil-1.us-east-1.elb.amazonaws.com", nil, foreign},
		{"", []string{"REPORTS_*"}, unlisted},
		{"", []string{"AWS_ACCESS_KEY_ID"}, unlisted},
		{"", []string{"AWS_SECRET_ACCESS_KEY"}, unlisted},
		{"", []string{"REPORTS_*", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}, ""},
	} {
		to := spec.Sink{Parquet: &spec.ParquetSink{S3: &spec.S3{Endpoint: c.endpoint, Bucket: "bbb", Region: "r"}}}
		rec := registry.Record{Spec: spec.PipelineSpec{Project: &spec.Project{Sink: to}}}
		sink, err := compile.NewSink(&rec, &compile.SinkLimits{Variables: c.allowed})
		if c.finding == "" && err != nil || c.finding != "" && (err == nil || !strings.Contains(err.Error(), c.finding)) {
			t.Errorf("endpoint %q, allowed %v: %v; %q is expected", c.endpoint, c.allowed, err, c.finding)
		}
		if sink != nil {
			_ = sink.Close()
		}
	}
}
