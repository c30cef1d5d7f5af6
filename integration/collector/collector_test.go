package collector_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/batchprocessor"
	"go.opentelemetry.io/collector/processor/memorylimiterprocessor"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/process"
)

// sample is the file that is proved, as it is.
var sample = filepath.Join("..", "..", "deploy", "otel", "collector.yaml")

// asCollector in the environment makes the test binary the collector.
const asCollector = "MILLRACE_TEST_COLLECTOR"

// TestMain is the collector's main function where a test starts its own binary as one. It has a
// process of its own because the sample and TLS read variables, of which a process has one set.
func TestMain(m *testing.M) {
	if os.Getenv(asCollector) == "" {
		os.Exit(m.Run())
	}
	set := otelcol.CollectorSettings{BuildInfo: component.NewDefaultBuildInfo(), Factories: components}
	set.ConfigProviderSettings.ResolverSettings.ProviderFactories = []confmap.ProviderFactory{
		envprovider.NewFactory(), fileprovider.NewFactory(), yamlprovider.NewFactory(),
	}
	if otelcol.NewCommand(set).Execute() != nil {
		os.Exit(1) // it has said why
	}
	os.Exit(0)
}

// components are those that the sample names. The collectors that OpenTelemetry distributes have
// them, and many more.
func components() (f otelcol.Factories, err error) {
	f.Telemetry = otelconftelemetry.NewFactory()
	var errs [3]error
	f.Receivers, errs[0] = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory())
	f.Processors, errs[1] = otelcol.MakeFactoryMap[processor.Factory](memorylimiterprocessor.NewFactory(), batchprocessor.NewFactory())
	f.Exporters, errs[2] = otelcol.MakeFactoryMap[exporter.Factory](otlpexporter.NewFactory(), otlphttpexporter.NewFactory())
	return f, errors.Join(errs[:]...)
}

// environ is what the tests were started with, less what would tell a process of other telemetry,
// and more.
func environ(more ...string) []string {
	foreign := func(v string) bool {
		return slices.ContainsFunc([]string{"OTEL_", "MILLRACE_", "SSL_CERT_", "TRACES_ENDPOINT=", "METRICS_ENDPOINT="},
			func(prefix string) bool { return strings.HasPrefix(v, prefix) })
	}
	return append(slices.DeleteFunc(os.Environ(), foreign), more...)
}

// command is the collector with the sample and what is laid over it: a key, its parts joined by ::,
// and its value in YAML.
func command(t *testing.T, env, over []string, verbs ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := append(verbs, "--config", sample)
	for _, setting := range over {
		args = append(args, "--config", "yaml:"+setting)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(environ(env...), asCollector+"=1")
	return cmd
}

// running is a collector that has the sample.
type running struct {
	grpc, http string // where it listens
	*process.Process
	log process.Log
}

// start starts the collector, at ports that are free, and waits until it is ready.
func start(t *testing.T, env []string) *running {
	t.Helper()
	ports, err := process.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	c := &running{grpc: "127.0.0.1:" + ports[0], http: "127.0.0.1:" + ports[1]}
	cmd := command(t, env, []string{
		"receivers::otlp::protocols::grpc::endpoint: " + c.grpc,
		"receivers::otlp::protocols::http::endpoint: " + c.http,
		"service::telemetry::metrics::level: none", // of itself, for which it listens too
	})
	if c.Process, err = process.Start(cmd, &c.log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Kill() // it may have ended
		if t.Failed() {
			t.Logf("the collector said:\n%s", &c.log)
		}
	})
	poll.Until(t, func() error {
		select {
		case <-c.Ended:
			t.Fatal("the collector ended at once")
		default:
		}
		return poll.Unless(strings.Contains(c.log.String(), "Everything is ready."), "it is not ready")
	})
	return c
}

// stop asks a process to end, and waits until it has, without an error.
func stop(t *testing.T, p *process.Process) {
	t.Helper()
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Ended:
	case <-time.After(poll.Most):
		t.Fatalf("it has not ended within %s", poll.Most)
	}
	if state := p.Cmd.ProcessState; !state.Success() {
		t.Errorf("it ended with %s", state)
	}
}
