package spec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/pipelines/spec"
)

// TestAdmitVariable_KeepsSecrets: nobody who declares a sink gets a variable that was not
// meant for one.
func TestAdmitVariable_KeepsSecrets(t *testing.T) {
	const access, secret, dsn = spec.AccessKeyField, spec.SecretKeyField, spec.DSNField
	for _, c := range []struct {
		field, name string
		allowed     []string
		ok          bool
	}{
		{access, "REPORTS_ACCESS_KEY", nil, true},
		{access, "MINIO_ACCESS_KEY", nil, true},
		{access, "AWS_ACCESS_KEY_ID", nil, true},
		{access, "ACCESS_KEY", nil, true},
		{access, "AWS_SECRET_ACCESS_KEY", nil, false},
		{access, "AWS_SECRET_ACCESS_KEY", []string{"*"}, false},
		{access, "AZURE_STORAGE_ACCESS_KEY", nil, false},
		{access, "REPORTS_SECRET_KEY", []string{"REPORTS_*"}, false},
		{access, "REPORTS_DSN", []string{"REPORTS_*"}, false},
		{access, "PGPASSWORD", nil, false},
		{access, "PATH", nil, false},
		{access, "MILLRACE_CONNECT_PASSWORD", nil, false},
		{access, "MILLRACE_SHOP_DSN", nil, false},
		{access, "MILLRACE_GATEWAY_KEYS_PRIMARY", []string{"*", "MILLRACE_*", "MILLRACE_GATEWAY_KEYS_PRIMARY"}, false},
		{access, "millrace_my_access_key", nil, false},
		{access, "STORE_USER", nil, false},
		{access, "STORE_USER", []string{"STORE_USER"}, true},
		{access, "STORE_USER2", []string{"STORE_USER"}, false},
		{secret, "REPORTS_SECRET_KEY", nil, true},
		{secret, "AWS_SECRET_ACCESS_KEY", nil, true},
		{secret, "AWS_ACCESS_KEY_ID", nil, false},
		{secret, "AWS_SESSION_TOKEN", nil, false},
		{secret, "PATH", nil, false},
		{secret, "MILLRACE_CONNECT_PASSWORD", []string{"*"}, false},
		{secret, "STORE_PASSWORD", []string{"STORE_*"}, true},
		{dsn, "ANALYTICS_DSN", nil, true},
		{dsn, "DATABASE_URL", nil, true},
		{dsn, "MILLRACE_SHOP_DSN", nil, true},
		{dsn, "MILLRACE_CONNECT_PASSWORD", nil, false},
		{dsn, "AWS_SECRET_ACCESS_KEY", nil, false},
		{dsn, "ANALYTICS_DSN", []string{"REPORTS_*"}, false},
	} {
		err := spec.AdmitVariable(c.field, c.name, c.allowed)
		if (err == nil) != c.ok {
			t.Errorf("%s: %s, allowed %q: %v", c.field, c.name, c.allowed, err)
		}
		if err != nil && (!strings.Contains(err.Error(), c.name) || !strings.Contains(err.Error(), "such as") && !strings.Contains(err.Error(), "sinks.variables")) {
			t.Errorf("no way out is told: %v", err)
		}
	}
}

// TestDecode_RefusesOwnVariables tells it when a pipeline is declared, with the place.
func TestDecode_RefusesOwnVariables(t *testing.T) {
	for sink, at := range map[string]string{
		"{parquet: {s3: {endpoint: 'evil.example:443', bucket: bbb, region: r, accessKeyEnv: MILLRACE_CONNECT_PASSWORD, secretKeyEnv: PATH}}}": "spec.project.sink.parquet.s3.accessKeyEnv",
		"{parquet: {s3: {bucket: bbb, accessKeyEnv: SHOP_SECRET_KEY, secretKeyEnv: SHOP_ACCESS_KEY}}}":                                         "spec.project.sink.parquet.s3.accessKeyEnv",
		"{parquet: {s3: {bucket: bbb, accessKeyEnv: SHOP_ACCESS_KEY, secretKeyEnv: MILLRACE_KEY}}}":                                            "spec.project.sink.parquet.s3.secretKeyEnv",
		"{postgres: {dsnEnv: MILLRACE_GATEWAY_KEYS_PRIMARY}}":                                                                                  "spec.project.sink.postgres.dsnEnv",
	} {
		text := fmt.Sprintf(`{apiVersion: millrace/v1, kind: Pipeline, metadata: {name: p}, spec: {source: {container: c}, project: {sink: %s, tables: {t: {key: [id], columns: {id: id}}}}}}`, sink)
		_, err := spec.Decode("p.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), at+": ") || !strings.Contains(err.Error(), "such as ") {
			t.Errorf("%s: %v", sink, err)
		}
	}
}
