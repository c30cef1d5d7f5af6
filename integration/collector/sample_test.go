package collector_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/process"
)

// shown are the variables that the sample's head sets: of the store of traces, and of Prometheus.
func shown(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	set := regexp.MustCompile(`(?m)^#   export (TRACES_ENDPOINT=\S+) (METRICS_ENDPOINT=\S+)$`).FindStringSubmatch(string(text))
	if set == nil {
		t.Fatal("the sample does not say what to set")
	}
	return set[1:]
}

// TestSample_IsValid has the collector itself judge the sample.
func TestSample_IsValid(t *testing.T) {
	t.Parallel()
	if out, err := command(t, shown(t), nil, "validate").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("validate: %v\n%s", err, out)
	}
}

// TestSample_MistakesAreRefused makes mistakes in the sample, of which the collector names each.
func TestSample_MistakesAreRefused(t *testing.T) {
	t.Parallel()
	anywhere := shown(t)
	for _, c := range []struct {
		name, over, says string
		env              []string
	}{
		{"a key that is misspelt", "processors::memory_limiter::check_intervals: 1s", "check_intervals", anywhere},
		{"an exporter that is not declared", "service::pipelines::traces::exporters: [otlp_grpc/nowhere]", "otlp_grpc/nowhere", anywhere},
		{"a component of another collector", "exporters::debug: {}", "debug", anywhere},
		{"a limiter that limits nothing", "processors::memory_limiter::limit_mib: 0", "limit_mib", anywhere},
		{"no store of traces", "", "otlp_grpc/traces", anywhere[1:]},
		{"no Prometheus", "", "otlp_http/prometheus", anywhere[:1]},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var over []string
			if c.over != "" {
				over = []string{c.over}
			}
			out, err := command(t, c.env, over, "validate").CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.says) {
				t.Errorf("validate: %v, which says nothing of %s:\n%s", err, c.says, out)
			}
		})
	}
}

// TestSample_PassesOnWhatMillracePushes sends the collector what millrace up tells of a write, by
// each protocol, and looks for it at the backends.
func TestSample_PassesOnWhatMillracePushes(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the collector trusts the backends by SSL_CERT_FILE, which Go does not read everywhere")
	}
	binary, err := process.Build(filepath.Join("..", ".."), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := newBackends(t)
	c := start(t, b.env)
	for protocol, address := range map[string]string{"http/protobuf": c.http, "grpc": c.grpc} {
		t.Run(protocol, func(t *testing.T) {
			millrace := write(t, binary, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+address, "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol,
				"OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=proof", "OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_METRIC_EXPORT_INTERVAL=500")
			resource := map[string]string{
				"service.name": "millrace", "deployment.environment.name": "proof", "telemetry.sdk.language": "go",
				"process.pid": strconv.Itoa(millrace.Cmd.Process.Pid),
			}
			poll.Until(t, func() error {
				return poll.Reason(b.missing(
					told{name: "millrace.commit", resource: resource, attributes: map[string]string{"db.collection.name": "things", "db.system.name": "millrace"}},
					told{name: "millrace.changes", resource: resource, attributes: map[string]string{"cause": "client"}},
				))
			})
			stop(t, millrace)
		})
	}
	stop(t, c.Process)
	for line := range strings.Lines(c.log.String()) {
		if strings.Contains(line, "deprecated") {
			t.Errorf("the sample grows old: %s", line)
		}
	}
}

// write starts millrace up with an environment and writes an item.
func write(t *testing.T, binary string, env ...string) *process.Process {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ports, err := process.FreePorts(1)
	must(err)
	files := map[string]string{
		"things.yaml": "apiVersion: millrace/v1\nkind: Container\nmetadata: {name: things}\nspec: {partitionKey: [/id]}\n", "item.json": `{"id": "t1"}`,
	}
	for name, text := range files {
		must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	var log process.Log
	up := exec.Command(binary, "up", "--dir", "data", "--port", ports[0], "--listen", "off", "--gateway", "off")
	up.Dir, up.Env = dir, environ(env...)
	millrace, err := process.Start(up, &log)
	must(err)
	t.Cleanup(func() {
		millrace.Kill() // it may have ended
		if t.Failed() {
			t.Logf("millrace said:\n%s", &log)
		}
	})
	must(millrace.AwaitReady(poll.Most))
	for _, args := range [][]string{{"apply", "-f", "things.yaml"}, {"items", "put", "things", "item.json"}} {
		cmd := exec.CommandContext(t.Context(), binary, append(args, "--server", "nats://127.0.0.1:"+ports[0], "--creds", filepath.Join("data", "credentials", "admin.json"))...)
		cmd.Dir, cmd.Env = dir, environ()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("millrace %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return millrace
}
